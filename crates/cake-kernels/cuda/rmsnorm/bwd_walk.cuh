// Backward, many rows for each CTA. What one CTA does:
//
//     for each of its chunks of rows (aligned runs of 8 rows times a power of two; Rows groups of Group threads share one):
//         for each Step rows of a group:
//             read x and dy; add dy * xhat to the leaf's sums; c = fold(g * xhat) / Width
//             write dx = rstd * fma(-xhat, c, g)
//             after 8 rows join the leaf's sums with what waits in the row tree
//         write the chunk's root to the workspace
//     wait for all CTAs; join the roots of all chunks for some columns, and write dw
//
// Departures from the obvious kernel, measured on an H200 with a cold L2 (H = 6144, T = 65536 unless said otherwise):
//  1. No ring of rows in shared memory. With asynchronous copies, two to four rows deep, or bulk copies, it took 8 to 25 %
//     longer: the more reads are under way, the slower memory becomes. Loads into registers, and L2 asked for the next Step
//     rows, are the best balance: one row further ahead costs 15 %, none 10 %.
//  2. Two or more CTAs on an SM cover each other's barriers; one of 512 threads took 4 to 20 % longer.
//  3. g stays in registers across the fold, xhat is computed again from x (`forget`).
//  4. Sums wait in shared memory, not in the workspace: with L2 as their place they cost 8 %.
//  5. rstd comes a leaf at a time, eight rows in as many lanes, a step ahead.
//
// Reads 4 bytes and writes 2 bytes an element (residual: 6 and 2), each once, and 8 / chunk for the roots.
// Order of sums: the canonical fold, the canonical tree.
#pragma once
#include "rmsnorm/gradient.cuh"

