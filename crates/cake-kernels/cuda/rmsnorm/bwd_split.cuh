// Backward for few rows, and for dx alone: nobody waits for another CTA. The first CTAs take columns, the others rows:
//
//     columns: for a few units of 8 columns, each thread some leaves (8 rows) of a unit: add dy * xhat over the rows; join
//              the leaves by the row tree; write dw
//     rows:    for each of Rows rows, Group threads each: c = fold(g * xhat) / Width; write dx = rstd * fma(-xhat, c, g)
//
// Reads x and dy twice, the second time from L2, which holds them while there are few rows. Without dw there are no
// columns to take, and without dx no rows.
// Order of sums: the canonical fold, the canonical tree.
#pragma once
#include "rmsnorm/gradient.cuh"

namespace cake::rmsnorm {

// dw of p.columns units, the first being `first`. rstd must be given.
template <u32 Width, u32 Threads>
__device__ __forceinline__ void split_columns(const BackwardParams& p, u32 first) {
    Quad* const shared = reinterpret_cast<Quad*>(dynamic_shared());
    const u32 unit = first + threadIdx.x % p.columns;
    const u32 lanes = Threads / p.columns;
    const u32 lane = threadIdx.x / p.columns;
    u32 each = 1;  // adjacent leaves for a thread
    while (u64(each) * lanes * leaf_rows < p.rows) each *= 2;
    const TreeLevels<1, Threads, Threads> levels = {shared + threadIdx.x, nullptr, 32};
    Quad sum[2] = {};
    for (u32 leaf = 0; leaf < each; ++leaf) {
        Unit x[leaf_rows], dy[leaf_rows];
        float rstd[leaf_rows];
#pragma unroll
        for (u32 i = 0; i < leaf_rows; ++i) {
            const u32 row = (lane * each + leaf) * leaf_rows + i;
            x[i] = dy[i] = Unit{};
            rstd[i] = 0.0f;
            if (row < p.rows && unit < Width / 8) {
                const RowIndex index = row_index(p, row);
                x[i] = load_unit(row_of<2>(p.x, index) + 16 * unit);
                dy[i] = load_unit(row_of<2>(p.dy, index) + 16 * unit);
                rstd[i] = readable(reinterpret_cast<const float*>(row_of<4>(p.rstd, index)));
            }
        }
        sum[0] = sum[1] = Quad{};
#pragma unroll
        for (u32 i = 0; i < leaf_rows; ++i) {
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                float& chain = sum[e / 4].of[e % 4];
                chain = __fmaf_rn(element(dy[i], e), __fmul_rn(element(x[i], e), rstd[i]), chain);
            }
        }
        levels.join(leaf, leaf + 1 == each, sum);
    }
    __syncthreads();  // what waited in shared memory is not needed any more
    join_lanes<Threads>(sum, shared, lanes, p.columns);
    if (lane == 0 && unit < Width / 8) {
#pragma unroll
        for (u32 q = 0; q < 2; ++q) write_weight_gradient(p, 2 * unit + q, sum[q] + Quad{});
    }
}

template <u32 Width, u32 Group, u32 Rows, bool Residual, class Weight>
__device__ __forceinline__ void bwd_split(const BackwardParams& p) {
    constexpr u32 Units = Width / 8;
    constexpr u32 Slots = ceil_div(Units, Group);
    static_assert(Width % 8 == 0 && (Group & (Group - 1)) == 0);
    __shared__ FoldScratch<Group, Rows> scratch[1];
    const u32 tasks = p.dw == nullptr ? 0 : ceil_div(Units, p.columns);
    if (blockIdx.x < tasks) return split_columns<Width, Group * Rows>(p, p.columns * blockIdx.x);

    const u32 lane = threadIdx.x % Group;
    const u32 row = (blockIdx.x - tasks) * Rows + threadIdx.x / Group;
    const bool live = row < p.rows;
    const RowIndex index = row_index(p, row);
    const char* const x_row = row_of<2>(p.x, index);
    const char* const dy_row = row_of<2>(p.dy, index);
    const char* const dh_row = row_of<2>(p.dh, index);
    Unit x[Slots], dy[Slots];
#pragma unroll
    for (u32 s = 0; s < Slots; ++s) {
        const u32 unit = lane + s * Group;
        x[s] = dy[s] = Unit{};
        if (live && (Units % Group == 0 || unit < Units)) {
            x[s] = load_unit(x_row + 16 * unit);
            dy[s] = load_unit(dy_row + 16 * unit);
        }
    }
    float rstd = 0.0f;
    if (live) rstd = readable(reinterpret_cast<const float*>(row_of<4>(p.rstd, index)));
    WeightUnit<Weight> w[Slots];
#pragma unroll
    for (u32 s = 0; s < Slots; ++s) w[s].load(p.weight, min(lane + s * Group, Units - 1));
    if (p.ahead != 0 && lane == 0 && row + p.ahead < p.rows) {
        fetch_ahead(x_row + 2 * p.ahead * p.x.pitch, 2 * Width);
        fetch_ahead(dy_row + 2 * p.ahead * p.dy.pitch, 2 * Width);
        if constexpr (Residual) fetch_ahead(dh_row + 2 * p.ahead * p.dh.pitch, 2 * Width);
    }
    float g[Slots][8], products[Slots];
#pragma unroll
    for (u32 s = 0; s < Slots; ++s) {
        float xhat[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            xhat[e] = __fmul_rn(element(x[s], e), rstd);
            g[s][e] = __fmul_rn(element(dy[s], e), __fadd_rn(w[s].element(e), p.offset));
        }
        // Beyond the row an infinite weight times 0 would be a NaN.
        products[s] = Units % Group == 0 || lane + s * Group < Units ? unit_products(g[s], xhat) : 0.0f;
    }
    // Not earlier: it would take registers from x and dy.
    Unit dh[Residual ? Slots : 1] = {};
    if constexpr (Residual) {
#pragma unroll
        for (u32 s = 0; s < Slots; ++s) {
            const u32 unit = lane + s * Group;
            if (live && (Units % Group == 0 || unit < Units)) dh[s] = load_unit(dh_row + 16 * unit);
        }
    }
    const float whole = fold_group<Group, Rows>(fold_registers(products), scratch);
    const float c = mean_of(__fadd_rn(whole, 0.0f), Width);
    char* const dx_row = row_of<2>(p.dx, index);
#pragma unroll
    for (u32 s = 0; s < Slots; ++s) {
        const u32 unit = lane + s * Group;
        forget(x[s]);
        if (live && (Units % Group == 0 || unit < Units)) {
            store_unit(dx_row + 16 * unit, input_gradient<Residual>(x[s], g[s], rstd, c, dh[Residual ? s : 0]));
        }
    }
}

}  // namespace cake::rmsnorm
