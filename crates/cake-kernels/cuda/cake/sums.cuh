// The canonical order of sums across a row (docs/numerics.md): units of 8 elements, folded in half until one is left.
//
// A group of Group threads shares a row, thread t holding units t, t + Group, t + 2 Group, ... Folding halves joins far
// units first, so the first folds stay inside a thread's registers, the next cross warps, the last cross lanes: the same
// tree for every Group. Missing units are zeros, which no fold can tell from absent ones: the root has +0 added.
#pragma once
#include "cake/ptx.cuh"

namespace cake {

// Sum of squares of a unit: two chains of 4 elements.
__device__ __forceinline__ float unit_squares(const Unit& u) {
    float chain[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float a = low_float(u.pair[2 * half]), b = high_float(u.pair[2 * half]);
        float c = low_float(u.pair[2 * half + 1]), d = high_float(u.pair[2 * half + 1]);
        chain[half] = __fmaf_rn(d, d, __fmaf_rn(c, c, __fmaf_rn(b, b, __fmul_rn(a, a))));
    }
    return __fadd_rn(chain[0], chain[1]);
}

// Sum of the products of two units, given as floats.
__device__ __forceinline__ float unit_products(const float (&a)[8], const float (&b)[8]) {
    float chain[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int e = 4 * half;
        chain[half] = __fmul_rn(a[e], b[e]);
#pragma unroll
        for (int i = 1; i < 4; ++i) chain[half] = __fmaf_rn(a[e + i], b[e + i], chain[half]);
    }
    return __fadd_rn(chain[0], chain[1]);
}

// Folds the Count sums of a thread into one.
template <u32 Count, u32 Half = next_power_of_two(Count) / 2>
__device__ __forceinline__ float fold_registers(float (&sums)[Count]) {
    if constexpr (Half > 0) {  // recursion, because the compiler must know every index to keep the array in registers
#pragma unroll
        for (u32 i = 0; i < Half; ++i) {
            if (i + Half < Count) sums[i] = __fadd_rn(sums[i], sums[i + Half]);
        }
        return fold_registers<Count, Half / 2>(sums);
    }
    return sums[0];
}

// Sum of the products of a thread's elements, in fours: a chain for each; they are units two by two, which fold.
template <int Elements>
__device__ __forceinline__ float fold_products(const float (&a)[Elements], const float (&b)[Elements]) {
    float chain[Elements / 4];
#pragma unroll
    for (int q = 0; q < Elements / 4; ++q) {
        chain[q] = __fmul_rn(a[4 * q], b[4 * q]);
#pragma unroll
        for (int i = 1; i < 4; ++i) chain[q] = __fmaf_rn(a[4 * q + i], b[4 * q + i], chain[q]);
    }
    if constexpr (Elements == 4) {
        return chain[0];
    } else {
        float unit[Elements / 8];
#pragma unroll
        for (int u = 0; u < Elements / 8; ++u) unit[u] = __fadd_rn(chain[2 * u], chain[2 * u + 1]);
        return fold_registers(unit);
    }
}

// Folds one value per lane across the lowest Lanes lanes of each aligned group of lanes; every lane gets the result.
template <u32 Lanes>
__device__ __forceinline__ float fold_lanes(float value) {
#pragma unroll
    for (u32 p = Lanes / 2; p > 0; p /= 2) value = __fadd_rn(value, __shfl_xor_sync(0xffffffffu, value, p));
    return value;
}

// Folds Count values per lane across Lanes lanes at once, so that each lane gets one of them, that of `own`: with eight, a
// third of the work of as many `fold_lanes`. With Halves, neighbouring lanes have the halves of a unit, and join them first.
template <u32 Lanes, u32 Count, bool Halves>
struct FoldSeveral {
    static_assert(Count <= Lanes && (Count & (Count - 1)) == 0);

    // How far apart the lanes are that a step joins.
    static constexpr u32 distance(u32 step) { return !Halves ? Lanes >> (step + 1) : step == 0 ? 1 : Lanes >> step; }

    static __device__ __forceinline__ float fold(float (&values)[Count]) {
        u32 left = Count;
#pragma unroll
        for (u32 step = 0; (1u << step) < Lanes; ++step) {
            const u32 d = distance(step);
            if (left == 1) {
                values[0] = __fadd_rn(values[0], __shfl_xor_sync(0xffffffffu, values[0], d));
                continue;
            }
            left /= 2;
            const bool upper = threadIdx.x & d;
#pragma unroll
            for (u32 i = 0; i < Count / 2; ++i) {
                if (i >= left) continue;
                const float given = upper ? values[i] : values[i + left];
                values[i] = __fadd_rn(upper ? values[i + left] : values[i], __shfl_xor_sync(0xffffffffu, given, d));
            }
        }
        return values[0];
    }

    // Which of the values a lane gets.
    static __device__ __forceinline__ u32 own(u32 lane) {
        u32 of = 0;
#pragma unroll
        for (u32 step = 0; (Count >> step) > 1; ++step) of += lane & distance(step) ? Count >> (step + 1) : 0;
        return of;
    }

    // A lane that gets value `of`.
    static constexpr __device__ u32 lane(u32 of) {
        u32 lane = 0;
        for (u32 step = 0; (Count >> step) > 1; ++step) lane += of & (Count >> (step + 1)) ? distance(step) : 0;
        return lane;
    }
};

// Shared memory of fold_group: one value for each thread of a CTA whose groups span warps, and one for each row.
template <u32 Group, u32 Rows>
struct FoldScratch {
    float value[Group > 32 ? Group * Rows : 1];
    float whole[Rows];
};

// Folds Count values per thread across a group, each with its own scratch; every thread gets the results. All threads of
// the CTA must call it, and not again with the same scratch before a barrier that follows another call.
template <u32 Group, u32 Rows, u32 Count>
__device__ __forceinline__ void fold_groups(float (&values)[Count], FoldScratch<Group, Rows> (&scratch)[Count]) {
    if constexpr (Group <= 32) {
#pragma unroll
        for (u32 i = 0; i < Count; ++i) values[i] = fold_lanes<Group>(values[i]);
        return;
    }
    constexpr u32 Warps = ceil_div(Group, 32);
    // Every warp can read all the others' values and fold them itself; of 8 warps and more one does it for the rest.
    constexpr bool one_warp = Warps >= 8;
    const u32 row = threadIdx.x / Group, warp = threadIdx.x % Group / 32;
#pragma unroll
    for (u32 i = 0; i < Count; ++i) scratch[i].value[threadIdx.x] = values[i];
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < Count; ++i) {
        if (one_warp && warp != i) continue;
        float across[Warps];
#pragma unroll
        for (u32 w = 0; w < Warps; ++w) across[w] = scratch[i].value[row * Group + w * 32 + threadIdx.x % 32];
        values[i] = fold_lanes<32>(fold_registers(across));
        if (one_warp && threadIdx.x % 32 == 0) scratch[i].whole[row] = values[i];
    }
    if constexpr (one_warp) {
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < Count; ++i) values[i] = scratch[i].whole[row];
    }
}

template <u32 Group, u32 Rows>
__device__ __forceinline__ float fold_group(float value, FoldScratch<Group, Rows> (&scratch)[1]) {
    float values[1] = {value};
    fold_groups(values, scratch);
    return values[0];
}

}  // namespace cake
