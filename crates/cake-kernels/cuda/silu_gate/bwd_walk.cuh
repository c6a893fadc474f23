// Backward, many rows for each CTA. What one CTA does:
//
//     for each of its chunks of rows (aligned runs of 8 rows times a power of two; Rows groups of Group threads share one):
//         for each row of a group:
//             read x, dy and z; rstd = 1 / sqrt(fold(x * x) / Width + eps), unless it is given
//             add dy * gate * xhat to the leaf's sums; c = fold(g * xhat) / Width; write dx and dz
//             after 8 rows join the leaf's sums with what waits in the row tree
//         join the groups' roots; write the chunk's root to the workspace
//     wait for all CTAs; join the roots of all chunks for some columns, and write dw
//
// Departures from the obvious kernel:
//  1. The next row is read into registers while this one is worked on: a row is short, and its two folds are long waits.
//
// Reads 6 bytes and writes 4 bytes an element, each once, and 8 / chunk for the roots.
// Order of sums: the canonical fold, the canonical tree.
#pragma once
#include "silu_gate/gradient.cuh"

namespace cake::silu_gate {

template <u32 Width, u32 Group, u32 Rows, Form F, class Weight>
__device__ __forceinline__ void bwd_walk(const BackwardParams& p) {
    constexpr u32 Threads = Group * Rows;
    constexpr u32 Slots = Width / 8 / Group;
    constexpr u32 Entries = Slots * Threads;
    static_assert(Width % (8 * Group) == 0 && (Group & (Group - 1)) == 0 && Group >= 8 && Group <= 32);
    Quad* const tree = reinterpret_cast<Quad*>(dynamic_shared());
    const u32 lane = threadIdx.x % Group;
    const u32 share = p.chunk / Rows;  // rows of a chunk for a group
    // Made anew where it is used, to spare registers.
    const auto levels = [&] {
        const u32 count = 31 - __clz(share / leaf_rows);
        const u32 upper = count > p.shared_levels ? count - p.shared_levels : 0;
        return TreeLevels<Slots, Threads, Entries>{
            tree + threadIdx.x,
            behind_roots(p) + 16 * (u64(blockIdx.x) * upper * 2 * Entries + threadIdx.x),
            p.shared_levels};
    };
    WeightUnit w[Slots];
#pragma unroll
    for (u32 s = 0; s < Slots; ++s) w[s].load(p.weight, p.weight_fp32, lane + s * Group);
    if (p.dw != nullptr) clear_roots<Threads>(p);

    for (u32 chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
        // Groups that share a warp walk in step, as far as the first of them, which has the most rows.
        constexpr u32 in_step = 32 / Group;
        const u32 first = chunk * p.chunk + threadIdx.x / Group * share;
        const u32 leader = first - threadIdx.x / Group % in_step * share;
        const u32 count = leader >= p.rows ? 0 : min(share, p.rows - leader);
        const u32 own = first >= p.rows ? 0 : min(share, p.rows - first);
        const auto ask = [&](u32 i) {
            if (i < own && lane == 0) {
                const RowIndex index = row_index(p, first + i);
                fetch_ahead(row_of<2>(p.x, index), 2 * Width);
                fetch_ahead(row_of<2>(p.dy, index), 2 * Width);
                fetch_ahead(row_of<2>(p.z, index), 2 * Width);
            }
        };
        Unit x[Slots], dy[Slots], z[Slots];
        float rstd;
        const auto read = [&](u32 i) {
            const RowIndex index = row_index(p, first + i);
            const bool there = i < own;
            const u32 at = 16 * lane;
            const char* const x_row = row_of<2>(p.x, index) + at;
            const char* const dy_row = row_of<2>(p.dy, index) + at;
            const char* const z_row = row_of<2>(p.z, index) + at;
#pragma unroll
            for (u32 s = 0; s < Slots; ++s) {
                x[s] = there ? load_unit(x_row + 16 * Group * s) : Unit{};
                dy[s] = there ? load_unit(dy_row + 16 * Group * s) : Unit{};
                z[s] = there ? load_unit(z_row + 16 * Group * s) : Unit{};
            }
            if (p.rstd.address != nullptr) rstd = there ? readable(reinterpret_cast<const float*>(row_of<4>(p.rstd, index))) : 0.0f;
        };
        read(0);
        Quad sums[2 * Slots] = {};
        for (u32 i = 0; i < count; ++i) {
            if (p.ahead != 0) ask(i + p.ahead);
            float part[Slots], row_rstd = rstd;
            GradientUnit<F> unit[Slots];
#pragma unroll
            for (u32 s = 0; s < Slots; ++s) unit[s].set(x[s], dy[s], z[s]);
            read(i + 1);
            if (p.rstd.address == nullptr) {
#pragma unroll
                for (u32 s = 0; s < Slots; ++s) part[s] = unit[s].squares();
                row_rstd = rstd_of(fold_lanes<Group>(fold_registers(part)), Width, p.eps);
                if (i >= own) row_rstd = 0.0f;  // its zeros times an infinite one would be NaNs
            }
#pragma unroll
            for (u32 s = 0; s < Slots; ++s) {
                Quad leaf[2] = {sums[2 * s], sums[2 * s + 1]};
                part[s] = unit[s].products(row_rstd, w[s], leaf);
                sums[2 * s] = leaf[0], sums[2 * s + 1] = leaf[1];
            }
            const float c = mean_of(__fadd_rn(fold_lanes<Group>(fold_registers(part)), 0.0f), Width);
            const RowIndex index = row_index(p, first + i);
#pragma unroll
            for (u32 s = 0; s < Slots; ++s) {
                Unit dx, dz;
                unit[s].outputs(row_rstd, c, w[s], dx, dz);
                if (i < own) {
                    store_unit(row_of<2>(p.dx, index) + 16 * (lane + Group * s), dx);
                    store_unit(row_of<2>(p.dz, index) + 16 * (lane + Group * s), dz);
                }
            }
            const bool last = i + 1 == count;
            if (p.dw == nullptr || (!last && (i + 1) % leaf_rows != 0)) continue;
            levels().join(i / leaf_rows, last, sums);
            if (last) continue;
#pragma unroll
            for (u32 q = 0; q < 2 * Slots; ++q) sums[q] = Quad{};
        }
        if (p.dw == nullptr) continue;
        // The groups' roots take the place of what waited at level 0, each where its own thread's was.
#pragma unroll
        for (u32 q = 0; q < 2 * Slots; ++q) tree[q % 2 * Entries + q / 2 * Threads + threadIdx.x] = sums[q];
        __syncthreads();
        for (u32 quad = threadIdx.x; quad < Width / 4; quad += Threads) {
            const u32 unit = quad / 2;
            const Quad* const at = tree + quad % 2 * Entries + unit / Group * Threads + unit % Group;
            Quad own_roots[Rows];
#pragma unroll
            for (u32 g = 0; g < Rows; ++g) own_roots[g] = at[g * Group];
            join_groups(own_roots);
            write_root(p, chunk, quad, own_roots[0]);
        }
        __syncthreads();
    }
    if (p.dw != nullptr) join_chunks<Threads>(p, tree);
}

}  // namespace cake::silu_gate
