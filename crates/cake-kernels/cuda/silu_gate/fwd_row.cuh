// Forward, one group of threads for each row, the row kept in registers. What one CTA does:
//
//     for each of its Rows rows, Group threads each:
//         read the row of x and of z
//         fold the sum of squares; rstd = 1 / sqrt(squares / Width + eps); write rstd
//         write y = x * rstd * w * gate(z)      (gate first: x * gate(z) takes the place of x)
//
// Departures from the obvious kernel, measured on an H200 with a cold L2 (T = 786432 rows of 128, 145 us):
//  1. Four threads for a row, where eight take 160 us: what has to be done once for each row and thread, the statistics and the
//     addresses, is shared by more elements. Instructions bound it: 35 for an element, where eight threads take 39.
//  2. The weights are unpacked once for all rows of a CTA, into shared memory.
//
// Reads 4 bytes and writes 2 bytes an element, each once. The weight comes from L1 or L2.
// Order of sums: the canonical fold.
#pragma once
#include "cake/sums.cuh"
#include "silu_gate/part.cuh"

namespace cake::silu_gate {

template <u32 Width, u32 Group, u32 Rows, Form F, class Weight>
__device__ __forceinline__ void fwd_row(const ForwardParams& p) {
    using Own = Part<Width, Group>;
    constexpr int Elements = 2 * Own::pairs;
    static_assert(Group <= 32 && (Group & (Group - 1)) == 0);
    alignas(16) __shared__ float weights[Width];
    const u32 lane = threadIdx.x % Group;
    const u32 row = blockIdx.x * Rows + threadIdx.x / Group;
    const u32 own = min(row, p.rows - 1);  // threads beyond the last row only keep the others company
    u64 x_at, z_at, y_at;                  // bytes behind the address
    if (p.levels == 1) {
        x_at = u64(own) * (2 * p.x.pitch), z_at = u64(own) * (2 * p.z.pitch), y_at = u64(own) * (2 * p.y.pitch);
    } else {
        const RowIndex index = row_index(p, own);
        x_at = row_of<2>(p.x, index) - p.x.address, z_at = row_of<2>(p.z, index) - p.z.address, y_at = row_of<2>(p.y, index) - p.y.address;
    }
    u32 x[Own::pairs], z[Own::pairs];
    Own::load(p.x.address + x_at, lane, x);
    Own::load(p.z.address + z_at, lane, z);
    for (u32 i = threadIdx.x; i < Width; i += Group * Rows) weights[i] = weight(p.weight, p.weight_fp32, i);
    __syncthreads();
    // Some elements at a time, and x unpacked anew, to spare registers.
    constexpr int Pairs = Own::halves ? 2 : 4, Slots = Own::pairs / Pairs;
    float factor[Slots][2 * Pairs];  // the gate, or with the gate first what is normalised
    float part[Slots];
#pragma unroll
    for (int s = 0; s < Slots; ++s) {
        Gates<F, Pairs> gates;
        gates.set(reinterpret_cast<const u32(&)[Pairs]>(z[Pairs * s]));
        float normed[2 * Pairs];
#pragma unroll
        for (int e = 0; e < 2 * Pairs; ++e) {
            const float x_e = element(x, 2 * Pairs * s + e);
            factor[s][e] = F.first ? __fmul_rn(x_e, gates.gate(e)) : gates.gate(e);
            normed[e] = F.first ? factor[s][e] : x_e;
        }
        part[s] = fold_products(normed, normed);
    }
    float squares[1] = {fold_registers(part)};
    const float rstd = rstd_of(FoldSeveral<Group, 1, Own::halves>::fold(squares), Width, p.eps);

    u32 y[Own::pairs];
#pragma unroll
    for (int s = 0; s < Slots; ++s) {
        float out[2 * Pairs];
#pragma unroll
        for (int i = 0; i < Pairs; ++i) forget(x[Pairs * s + i]);
#pragma unroll
        for (int e = 0; e < 2 * Pairs; ++e) {
            const int at = 2 * Pairs * s + e;
            const float xhat = __fmul_rn(F.first ? factor[s][e] : element(x, at), rstd);
            out[e] = __fmul_rn(xhat, weights[Own::column(lane, at / 4) + at % 4]);
            if constexpr (!F.first) out[e] = __fmul_rn(out[e], factor[s][e]);
        }
        round_pairs(out, reinterpret_cast<u32(&)[Pairs]>(y[Pairs * s]));
    }
    if (row < p.rows) Own::store(p.y.address + y_at, lane, y);
    if (p.rstd.address == nullptr) return;
    __shared__ float all[Rows];  // leave together, by neighbouring threads
    if (lane == 0) all[threadIdx.x / Group] = rstd;
    __syncthreads();
    const u32 first = blockIdx.x * Rows + threadIdx.x;
    if (threadIdx.x < Rows && first < p.rows) {
        writable(reinterpret_cast<float*>(row_at<4>(p, p.rstd, first))) = all[threadIdx.x];
    }
}

}  // namespace cake::silu_gate
