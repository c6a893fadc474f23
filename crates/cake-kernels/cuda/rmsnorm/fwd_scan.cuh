// Forward for any width, alignment and strides. What one CTA does, for each of its Rows rows, Group threads each:
//
//     pass 1: read the row unit by unit (add the residual; write h), fold the sum of squares
//     rstd = 1 / sqrt(squares / width + eps); write rstd
//     pass 2: read the row again (h in the residual form), write y = x * rstd * w
//
// Departures from the obvious loop:
//  1. The fold needs O(log) partial sums, whatever the width (`fold_units`).
//  2. A tensor whose units are 16-byte aligned is read by 16-byte loads, any other element by element.
//  3. The second read mostly finds the row in L1 or L2. An element is read and written by one thread only, so y may be
//     x and h may be the residual.
//
// Reads 4 bytes and writes 2 bytes an element (residual: 6 and 4), of which the second read of 2 is mostly from cache.
// Order of sums: the canonical fold.
#pragma once
#include "rmsnorm/scan.cuh"

namespace cake::rmsnorm {

template <u32 Width, u32 Group, u32 Rows, bool Residual, class Weight>
__device__ __forceinline__ void fwd_scan(const ForwardParams& p) {
    __shared__ FoldScratch<Group, Rows> scratch[1];
    const u32 lane = threadIdx.x % Group;
    const u32 row = blockIdx.x * Rows + threadIdx.x / Group;
    const bool live = row < p.rows;
    const LevelIndex index = level_index(p, row);
    const char* x_row = p.x.address + 2 * row_offset(p, p.x, X, index);
    const char* residual_row = p.residual.address + 2 * row_offset(p, p.residual, RESIDUAL, index);
    char* h_row = p.h.address + 2 * row_offset(p, p.h, H, index);
    char* y_row = p.y.address + 2 * row_offset(p, p.y, Y, index);

    float squares = 0.0f;
    if (live) {
        squares = fold_units<Group>(p.width, dynamic_shared(), [&](u64 first, u32 count) {
            Unit x = read_unit(x_row, p.column[X], has_vectors(p, X), first, count);
            if constexpr (Residual) {
                x = add(x, read_unit(residual_row, p.column[RESIDUAL], has_vectors(p, RESIDUAL), first, count));
                write_unit(h_row, p.column[H], has_vectors(p, H), first, count, x);
            }
            return unit_squares(x);
        });
    }
    const float rstd = rstd_of(fold_group<Group, Rows>(squares, scratch), p.width, p.eps);
    if (!live) return;
    if (lane == 0 && p.rstd.address != nullptr) {
        writable(&reinterpret_cast<float*>(p.rstd.address)[row_offset(p, p.rstd, RSTD, index)]) = rstd;
    }

    constexpr int normed = Residual ? H : X;
    const char* normed_row = Residual ? h_row : x_row;
    for (u64 first = 8 * lane; first < p.width; first += 8 * Group) {
        const u32 count = count_of(first, p.width);
        const Unit x = read_unit(normed_row, p.column[normed], has_vectors(p, normed), first, count);
        const Unit y = scale(x, rstd, read_weights<Weight>(p, WEIGHT, first, count), p.offset);
        write_unit(y_row, p.column[Y], has_vectors(p, Y), first, count, y);
    }
}

}  // namespace cake::rmsnorm
