// Backward, a few rows at a time. What one CTA does:
//
//     for each of its chunks of rows (aligned runs of 8 rows times a power of two; Rows groups of Group threads share one):
//         for each Step rows of a group:
//             read x, dy and z; rstd = 1 / sqrt(fold(x * x) / Width + eps), unless it is given
//             add dy * gate * xhat to the leaf's sums; c = fold(g * xhat) / Width; write dx and dz
//             after 8 rows join the leaf's sums with what waits in the row tree
//         join the groups' roots; write the chunk's root to the workspace
//     wait for all CTAs; join the roots of all chunks for some columns, and write dw
//
// Departures from the obvious kernel, measured on an H200 with a cold L2 (T = 786432 rows of 128, 270 us):
//  1. Each lane asks L2 for its part of the next row: without, 304 us; asking for two rows at a time, 333 us.
//  2. Mostly the rows of all tensors are as far apart, and one multiplication serves five: with pointers of their own, it
//     spilled where three CTAs share an SM.
//  3. Each group takes the rows of a leaf one after the other. Side by side, their terms meeting in shared memory at one barrier
//     a leaf, 300 us; a row for a whole warp, two together, 345 us.
//  4. The sigmoid is computed. Looked up in shared memory, a quarter fewer instructions took as long.
//
// Reads 6 bytes and writes 4 bytes an element, each once, and 4 / chunk for the roots.
// Order of sums: the canonical fold, the canonical tree.
#pragma once
#include "silu_gate/gradient.cuh"
#include "silu_gate/part.cuh"

namespace cake::silu_gate {

template <u32 Width, u32 Group, u32 Rows, Form F, class Weight>
__device__ __forceinline__ void bwd_walk(const BackwardParams& p) {
    using Own = Part<Width, Group>;
    using Fold = FoldSeveral<Group, 1, Own::halves>;
    constexpr u32 Threads = Group * Rows;
    constexpr u32 Quads = Own::pairs / 2;
    constexpr int Elements = 2 * Own::pairs;
    static_assert(Group <= 32 && (Group & (Group - 1)) == 0);
    // The levels of the row tree: [levels][Quads][Threads].
    Quad* const tree = reinterpret_cast<Quad*>(dynamic_shared()) + threadIdx.x;
    const u32 lane = threadIdx.x % Group;
    float w[Elements];
#pragma unroll
    for (int e = 0; e < Elements; ++e) w[e] = weight(p.weight, p.weight_fp32, Own::column(lane, e / 4) + e % 4);
    // Mostly all rows are as far apart, and their places need one multiplication.
    const bool alike = p.levels == 1 && p.dy.pitch == p.x.pitch && p.z.pitch == p.x.pitch && p.dx.pitch == p.x.pitch && p.dz.pitch == p.x.pitch;
    const u64 pitch = 2 * p.x.pitch;
    if (p.dw != nullptr) clear_roots<Threads>(p);

    for (u32 chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
        // Groups that share a warp walk in step, as far as the first of them, which has the most rows. The others then stay
        // with their last row, or with some row.
        constexpr u32 in_step = 32 / Group;
        const u32 share = chunk_rows(p, chunk) / Rows;  // of a group
        const u32 first = chunk_begin(p, chunk) + threadIdx.x / Group * share;
        const u32 leader = first - threadIdx.x / Group % in_step * share;
        const u32 count = leader >= p.rows ? 0 : min(share, p.rows - leader);
        const u32 own = first >= p.rows ? 0 : min(share, p.rows - first);
        Quad sums[Quads] = {};
        for (u32 i = 0; i < count; ++i) {
            const bool there = i < own;
            const u32 at = min(first + i, p.rows - 1);
            Gradient<F, Own::pairs> row;
            u32 z[Own::pairs];
            if (alike) {
                const u64 offset = at * pitch;
                Own::load(p.x.address + offset, lane, row.x);
                Own::load(p.z.address + offset, lane, z);
                Own::load(p.dy.address + offset, lane, row.dy);
                if (p.ahead != 0 && i + 1 < own) {
                    Own::touch(p.x.address + (offset + pitch), lane);
                    Own::touch(p.z.address + (offset + pitch), lane);
                    Own::touch(p.dy.address + (offset + pitch), lane);
                }
            } else {
                const RowIndex index = row_index(p, at);
                Own::load(row_of<2>(p.x, index), lane, row.x);
                Own::load(row_of<2>(p.z, index), lane, z);
                Own::load(row_of<2>(p.dy, index), lane, row.dy);
            }
            float rstd;
            if (p.rstd.address != nullptr) rstd = there ? readable(reinterpret_cast<const float*>(row_at<4>(p, p.rstd, first + i))) : 0.0f;
            row.gates.set(z);
            if (p.rstd.address == nullptr) {
                float normed[Elements];
#pragma unroll
                for (int e = 0; e < Elements; ++e) normed[e] = row.normed(e);
                float squares[1] = {fold_products(normed, normed)};
                rstd = rstd_of(Fold::fold(squares), Width, p.eps);
            }
            float g[Elements], xhat[Elements];
#pragma unroll
            for (int e = 0; e < Elements; ++e) {
                const float a = row.upstream(e);
                xhat[e] = __fmul_rn(row.normed(e), rstd);
                g[e] = __fmul_rn(a, w[e]);
                float& sum = sums[e / 4].of[e % 4];
                if (there) sum = __fmaf_rn(a, xhat[e], sum);
            }
            float products[1] = {fold_products(g, xhat)};
            const float c = mean_of(__fadd_rn(Fold::fold(products), 0.0f), Width);
            u32 dx[Own::pairs], dz[Own::pairs];
            row.outputs(rstd, c, w, dx, dz);
            if (there && alike) {
                const u64 offset = at * pitch;
                Own::store(p.dx.address + offset, lane, dx);
                Own::store(p.dz.address + offset, lane, dz);
            } else if (there) {
                const RowIndex index = row_index(p, at);
                Own::store(row_of<2>(p.dx, index), lane, dx);
                Own::store(row_of<2>(p.dz, index), lane, dz);
            }
            const bool last = i + 1 == count;
            if (p.dw == nullptr || (!last && (i + 1) % leaf_rows != 0)) continue;
            u32 level = 0;
            for (u32 rest = i / leaf_rows; rest != 0 && (last || (rest & 1)); rest >>= 1, ++level) {
                if (!(rest & 1)) continue;
#pragma unroll
                for (u32 q = 0; q < Quads; ++q) sums[q] = tree[(level * Quads + q) * Threads] + sums[q];
            }
            if (last) continue;
#pragma unroll
            for (u32 q = 0; q < Quads; ++q) {
                tree[(level * Quads + q) * Threads] = sums[q];
                sums[q] = Quad{};
            }
        }
        if (p.dw == nullptr) continue;
        // The groups' roots take the place of what waited at level 0, each where its own thread's was.
#pragma unroll
        for (u32 q = 0; q < Quads; ++q) tree[q * Threads] = sums[q];
        __syncthreads();
        for (u32 at = threadIdx.x; at < Quads * Group; at += Threads) {
            Quad roots[Rows];
#pragma unroll
            for (u32 g = 0; g < Rows; ++g) {
                roots[g] = reinterpret_cast<const Quad*>(dynamic_shared())[at / Group * Threads + g * Group + at % Group];
            }
            join_groups(roots);
            write_root(p, chunk, Own::column(at % Group, at / Group) / 4, roots[0]);
        }
        __syncthreads();
    }
    if (p.dw != nullptr) join_chunks<Threads>(p, reinterpret_cast<Quad*>(dynamic_shared()));
}

}  // namespace cake::silu_gate
