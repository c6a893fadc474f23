// Forward, one group of threads for each row, the row kept in registers. What one CTA does:
//
//     for each of its Rows rows, Group threads each:
//         read the row (and the residual; write h)
//         fold the sum of squares; rstd = 1 / sqrt(squares / Width + eps); write rstd
//         write y = x * rstd * w
//
// Reads 2 bytes and writes 2 bytes an element (residual: 4 and 4), each once. The weight comes from L1 or L2.
//
// Departures from the obvious kernel, measured on an H200 with a cold L2:
//  1. No loop over rows. Persistent CTAs, with the next row in registers or in a ring of bulk copies, took 5 to 9 % longer
//     at H = 2048 and 6144, T = 65536: a CTA for each row mixes reads and writes better.
//  2. From H = 4096 on and with many rows, each row asks L2 for the row `ahead` of it, about one row for each SM. Memory
//     then works while CTAs come and go: 1.5 to 2.5 % at T = 65536, which brings the kernel to the speed of a copy.
//  3. The rstd of a CTA's rows leave together, by neighbouring threads after the last y: one by one, by the rows' own
//     threads, they cost 3 % at H = 512, T = 65536.
//  4. The packed row is kept, not the floats unpacked from it (`forget`): fewer registers, more CTAs on an SM.
//
// Order of sums: the canonical fold.
#pragma once
#include "rmsnorm/args.cuh"

namespace cake::rmsnorm {

template <u32 Width, u32 Group, u32 Rows, bool Residual, class Weight>
__device__ __forceinline__ void fwd_row(const ForwardParams& p) {
    constexpr u32 Units = Width / 8;
    constexpr u32 Slots = ceil_div(Units, Group);
    static_assert(Width % 8 == 0 && (Group & (Group - 1)) == 0);
    // Below, scratch->whole takes the rstd of several rows; a fold by one warp may still be reading it.
    static_assert(Rows == 1 || Group < 256);
    __shared__ FoldScratch<Group, Rows> scratch[1];

    const u32 lane = threadIdx.x % Group;
    const u32 group = threadIdx.x / Group;
    const u32 row = blockIdx.x * Rows + group;
    const bool live = row < p.rows;  // threads beyond the last row only keep the others company
    const RowIndex index = row_index(p, row);

    Unit x[Slots];
    const char* x_row = row_of<2>(p.x, index);
    const char* residual_row = row_of<2>(p.residual, index);
    Unit residual[Residual ? Slots : 1];
#pragma unroll
    for (u32 s = 0; s < Slots; ++s) {
        const u32 unit = lane + s * Group;
        x[s] = Unit{};
        if (live && (Units % Group == 0 || unit < Units)) {
            x[s] = load_unit(x_row + 16 * unit);
            if constexpr (Residual) residual[s] = load_unit(residual_row + 16 * unit);
        }
    }
    WeightUnit<Weight> w[Slots];
#pragma unroll
    for (u32 s = 0; s < Slots; ++s) w[s].load(p.weight, min(lane + s * Group, Units - 1));
    if (p.ahead != 0 && lane == 0 && row + p.ahead < p.rows) {
        fetch_ahead(x_row + 2 * p.ahead * p.x.pitch, 2 * Width);
        if constexpr (Residual) fetch_ahead(residual_row + 2 * p.ahead * p.residual.pitch, 2 * Width);
    }
    if constexpr (Residual) {
        char* h_row = row_of<2>(p.h, index);
#pragma unroll
        for (u32 s = 0; s < Slots; ++s) {
            const u32 unit = lane + s * Group;
            if (live && (Units % Group == 0 || unit < Units)) {
                x[s] = add(x[s], residual[s]);
                store_unit(h_row + 16 * unit, x[s]);
            }
        }
    }

    float squares[Slots];
#pragma unroll
    for (u32 s = 0; s < Slots; ++s) squares[s] = unit_squares(x[s]);
    const float rstd = rstd_of(fold_group<Group, Rows>(fold_registers(squares), scratch), Width, p.eps);

    char* y_row = row_of<2>(p.y, index);
#pragma unroll
    for (u32 s = 0; s < Slots; ++s) {
        const u32 unit = lane + s * Group;
        forget(x[s]);
        if (live && (Units % Group == 0 || unit < Units)) {
            store_unit(y_row + 16 * unit, scale(x[s], rstd, w[s], p.offset));
        }
    }
    if (p.rstd.address == nullptr) return;
    if constexpr (Rows == 1) {
        if (lane == 0) writable(reinterpret_cast<float*>(row_of<4>(p.rstd, index))) = rstd;
    } else {
        if (lane == 0) scratch->whole[group] = rstd;
        __syncthreads();
        const u32 own = blockIdx.x * Rows + threadIdx.x;
        if (threadIdx.x < Rows && own < p.rows) {
            writable(reinterpret_cast<float*>(row_of<4>(p.rstd, row_index(p, own)))) = scratch->whole[threadIdx.x];
        }
    }
}

}  // namespace cake::rmsnorm
