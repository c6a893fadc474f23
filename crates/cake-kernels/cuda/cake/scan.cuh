// Rows of any width, alignment and strides, element by element where need be.
#pragma once
#include "cake/rows.cuh"
#include "cake/sums.cuh"

namespace cake {

// A row's indices at all levels.
struct LevelIndex {
    u32 level[max_levels];
};

template <class Params>
__device__ __forceinline__ LevelIndex level_index(const Params& p, u32 row) {
    LevelIndex index{{row}};
#pragma unroll
    for (int i = 0; i + 1 < max_levels; ++i) {
        if (i + 1 < int(p.levels)) {
            index.level[i + 1] = index.level[i] / p.sizes[i];
            index.level[i] %= p.sizes[i];
        }
    }
    return index;
}

// Elements from a tensor's first to the row's first.
template <class Params>
__device__ __forceinline__ i64 row_offset(const Params& p, const RowTensor& t, int name, const LevelIndex& index) {
    i64 offset = index.level[0] * t.pitch + index.level[1] * t.outer;
#pragma unroll
    for (int i = 2; i < max_levels; ++i) offset += index.level[i] * p.more[i - 2][name];
    return offset;
}

template <class Params>
__device__ __forceinline__ bool has_vectors(const Params& p, int tensor) { return p.vectors >> tensor & 1; }

// Elements first .. first + count of a row, count <= 8, the rest zero.
__device__ __forceinline__ Unit read_unit(const char* row, i64 stride, bool vectors, u64 first, u32 count) {
    if (vectors && count == 8) return load_unit(row + 2 * first);
    Unit u{};
    const u16* elements = reinterpret_cast<const u16*>(row);
#pragma unroll
    for (u32 e = 0; e < 8; ++e) {
        if (e < count) u.pair[e / 2] |= u32(readable(&elements[i64(first + e) * stride])) << (e % 2 * 16);
    }
    return u;
}

__device__ __forceinline__ void write_unit(char* row, i64 stride, bool vectors, u64 first, u32 count, const Unit& u) {
    if (vectors && count == 8) return store_unit(row + 2 * first, u);
    u16* elements = reinterpret_cast<u16*>(row);
#pragma unroll
    for (u32 e = 0; e < 8; ++e) {
        if (e < count) writable(&elements[i64(first + e) * stride]) = u16(u.pair[e / 2] >> (e % 2 * 16));
    }
}

// Elements of a row that unit `first / 8` has.
__device__ __forceinline__ u32 count_of(u64 first, u32 width) { return first >= width ? 0u : min(8u, u32(width - first)); }

// This thread's part of the column fold of a row of any width: `unit(first, count)` is the sum of the unit that begins at
// element `first` and has `count` > 0 elements. Units are visited so that O(log) partial sums are enough: eight units at a
// time, those that the first three folds join, and the batches in bit-reversed order, in which the fold joins neighbours.
// Joined sums wait in shared memory, [levels][threads].
template <u32 Group, class Sum>
__device__ __forceinline__ float fold_units(u32 width, float* waiting, const Sum& unit) {
    constexpr u32 Batch = 8;
    const u32 lane = threadIdx.x % Group;
    // Unit s of batch b is lane + Group * (b + batches * s): the first three folds join the units of a batch.
    const u32 units = width / 8 + (width % 8 != 0);
    u32 batches = 1, bits = 0;
    while (u64(batches) * Group * Batch < units) batches *= 2, ++bits;
    float sum = 0.0f;
    for (u32 step = 0; step < batches; ++step) {
        const u32 batch = bits == 0 ? 0 : __brev(step) >> (32 - bits);
        float sums[Batch];
#pragma unroll
        for (u32 s = 0; s < Batch; ++s) {
            const u64 first = 8 * (lane + u64(Group) * (batch + u64(batches) * s));
            const u32 count = count_of(first, width);
            sums[s] = count == 0 ? 0.0f : unit(first, count);
        }
        sum = fold_registers(sums);
        u32 level = 0;
        for (; step >> level & 1; ++level) sum = __fadd_rn(waiting[level * blockDim.x + threadIdx.x], sum);
        if (step + 1 < batches) waiting[level * blockDim.x + threadIdx.x] = sum;
    }
    return sum;
}

}  // namespace cake
