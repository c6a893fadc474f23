// Forward for any width, alignment and strides. What one CTA does, for each of its Rows rows, Group threads each:
//
//     pass 1: read the row unit by unit (add the residual; write h), fold the sum of squares
//     rstd = 1 / sqrt(squares / width + eps); write rstd
//     pass 2: read the row again (h in the residual form), write y = x * rstd * w
//
// Departures from the obvious loop:
//  1. Units are visited so that the canonical fold needs O(log) partial sums whatever the width: eight units a thread at
//     a time, those that the first three folds join, and the batches in bit-reversed order, in which the fold joins
//     neighbours; joined sums wait in shared memory, a level for each power of two.
//  2. A tensor whose units are 16-byte aligned is read by 16-byte loads, any other element by element.
//  3. The second read mostly finds the row in L1 or L2. An element is read and written by one thread only, so y may be
//     x and h may be the residual.
//
// Reads 4 bytes and writes 2 bytes an element (residual: 6 and 4), of which the second read of 2 is mostly from cache.
// Order of sums: the canonical fold.
#pragma once
#include "rmsnorm/args.cuh"

namespace cake::rmsnorm {

// A row's indices at all levels.
struct LevelIndex {
    u32 level[max_levels];
};

__device__ __forceinline__ LevelIndex level_index(const ForwardParams& p, u32 row) {
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
__device__ __forceinline__ i64 row_offset(const ForwardParams& p, const RowTensor& t, int name, const LevelIndex& index) {
    i64 offset = index.level[0] * t.pitch + index.level[1] * t.outer;
#pragma unroll
    for (int i = 2; i < max_levels; ++i) offset += index.level[i] * p.more[i - 2][name];
    return offset;
}

__device__ __forceinline__ bool has_vectors(const ForwardParams& p, int tensor) { return p.vectors >> tensor & 1; }

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

// The weights of elements first .. first + count of a row, count <= 8.
template <class Weight>
__device__ __forceinline__ WeightUnit<Weight> read_weights(const ForwardParams& p, u64 first, u32 count) {
    WeightUnit<Weight> w{};
    if constexpr (sizeof(Weight) > 1) {  // `none` has a size of 1
        if (has_vectors(p, WEIGHT) && count == 8) {
            w.load(p.weight, u32(first / 8));
        } else {
            const Weight* weights = reinterpret_cast<const Weight*>(p.weight);
#pragma unroll
            for (u32 e = 0; e < 8; ++e) {
                if (e < count) w.set(e, readable(&weights[i64(first + e) * p.column[WEIGHT]]));
            }
        }
    }
    return w;
}

template <u32 Width, u32 Group, u32 Rows, bool Residual, class Weight>
__device__ __forceinline__ void fwd_scan(const ForwardParams& p) {
    float* waiting = dynamic_shared();  // [levels][threads]
    __shared__ FoldScratch<Group, Rows> scratch;
    constexpr u32 Batch = 8;
    const u32 lane = threadIdx.x % Group;
    const u32 row = blockIdx.x * Rows + threadIdx.x / Group;
    const bool live = row < p.rows;
    const LevelIndex index = level_index(p, row);
    const char* x_row = p.x.address + 2 * row_offset(p, p.x, X, index);
    const char* residual_row = p.residual.address + 2 * row_offset(p, p.residual, RESIDUAL, index);
    char* h_row = p.h.address + 2 * row_offset(p, p.h, H, index);
    char* y_row = p.y.address + 2 * row_offset(p, p.y, Y, index);

    // Unit s of batch b is lane + Group * (b + batches * s): the first three folds join the units of a batch.
    const u32 units = p.width / 8 + (p.width % 8 != 0);
    u32 batches = 1, bits = 0;
    while (u64(batches) * Group * Batch < units) batches *= 2, ++bits;
    const auto first_of = [&](u32 batch, u32 s) { return 8 * (lane + u64(Group) * (batch + u64(batches) * s)); };
    const auto count_of = [&](u64 first) { return first >= p.width ? 0u : min(8u, u32(p.width - first)); };

    float squares = 0.0f;
    if (live) {
        for (u32 step = 0; step < batches; ++step) {
            const u32 batch = bits == 0 ? 0 : __brev(step) >> (32 - bits);
            float sums[Batch];
#pragma unroll
            for (u32 s = 0; s < Batch; ++s) {
                const u64 first = first_of(batch, s);
                const u32 count = count_of(first);
                sums[s] = 0.0f;
                if (count == 0) continue;
                Unit x = read_unit(x_row, p.column[X], has_vectors(p, X), first, count);
                if constexpr (Residual) {
                    x = add(x, read_unit(residual_row, p.column[RESIDUAL], has_vectors(p, RESIDUAL), first, count));
                    write_unit(h_row, p.column[H], has_vectors(p, H), first, count, x);
                }
                sums[s] = unit_squares(x);
            }
            squares = fold_registers(sums);
            u32 level = 0;
            for (; step >> level & 1; ++level) squares = __fadd_rn(waiting[level * blockDim.x + threadIdx.x], squares);
            if (step + 1 < batches) waiting[level * blockDim.x + threadIdx.x] = squares;
        }
    }
    const float rstd = rstd_of(fold_group<Group, Rows>(squares, scratch), p.width, p.eps);
    if (!live) return;
    if (lane == 0 && p.rstd.address != nullptr) {
        writable(&reinterpret_cast<float*>(p.rstd.address)[row_offset(p, p.rstd, RSTD, index)]) = rstd;
    }

    constexpr int normed = Residual ? H : X;
    const char* normed_row = Residual ? h_row : x_row;
    for (u64 first = 8 * lane; first < p.width; first += 8 * Group) {
        const u32 count = count_of(first);
        const Unit x = read_unit(normed_row, p.column[normed], has_vectors(p, normed), first, count);
        const Unit y = scale(x, rstd, read_weights<Weight>(p, first, count), p.offset);
        write_unit(y_row, p.column[Y], has_vectors(p, Y), first, count, y);
    }
}

}  // namespace cake::rmsnorm