namespace cake::rmsnorm {

template <u32 Width, u32 Group, u32 Rows, u32 Step, bool Residual, class Weight>
__device__ __forceinline__ void bwd_walk(const BackwardParams& p) {
    constexpr u32 Threads = Group * Rows;
    constexpr u32 Units = Width / 8;
    constexpr u32 Slots = ceil_div(Units, Group);
    constexpr u32 Entries = Units * Rows < Slots * Threads ? Units * Rows : Slots * Threads;
    // Registers hold the weights, unless there are too many: then each row reads them from L1 again. (Two rows at a time fit
    // without spills by ptxas for sm_90 only with them, by all others only without.)
#if __CUDA_ARCH__ == 900
    constexpr bool hold_weights = sizeof(Weight) * Slots <= 6;
#else
    constexpr bool hold_weights = sizeof(Weight) * Slots * Step <= 6;
#endif
    constexpr bool early_dh = hold_weights && Step == 1;
    // Registers hold a leaf's sums, unless there are too many: then shared memory does.
    constexpr bool shared_sums = Slots > 3;
    static_assert(Width % 8 == 0 && (Group & (Group - 1)) == 0 && Group >= 8 && leaf_rows % Step == 0);
    static_assert(Rows == 1 || (Group <= 32 && Units % Group == 0), "groups of several warps would need barriers of their own");
    __shared__ FoldScratch<Group, Rows> scratch[2][Step];
    // [2][Entries] sums, if they are here, then the levels of the row tree.
    Quad* const shared = reinterpret_cast<Quad*>(dynamic_shared());
    Quad* const tree = shared + (shared_sums ? 2 * Entries : 0);

    const u32 lane = threadIdx.x % Group;
    const auto in_row = [&](u32 s) { return Units % Group == 0 || lane + s * Group < Units; };
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
    WeightUnit<Weight> weights[hold_weights ? Slots : 1];
    const auto weight_unit = [&](u32 s) { return min(lane + s * Group, Units - 1); };
#pragma unroll
    for (u32 s = 0; hold_weights && s < Slots; ++s) weights[hold_weights ? s : 0].load(p.weight, weight_unit(s));
    u32 parity = 0;
    if (p.dw != nullptr) clear_roots<Threads>(p);

    for (u32 chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
        // Groups that share a warp walk in step, as far as the first of them, which has the most rows.
        constexpr u32 in_step = Group < 32 ? 32 / Group : 1;
        const u32 first = chunk * p.chunk + threadIdx.x / Group * share;
        const u32 leader = first - threadIdx.x / Group % in_step * share;
        const u32 count = leader >= p.rows ? 0 : min(share, p.rows - leader);
        const u32 own = Group >= 32 ? count : first >= p.rows ? 0 : min(share, p.rows - first);
        const auto ask = [&](u32 i) {
            if (i < own && lane == 0) {
                const RowIndex index = row_index(p, first + i);
                fetch_ahead(row_of<2>(p.x, index), 2 * Width);
                fetch_ahead(row_of<2>(p.dy, index), 2 * Width);
                if constexpr (Residual) fetch_ahead(row_of<2>(p.dh, index), 2 * Width);
            }
        };
        for (u32 i = Step; i < p.ahead; ++i) ask(i);
        // rstd of a leaf's rows, in as many lanes; the next leaf's are on the way a step before it.
        const auto leaf_rstd = [&](u32 i) {
            i += lane % leaf_rows;
            if (i >= own) return 0.0f;
            return readable(reinterpret_cast<const float*>(row_of<4>(p.rstd, row_index(p, first + i))));
        };
        float rstds = 0.0f, next_rstds = leaf_rstd(0);
        Quad sums[2 * Slots] = {};
        const auto sum_of = [&](u32 q) -> Quad& {
            return shared_sums ? shared[q % 2 * Entries + q / 2 * Threads + threadIdx.x] : sums[q];
        };
        const auto clear = [&] {
#pragma unroll
            for (u32 q = 0; q < 2 * Slots; ++q) {
                if (!shared_sums || in_row(q / 2)) sum_of(q) = Quad{};
            }
        };
        if constexpr (shared_sums) clear();
        for (u32 i = 0; i < count; i += Step) {
            Unit x[Step][Slots], dy[Step][Slots];
#pragma unroll
            for (u32 r = 0; r < Step; ++r) {
                const RowIndex index = row_index(p, first + i + r);
                const char* const x_row = row_of<2>(p.x, index) + 16 * lane;
                const char* const dy_row = row_of<2>(p.dy, index) + 16 * lane;
#pragma unroll
                for (u32 s = 0; s < Slots; ++s) {
                    x[r][s] = dy[r][s] = Unit{};
                    if (i + r < own && in_row(s)) {
                        x[r][s] = load_unit(x_row + 16 * s * Group);
                        dy[r][s] = load_unit(dy_row + 16 * s * Group);
                    }
                }
            }
            if (p.ahead != 0) {
#pragma unroll
                for (u32 r = 0; r < Step; ++r) ask(i + p.ahead + r);
            }
            if (i % leaf_rows == 0) rstds = next_rstds;
            if (i % leaf_rows == leaf_rows - Step && i + Step < count) next_rstds = leaf_rstd(i + Step);
            float rstd[Step], folded[Step], g[Step][Slots][8];
#pragma unroll
            for (u32 r = 0; r < Step; ++r) rstd[r] = __shfl_sync(0xffffffffu, rstds, (i + r) % leaf_rows, leaf_rows);
#pragma unroll
            for (u32 r = 0; r < Step; ++r) {
                float part[Slots];
#pragma unroll
                for (u32 s = 0; s < Slots; ++s) {
                    if constexpr (!hold_weights) weights[0].load_late(p.weight, weight_unit(s));
                    const WeightUnit<Weight>& w = weights[hold_weights ? s : 0];
                    float xhat[8];
                    Quad leaf[2] = {};
                    if (!shared_sums || in_row(s)) leaf[0] = sum_of(2 * s), leaf[1] = sum_of(2 * s + 1);
#pragma unroll
                    for (int e = 0; e < 8; ++e) {
                        const float dy_e = element(dy[r][s], e);
                        xhat[e] = __fmul_rn(element(x[r][s], e), rstd[r]);
                        g[r][s][e] = __fmul_rn(dy_e, __fadd_rn(w.element(e), p.offset));
                        float& sum = leaf[e / 4].of[e % 4];
                        sum = __fmaf_rn(dy_e, xhat[e], sum);
                    }
                    if (!shared_sums || in_row(s)) sum_of(2 * s) = leaf[0], sum_of(2 * s + 1) = leaf[1];
                    // Beyond the row an infinite weight times 0 would be a NaN.
                    part[s] = in_row(s) ? unit_products(g[r][s], xhat) : 0.0f;
                }
                folded[r] = fold_registers(part);
            }
            if (p.dx.address != nullptr) {
                // dh comes late: it would take registers from x and dy.
                Unit dh[Step][Residual ? Slots : 1];
                const auto load_dh = [&](u32 r, u32 s) {
                    const char* const dh_row = row_of<2>(p.dh, row_index(p, first + i + r)) + 16 * lane;
                    return i + r < own && in_row(s) ? load_unit(dh_row + 16 * s * Group) : Unit{};
                };
                if constexpr (Residual && early_dh) {
#pragma unroll
                    for (u32 r = 0; r < Step; ++r) {
#pragma unroll
                        for (u32 s = 0; s < Slots; ++s) dh[r][s] = load_dh(r, s);
                    }
                }
                fold_groups<Group, Rows>(folded, scratch[parity]);
                parity ^= 1;
#pragma unroll
                for (u32 r = 0; r < Step; ++r) {
                    const float c = mean_of(__fadd_rn(folded[r], 0.0f), Width);
                    char* const dx_row = row_of<2>(p.dx, row_index(p, first + i + r)) + 16 * lane;
#pragma unroll
                    for (u32 s = 0; s < Slots; ++s) {
                        if constexpr (Residual && !early_dh) dh[r][s] = load_dh(r, s);
                        forget(x[r][s]);
                        const Unit dx = input_gradient<Residual>(x[r][s], g[r][s], rstd[r], c, dh[r][Residual ? s : 0]);
                        if (i + r < own && in_row(s)) store_unit(dx_row + 16 * s * Group, dx);
                    }
                }
            }
            if (p.dw == nullptr) continue;
            const bool last = i + Step >= count;
            if (!last && (i + Step) % leaf_rows != 0) continue;
#pragma unroll
            for (u32 q = 0; shared_sums && q < 2 * Slots; ++q) {
                if (in_row(q / 2)) sums[q] = sum_of(q);
            }
            levels().join(i / leaf_rows, last, sums);
            if (!last) {
                clear();
            } else if constexpr (Rows == 1) {
#pragma unroll
                for (u32 q = 0; q < 2 * Slots; ++q) {
                    if (in_row(q / 2)) write_root(p, chunk, 2 * (lane + q / 2 * Group) + q % 2, sums[q]);
                }
            }
        }
        if constexpr (Rows > 1) {
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
    }
    if (p.dw != nullptr) join_chunks<Threads>(p, shared);
}

}  // namespace cake::rmsnorm
