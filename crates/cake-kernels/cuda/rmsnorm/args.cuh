// Parameters and scalar steps of RMSNorm; mirrors `ForwardParams` of cake-kernels/src/rmsnorm.rs.
#pragma once
#include "cake/sums.cuh"

namespace cake::rmsnorm {

constexpr int max_levels = 6;

// Tensors of a call, in the order of the arrays below.
enum { X, RESIDUAL, Y, H, RSTD, ROW_TENSORS, WEIGHT = ROW_TENSORS, TENSORS };

// What a call with a single row pitch per tensor needs comes first: a cold parameter costs a trip to memory for each line.
struct ForwardParams {
    char* address[TENSORS];          // null when absent
    u32 rows, levels;                // levels of row indices in use
    float eps, offset;               // offset: added to each weight, 1 or -0
    u32 ahead, width;                // ahead: rows to the one to fetch into L2; 0, also where levels > 1, for none
    i64 pitch[ROW_TENSORS];          // strides of level 0, the innermost; all strides count elements
    u32 sizes[max_levels];           // of the levels, innermost first
    i64 outer[max_levels - 1][ROW_TENSORS];  // strides of the other levels
    i64 column[TENSORS];             // strides between columns
    u32 vectors;                     // bit t: tensor t allows 16-byte accesses to each unit
};

static_assert(sizeof(ForwardParams) == 392, "the mirror in src/rmsnorm.rs has this size");

// The level indices of a row, found once for all tensors of a call.
template <int Levels>
struct RowIndex {
    u32 level[Levels];
};

template <int Levels>
__device__ __forceinline__ RowIndex<Levels> row_index(const ForwardParams& p, u32 row) {
    RowIndex<Levels> index{};
    index.level[0] = row;
#pragma unroll
    for (int i = 0; i + 1 < Levels; ++i) {
        if (i + 1 < int(p.levels)) {  // the same for the whole grid
            index.level[i + 1] = index.level[i] / p.sizes[i];
            index.level[i] %= p.sizes[i];
        }
    }
    return index;
}

// Elements from a tensor's first to the row's first.
template <int Levels>
__device__ __forceinline__ i64 row_offset(const ForwardParams& p, int tensor, const RowIndex<Levels>& index) {
    i64 offset = index.level[0] * p.pitch[tensor];
    if (p.levels > 1) {
        asm volatile("");  // keeps the compiler from loading outer strides, cold lines of parameters, on the other path
#pragma unroll
        for (int i = 1; i < Levels; ++i) offset += index.level[i] * p.outer[i - 1][tensor];
    }
    return offset;
}

template <int Levels>
__device__ __forceinline__ char* row_of(const ForwardParams& p, int tensor, const RowIndex<Levels>& index) {
    return p.address[tensor] + 2 * row_offset(p, tensor, index);
}

// Writes a row's rstd where it is wanted.
template <int Levels>
__device__ __forceinline__ void write_rstd(const ForwardParams& p, const RowIndex<Levels>& index, float rstd) {
    if (p.address[RSTD] != nullptr) reinterpret_cast<float*>(p.address[RSTD])[row_offset(p, RSTD, index)] = rstd;
}

// rstd = 1 / sqrt(squares / width + eps), each step rounded.
__device__ __forceinline__ float rstd_of(float squares, u32 width, float eps) {
    // For a power of two both roundings are of the same exact value.
    const bool power_of_two = (width & (width - 1)) == 0;
    const float h = __uint2float_rn(width);
    const float mean = power_of_two ? __fmul_rn(squares, 1.0f / h) : __fdiv_rn(squares, h);
    return __frcp_rn(__fsqrt_rn(__fadd_rn(mean, eps)));
}

// h = bf16(x + residual).
__device__ __forceinline__ Unit add(const Unit& x, const Unit& residual) {
    Unit h;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        h.pair[i] = round_pair(__fadd_rn(low_float(x.pair[i]), low_float(residual.pair[i])),
                               __fadd_rn(high_float(x.pair[i]), high_float(residual.pair[i])));
    }
    return h;
}

// The weights of a unit.
template <class Weight>
struct WeightUnit;

template <>
struct WeightUnit<bf16> {
    Unit bits;
    __device__ __forceinline__ void load(const char* weights, u32 unit) { bits = load_weight(weights + u64(16) * unit); }
    __device__ __forceinline__ void set(u32 e, bf16 w) { bits.pair[e / 2] |= u32(w.bits) << (e % 2 * 16); }
    __device__ __forceinline__ float low(int i) const { return low_float(bits.pair[i]); }
    __device__ __forceinline__ float high(int i) const { return high_float(bits.pair[i]); }
};

template <>
struct WeightUnit<float> {
    Unit bits[2];
    __device__ __forceinline__ void load(const char* weights, u32 unit) {
        bits[0] = load_weight(weights + u64(32) * unit);
        bits[1] = load_weight(weights + u64(32) * unit + 16);
    }
    __device__ __forceinline__ void set(u32 e, float w) { bits[e / 4].pair[e % 4] = __float_as_uint(w); }
    __device__ __forceinline__ float low(int i) const { return __uint_as_float(bits[i / 2].pair[i % 2 * 2]); }
    __device__ __forceinline__ float high(int i) const { return __uint_as_float(bits[i / 2].pair[i % 2 * 2 + 1]); }
};

template <>
struct WeightUnit<none> {
    __device__ __forceinline__ void load(const char*, u32) {}
    __device__ __forceinline__ float low(int) const { return 1.0f; }
    __device__ __forceinline__ float high(int) const { return 1.0f; }
};

// y = bf16((x * rstd) * (w + offset)).
template <class Weight>
__device__ __forceinline__ Unit scale(const Unit& x, float rstd, const WeightUnit<Weight>& w, float offset) {
    Unit y;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        y.pair[i] = round_pair(
            __fmul_rn(__fmul_rn(low_float(x.pair[i]), rstd), __fadd_rn(w.low(i), offset)),
            __fmul_rn(__fmul_rn(high_float(x.pair[i]), rstd), __fadd_rn(w.high(i), offset)));
    }
    return y;
}

}  // namespace cake::rmsnorm
