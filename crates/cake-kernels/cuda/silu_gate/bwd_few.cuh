// Backward, few rows: all of them at the same time. What one CTA does, for each of its chunks of Rows rows (mostly one), Group
// threads each:
//
//     read the row of x, dy and z; rstd = 1 / sqrt(fold(x * x) / Width + eps), unless it is given
//     hand a = dy * gate(z) and xhat in to shared memory; c = fold(a * w * xhat) / Width; write dx and dz
//     add a * xhat over the rows of each leaf; join the leaves; write the chunk's root to the workspace
//     wait for all CTAs; join the roots of all chunks for some columns, and write dw
//
// A group that walks through a leaf (bwd_walk.cuh) takes eight times as long for its rows; with rows enough that pays, since it
// needs neither shared memory nor a barrier for their terms.
//
// Reads 6 bytes and writes 4 bytes an element, each once, and 4 / Rows for the roots.
// Order of sums: the canonical fold, the canonical tree.
#pragma once
#include "silu_gate/gradient.cuh"
#include "silu_gate/part.cuh"

namespace cake::silu_gate {

template <u32 Width, u32 Group, u32 Rows, Form F, class Weight>
__device__ __forceinline__ void bwd_few(const BackwardParams& p) {
    using Own = Part<Width, Group>;
    using Fold = FoldSeveral<Group, 1, Own::halves>;
    constexpr u32 Threads = Group * Rows;
    constexpr int Elements = 2 * Own::pairs;
    constexpr u32 Quads = Width / 4, Leaves = Rows / leaf_rows;
    static_assert(Group <= 32 && (Group & (Group - 1)) == 0 && Rows % leaf_rows == 0 && Leaves * Quads <= Threads);
    // [a, xhat][quads of a thread][Threads]
    constexpr u32 plane = Elements / 4 * Threads;
    Quad* const terms = reinterpret_cast<Quad*>(dynamic_shared());
    const u32 lane = threadIdx.x % Group;
    if (p.dw != nullptr) clear_roots<Threads>(p);

    for (u32 chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
        const u32 row = chunk * Rows + threadIdx.x / Group;
        const bool there = row < p.rows;
        const u32 own = min(row, p.rows - 1);
        Gradient<F, Own::pairs> unit;
        u32 z[Own::pairs];
        Own::load(row_at<2>(p, p.x, own), lane, unit.x);
        Own::load(row_at<2>(p, p.z, own), lane, z);
        Own::load(row_at<2>(p, p.dy, own), lane, unit.dy);
        float w[Elements], rstd;
#pragma unroll
        for (int e = 0; e < Elements; ++e) w[e] = weight(p.weight, p.weight_fp32, Own::column(lane, e / 4) + e % 4);
        if (p.rstd.address != nullptr) rstd = readable(reinterpret_cast<const float*>(row_at<4>(p, p.rstd, own)));
        unit.gates.set(z);
        if (p.rstd.address == nullptr) {
            float normed[Elements];
#pragma unroll
            for (int e = 0; e < Elements; ++e) normed[e] = unit.normed(e);
            float squares[1] = {fold_products(normed, normed)};
            rstd = rstd_of(Fold::fold(squares), Width, p.eps);
        }
        float g[Elements], xhat[Elements];
#pragma unroll
        for (int e = 0; e < Elements; ++e) {
            xhat[e] = __fmul_rn(unit.normed(e), rstd);
            g[e] = __fmul_rn(unit.upstream(e), w[e]);
        }
#pragma unroll
        for (u32 q = 0; q < Elements / 4; ++q) {
            Quad* const at = terms + q * Threads + threadIdx.x;
            // A row that is not there adds nothing.
            at[0] = there ? Quad{{unit.upstream(4 * q), unit.upstream(4 * q + 1), unit.upstream(4 * q + 2), unit.upstream(4 * q + 3)}} : Quad{};
            at[plane] = there ? Quad{{xhat[4 * q], xhat[4 * q + 1], xhat[4 * q + 2], xhat[4 * q + 3]}} : Quad{};
        }
        float products[1] = {fold_products(g, xhat)};
        const float c = mean_of(__fadd_rn(Fold::fold(products), 0.0f), Width);
        u32 dx[Own::pairs], dz[Own::pairs];
        unit.outputs(rstd, c, w, dx, dz);
        if (there) {
            Own::store(row_at<2>(p, p.dx, row), lane, dx);
            Own::store(row_at<2>(p, p.dz, row), lane, dz);
        }
        if (p.dw == nullptr) continue;
        __syncthreads();
        // A thread for each leaf and each quad of columns, as it is held by a lane.
        const u32 leaf = threadIdx.x / Quads, quad = threadIdx.x % Quads;
        Quad sum = {};
        if (leaf < Leaves) {
            const Quad* const at = terms + quad / Group * Threads + leaf * leaf_rows * Group + quad % Group;
#pragma unroll
            for (u32 r = 0; r < leaf_rows; ++r) {
                const Quad upstream = at[r * Group], normalised = at[plane + r * Group];
#pragma unroll
                for (u32 e = 0; e < 4; ++e) sum.of[e] = __fmaf_rn(upstream.of[e], normalised.of[e], sum.of[e]);
            }
        }
        __syncthreads();
        if (leaf < Leaves) terms[threadIdx.x] = sum;
        __syncthreads();
        if (leaf == 0) {
            Quad sums[Leaves];
#pragma unroll
            for (u32 l = 0; l < Leaves; ++l) sums[l] = terms[l * Quads + quad];
            join_groups(sums);
            write_root(p, chunk, Own::column(quad % Group, quad / Group) / 4, sums[0]);
        }
        __syncthreads();
    }
    if (p.dw != nullptr) join_chunks<Threads>(p, terms);
}

}  // namespace cake::silu_gate
