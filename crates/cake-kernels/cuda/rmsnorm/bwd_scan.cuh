// Backward for any width, alignment and strides. What one CTA does:
//
//     for each of its chunks of rows (as in bwd_walk.cuh), for each leaf of 8 rows of a group:
//         pass 1, for each row: rstd if it is not given; c = fold(g * xhat) / width
//         pass 2, for each unit of 8 columns: read x and dy of the 8 rows again; write dx; add dy * xhat over the rows, and
//             join the sums with what waits in the row tree
//         write the chunk's root to the workspace
//     wait for all CTAs; join the roots of all chunks for some columns, and write dw
//
// Sums wait in the workspace, since a row may have any number of columns. An element is read and written by one thread
// only, after pass 1, so dx may be dy. The second read mostly finds the rows in L1 or L2.
//
// Reads 8 bytes and writes 2 bytes an element (residual: 10 and 2), of which 4 are mostly from cache.
// Order of sums: the canonical fold, the canonical tree.
#pragma once
#include "rmsnorm/gradient.cuh"
#include "rmsnorm/scan.cuh"

namespace cake::rmsnorm {

template <u32 Width, u32 Group, u32 Rows, bool Residual, class Weight>
__device__ __forceinline__ void bwd_scan(const BackwardParams& p) {
    static_assert(Rows == 1 || Group == 32, "groups of several warps would need barriers of their own");
    constexpr u32 Threads = Group * Rows;
    __shared__ FoldScratch<Group, Rows> scratch[2][1];
    __shared__ float stats[Rows][2][leaf_rows];  // rstd and c of a leaf's rows
    const u32 lane = threadIdx.x % Group, group = threadIdx.x / Group;
    const auto wait_for_group = [] {
        if constexpr (Rows == 1) {
            __syncthreads();
        } else {
            __syncwarp();
        }
    };
    const FarLevels<Rows> levels(p);
    u32 parity = 0;
    if (p.dw != nullptr) clear_roots<Threads>(p);

    for (u32 chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
        const u32 first = chunk * p.chunk + group * levels.share;
        const u32 count = first >= p.rows ? 0 : min(levels.share, p.rows - first);
        for (u32 leaf = 0; leaf * leaf_rows < count; ++leaf) {
            const u32 begin = first + leaf * leaf_rows;
            const u32 rows = min(leaf_rows, count - leaf * leaf_rows);
            wait_for_group();
            for (u32 i = 0; i < rows; ++i) {
                const LevelIndex index = level_index(p, begin + i);
                const char* const x_row = p.x.address + 2 * row_offset(p, p.x, backward::X, index);
                const char* const dy_row = p.dy.address + 2 * row_offset(p, p.dy, backward::DY, index);
                const auto x_unit = [&](u64 at, u32 n) { return read_unit(x_row, p.column[backward::X], has_vectors(p, backward::X), at, n); };
                float rstd, c = 0.0f;
                if (p.rstd.address != nullptr) {
                    rstd = readable(&reinterpret_cast<const float*>(p.rstd.address)[row_offset(p, p.rstd, backward::RSTD, index)]);
                } else {
                    const float squares = fold_units<Group>(p.width, dynamic_shared(), [&](u64 at, u32 n) {
                        return unit_squares(x_unit(at, n));
                    });
                    rstd = rstd_of(fold_group<Group, Rows>(squares, scratch[parity]), p.width, p.eps);
                    parity ^= 1;
                }
                if (p.dx.address != nullptr) {
                    const float products = fold_units<Group>(p.width, dynamic_shared(), [&](u64 at, u32 n) {
                        const Unit x = x_unit(at, n);
                        const Unit dy = read_unit(dy_row, p.column[backward::DY], has_vectors(p, backward::DY), at, n);
                        const auto w = read_weights<Weight>(p, backward::WEIGHT, at, n);
                        float g[8], xhat[8];
#pragma unroll
                        for (int e = 0; e < 8; ++e) {
                            // Beyond the row the terms are zeros, though rstd or the offset weight may be infinite.
                            xhat[e] = u32(e) < n ? __fmul_rn(element(x, e), rstd) : 0.0f;
                            g[e] = u32(e) < n ? __fmul_rn(element(dy, e), __fadd_rn(w.element(e), p.offset)) : 0.0f;
                        }
                        return unit_products(g, xhat);
                    });
                    c = mean_of(__fadd_rn(fold_group<Group, Rows>(products, scratch[parity]), 0.0f), p.width);
                    parity ^= 1;
                }
                if (lane == 0) stats[group][0][i] = rstd, stats[group][1][i] = c;
            }
            wait_for_group();
            const bool last = (leaf + 1) * leaf_rows >= count;
            for (u64 at = 8 * lane; at < p.width; at += 8 * Group) {
                const u32 n = count_of(at, p.width);
                const auto w = read_weights<Weight>(p, backward::WEIGHT, at, n);
                Quad sums[2] = {};
                for (u32 i = 0; i < rows; ++i) {
                    const LevelIndex index = level_index(p, begin + i);
                    const auto unit = [&](const RowTensor& t, int name) {
                        return read_unit(t.address + 2 * row_offset(p, t, name, index), p.column[name], has_vectors(p, name), at, n);
                    };
                    const float rstd = stats[group][0][i], c = stats[group][1][i];
                    const Unit x = unit(p.x, backward::X), dy = unit(p.dy, backward::DY);
                    float g[8];
#pragma unroll
                    for (int e = 0; e < 8; ++e) {
                        g[e] = __fmul_rn(element(dy, e), __fadd_rn(w.element(e), p.offset));
                        float& sum = sums[e / 4].of[e % 4];
                        sum = __fmaf_rn(element(dy, e), __fmul_rn(element(x, e), rstd), sum);
                    }
                    if (p.dx.address != nullptr) {
                        const Unit dh = Residual ? unit(p.dh, backward::DH) : Unit{};
                        write_unit(p.dx.address + 2 * row_offset(p, p.dx, backward::DX, index), p.column[backward::DX], has_vectors(p, backward::DX), at, n,
                                   input_gradient<Residual>(x, g, rstd, c, dh));
                    }
                }
                if (p.dw == nullptr) continue;
#pragma unroll
                for (u32 q = 0; q < 2; ++q) levels.join(leaf, last, group, u32(at / 4) + q, sums[q]);
            }
        }
        if (p.dw != nullptr) levels.write_roots(p, chunk);
    }
    if (p.dw != nullptr) join_chunks<Threads>(p, reinterpret_cast<Quad*>(dynamic_shared()));
}

}  // namespace cake::rmsnorm
