// Rows and where they are, and the statistics of a row.
#pragma once
#include "cake/types.cuh"

namespace cake {

constexpr int max_levels = 6;

// Where the rows of a tensor are. Strides count elements; levels of row indices are counted from the innermost.
struct RowTensor {
    char* address;  // null when absent
    i64 pitch;      // stride of level 0
    i64 outer;      // stride of level 1
};

// A row's indices at the two innermost levels; the second is 0 where there is one level.
struct RowIndex {
    u32 inner, outer;
};

template <class Params>
__device__ __forceinline__ RowIndex row_index(const Params& p, u32 row) {
    if (p.levels == 1) return {row, 0};
    return {row % p.sizes[0], row / p.sizes[0]};
}

template <int Bytes>
__device__ __forceinline__ char* row_of(const RowTensor& tensor, RowIndex row) {
    return tensor.address + Bytes * (row.inner * tensor.pitch + row.outer * tensor.outer);
}

// Likewise of a row by its number. Most tensors have one level, and then one stride.
template <int Bytes, class Params>
__device__ __forceinline__ char* row_at(const Params& p, const RowTensor& tensor, u32 row) {
    if (p.levels == 1) return tensor.address + Bytes * (u64(row) * tensor.pitch);
    return row_of<Bytes>(tensor, row_index(p, row));
}

// sum / width.
__device__ __forceinline__ float mean_of(float sum, u32 width) {
    // For a power of two both roundings are of the same exact value.
    const bool power_of_two = (width & (width - 1)) == 0;
    const float h = __uint2float_rn(width);
    return power_of_two ? __fmul_rn(sum, 1.0f / h) : __fdiv_rn(sum, h);
}

// rstd = 1 / sqrt(squares / width + eps), each step rounded.
__device__ __forceinline__ float rstd_of(float squares, u32 width, float eps) {
    return __frcp_rn(__fsqrt_rn(__fadd_rn(mean_of(squares, width), eps)));
}

}  // namespace cake
