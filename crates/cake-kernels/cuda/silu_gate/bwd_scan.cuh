// Backward for any width, alignment and strides. What one CTA does:
//
//     for each of its chunks of rows (as in bwd_leaf.cuh), for each leaf of 8 rows of a group:
//         pass 1, for each row: rstd if it is not given; c = fold(g * xhat) / width
//         pass 2, for each unit of 8 columns: read x, dy and z of the 8 rows again; write dx and dz; add dy * gate * xhat over
//             the rows, and join the sums with what waits in the row tree
//         write the chunk's root to the workspace
//     wait for all CTAs; join the roots of all chunks for some columns, and write dw
//
// An element is read and written by one thread only, after pass 1, so dx may be dy and dz may be z. The second read mostly
// finds the rows in L1 or L2.
//
// Reads 12 bytes and writes 4 bytes an element, of which 6 are mostly from cache.
// Order of sums: the canonical fold, the canonical tree.
#pragma once
#include "silu_gate/gradient.cuh"
#include "silu_gate/scan.cuh"

namespace cake::silu_gate {

template <u32 Width, u32 Group, u32 Rows, Form F, class Weight>
__device__ __forceinline__ void bwd_scan(const BackwardParams& p) {
    static_assert(Group == 32, "groups of several warps would need barriers of their own");
    __shared__ float stats[Rows][2][leaf_rows];  // rstd and c of a leaf's rows
    const u32 lane = threadIdx.x % Group, group = threadIdx.x / Group;
    const FarLevels<Rows> levels(p);
    const auto unit_of = [&](const LevelIndex& index, u64 at, u32 n) {
        Gradient<F, 4> unit;
        const auto read = [&](const RowTensor& tensor, int name, u32 (&pairs)[4]) {
            const Unit read = RowUnits(p, tensor, name, index).read(at, n);
#pragma unroll
            for (int i = 0; i < 4; ++i) pairs[i] = read.pair[i];
        };
        u32 z[4];
        read(p.x, backward::X, unit.x);
        read(p.dy, backward::DY, unit.dy);
        read(p.z, backward::Z, z);
        unit.gates.set(z);
        return unit;
    };
    const auto weights = [&](u64 at, u32 n, float (&w)[8]) { read_weights(p.weight, p.weight_fp32, p.column[backward::WEIGHT], at, n, w); };
    if (p.dw != nullptr) clear_roots<Group * Rows>(p);

    for (u32 chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
        const u32 first = chunk * p.chunk + group * levels.share;
        const u32 count = first >= p.rows ? 0 : min(levels.share, p.rows - first);
        for (u32 leaf = 0; leaf * leaf_rows < count; ++leaf) {
            const u32 begin = first + leaf * leaf_rows;
            const u32 rows = min(leaf_rows, count - leaf * leaf_rows);
            __syncwarp();
            for (u32 i = 0; i < rows; ++i) {
                const LevelIndex index = level_index(p, begin + i);
                float rstd;
                if (p.rstd.address != nullptr) {
                    rstd = readable(&reinterpret_cast<const float*>(p.rstd.address)[row_offset(p, p.rstd, backward::RSTD, index)]);
                } else {
                    const float squares = fold_units<Group>(p.width, dynamic_shared(), [&](u64 at, u32 n) {
                        const auto unit = unit_of(index, at, n);
                        float normed[8];
#pragma unroll
                        for (int e = 0; e < 8; ++e) normed[e] = unit.normed(e);
                        return fold_products(normed, normed);
                    });
                    rstd = rstd_of(fold_lanes<Group>(squares), p.width, p.eps);
                }
                const float products = fold_units<Group>(p.width, dynamic_shared(), [&](u64 at, u32 n) {
                    const auto unit = unit_of(index, at, n);
                    float g[8], xhat[8];
                    weights(at, n, g);
#pragma unroll
                    for (int e = 0; e < 8; ++e) {
                        g[e] = __fmul_rn(unit.upstream(e), g[e]);
                        // Beyond the row the terms are zeros, though rstd may be infinite.
                        xhat[e] = u32(e) < n ? __fmul_rn(unit.normed(e), rstd) : 0.0f;
                    }
                    return fold_products(g, xhat);
                });
                const float c = mean_of(__fadd_rn(fold_lanes<Group>(products), 0.0f), p.width);
                if (lane == 0) stats[group][0][i] = rstd, stats[group][1][i] = c;
            }
            __syncwarp();
            const bool last = (leaf + 1) * leaf_rows >= count;
            for (u64 at = 8 * lane; at < p.width; at += 8 * Group) {
                const u32 n = count_of(at, p.width);
                float w[8];
                weights(at, n, w);
                Quad sums[2] = {};
                for (u32 i = 0; i < rows; ++i) {
                    const LevelIndex index = level_index(p, begin + i);
                    const float rstd = stats[group][0][i], c = stats[group][1][i];
                    const auto unit = unit_of(index, at, n);
#pragma unroll
                    for (int e = 0; e < 8; ++e) {
                        float& sum = sums[e / 4].of[e % 4];
                        sum = __fmaf_rn(unit.upstream(e), __fmul_rn(unit.normed(e), rstd), sum);
                    }
                    Unit dx, dz;
                    unit.outputs(rstd, c, w, dx.pair, dz.pair);
                    RowUnits(p, p.dx, backward::DX, index).write(at, n, dx);
                    RowUnits(p, p.dz, backward::DZ, index).write(at, n, dz);
                }
                if (p.dw == nullptr) continue;
#pragma unroll
                for (u32 q = 0; q < 2; ++q) levels.join(leaf, last, group, u32(at / 4) + q, sums[q]);
            }
        }
        if (p.dw != nullptr) levels.write_roots(p, chunk);
    }
    if (p.dw != nullptr) join_chunks<Group * Rows>(p, reinterpret_cast<Quad*>(dynamic_shared()));
}

}  // namespace cake::silu_gate
