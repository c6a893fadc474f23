// Forward for any width, alignment and strides. What one CTA does, for each of its Rows rows, Group threads each:
//
//     pass 1: read the row unit by unit, fold the sum of squares; rstd = 1 / sqrt(squares / width + eps); write rstd
//     pass 2: read the row again, write y = x * rstd * w * gate(z)      (gate first: x * gate(z) takes the place of x)
//
// An element is read and written by one thread only, so y may be x or z. The second read mostly finds the row in L1 or L2.
//
// Reads 4 bytes and writes 2 bytes an element, and 2 (gate first: 4) again that are mostly from cache.
// Order of sums: the canonical fold.
#pragma once
#include "silu_gate/scan.cuh"

namespace cake::silu_gate {

template <u32 Width, u32 Group, u32 Rows, Form F, class Weight>
__device__ __forceinline__ void fwd_scan(const ForwardParams& p) {
    __shared__ FoldScratch<Group, Rows> scratch[1];
    const u32 lane = threadIdx.x % Group;
    const u32 row = blockIdx.x * Rows + threadIdx.x / Group;
    const bool live = row < p.rows;
    const LevelIndex index = level_index(p, row);
    const RowUnits x(p, p.x, X, index), z(p, p.z, Z, index), y(p, p.y, Y, index);
    const auto gated = [&](u64 first, u32 count, const Gates<F, 4>& gates, float (&u)[8]) {
        const Unit unit = x.read(first, count);
#pragma unroll
        for (int e = 0; e < 8; ++e) u[e] = F.first ? __fmul_rn(element(unit, e), gates.gate(e)) : element(unit, e);
    };
    float squares = 0.0f;
    if (live) {
        squares = fold_units<Group>(p.width, dynamic_shared(), [&](u64 first, u32 count) {
            float u[8];
            Gates<F, 4> gates;
            if constexpr (F.first) gates.set(z.read(first, count).pair);
            gated(first, count, gates, u);
            return unit_products(u, u);
        });
    }
    const float rstd = rstd_of(fold_group<Group, Rows>(squares, scratch), p.width, p.eps);
    if (!live) return;
    if (lane == 0 && p.rstd.address != nullptr) {
        writable(&reinterpret_cast<float*>(p.rstd.address)[row_offset(p, p.rstd, RSTD, index)]) = rstd;
    }
    for (u64 first = 8 * lane; first < p.width; first += 8 * Group) {
        const u32 count = count_of(first, p.width);
        float w[8];
        read_weights(p.weight, p.weight_fp32, p.column[WEIGHT], first, count, w);
        float u[8];
        Gates<F, 4> gates;
        gates.set(z.read(first, count).pair);
        gated(first, count, gates, u);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            u[e] = __fmul_rn(__fmul_rn(u[e], rstd), w[e]);
            if constexpr (!F.first) u[e] = __fmul_rn(u[e], gates.gate(e));
        }
        Unit unit;
        round_pairs(u, unit.pair);
        y.write(first, count, unit);
    }
}

}  // namespace cake::silu_gate
