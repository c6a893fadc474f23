// Units of rows of any width, alignment and strides.
#pragma once
#include "cake/scan.cuh"
#include "silu_gate/gate.cuh"

namespace cake::silu_gate {

// The weights of elements first .. first + count of a row, count <= 8, the rest zero.
__device__ __forceinline__ void read_weights(const char* weights, bool fp32, i64 stride, u64 first, u32 count, float (&w)[8]) {
#pragma unroll
    for (u32 e = 0; e < 8; ++e) w[e] = e < count ? weight(weights, fp32, i64(first + e) * stride) : 0.0f;
}

// Some elements of one row of a tensor.
struct RowUnits {
    char* row;
    i64 stride;
    bool vectors;

    template <class Params>
    __device__ __forceinline__ RowUnits(const Params& p, const RowTensor& tensor, int name, const LevelIndex& index)
        : row(tensor.address + 2 * row_offset(p, tensor, name, index)), stride(p.column[name]), vectors(has_vectors(p, name)) {}

    __device__ __forceinline__ Unit read(u64 first, u32 count) const { return read_unit(row, stride, vectors, first, count); }
    __device__ __forceinline__ void write(u64 first, u32 count, const Unit& u) const { write_unit(row, stride, vectors, first, count, u); }
};

}  // namespace cake::silu_gate
