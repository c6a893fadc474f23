// Forward, one group of threads for each row, the row kept in registers. What one CTA does:
//
//     for each of its Rows rows, Group threads each:
//         read the row of x and of z
//         fold the sum of squares; rstd = 1 / sqrt(squares / Width + eps); write rstd
//         write y = x * rstd * w * gate(z)      (gate first: x * gate(z) takes the place of x)
//
// Reads 4 bytes and writes 2 bytes an element, each once. The weight comes from L1 or L2.
// Order of sums: the canonical fold.
#pragma once
#include "cake/sums.cuh"
#include "silu_gate/gate.cuh"

namespace cake::silu_gate {

template <u32 Width, u32 Group, u32 Rows, Form F, class Weight>
__device__ __forceinline__ void fwd_row(const ForwardParams& p) {
    constexpr u32 Slots = Width / 8 / Group;
    static_assert(Width % (8 * Group) == 0 && Group <= 32 && (Group & (Group - 1)) == 0);
    const u32 lane = threadIdx.x % Group;
    const u32 row = blockIdx.x * Rows + threadIdx.x / Group;
    const bool live = row < p.rows;  // threads beyond the last row only keep the others company
    const RowIndex index = row_index(p, row);
    const char* const x_row = row_of<2>(p.x, index) + 16 * lane;
    const char* const z_row = row_of<2>(p.z, index) + 16 * lane;

    Unit x[Slots] = {}, z[Slots] = {};
    if (live) {
#pragma unroll
        for (u32 s = 0; s < Slots; ++s) x[s] = load_unit(x_row + 16 * Group * s), z[s] = load_unit(z_row + 16 * Group * s);
    }
    if (p.ahead != 0 && lane == 0 && row + p.ahead < p.rows) {
        fetch_ahead(x_row + 2 * p.ahead * p.x.pitch, 2 * Width);
        fetch_ahead(z_row + 2 * p.ahead * p.z.pitch, 2 * Width);
    }
    float factor[Slots][8];  // of xhat: what is normalised if the gate is first, else w * gate is multiplied in two steps
    float squares[Slots];
#pragma unroll
    for (u32 s = 0; s < Slots; ++s) {
        Gates<F> gates;
        gates.set(z[s]);
#pragma unroll
        for (int e = 0; e < 8; ++e) factor[s][e] = F.first ? __fmul_rn(element(x[s], e), gates.gate(e)) : gates.gate(e);
        squares[s] = F.first ? unit_products(factor[s], factor[s]) : unit_squares(x[s]);
    }
    const float rstd = rstd_of(fold_lanes<Group>(fold_registers(squares)), Width, p.eps);

    char* const y_row = row_of<2>(p.y, index) + 16 * lane;
#pragma unroll
    for (u32 s = 0; s < Slots; ++s) {
        WeightUnit w;
        w.load(p.weight, p.weight_fp32, lane + s * Group);
        forget(x[s]);
        float y[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            y[e] = F.first ? __fmul_rn(__fmul_rn(factor[s][e], rstd), w.of[e])
                           : __fmul_rn(__fmul_rn(__fmul_rn(element(x[s], e), rstd), w.of[e]), factor[s][e]);
        }
        if (live) store_unit(y_row + 16 * Group * s, round_unit(y));
    }
    if (p.rstd.address == nullptr) return;
    __shared__ float all[Rows];  // leave together, by neighbouring threads
    if (lane == 0) all[threadIdx.x / Group] = rstd;
    __syncthreads();
    const u32 own = blockIdx.x * Rows + threadIdx.x;
    if (threadIdx.x < Rows && own < p.rows) {
        writable(reinterpret_cast<float*>(row_of<4>(p.rstd, row_index(p, own)))) = all[threadIdx.x];
    }
}

}  // namespace cake::silu_gate
