// Scalar steps of the RMSNorm backward, and what its schedules share.
#pragma once
#include "cake/grid_barrier.cuh"
#include "cake/row_tree.cuh"
#include "rmsnorm/args.cuh"

namespace cake::rmsnorm {

// dx = bf16(rstd * fma(-xhat, c, g) [+ dh]), with xhat = x * rstd.
template <bool Residual>
__device__ __forceinline__ Unit input_gradient(const Unit& x, const float (&g)[8], float rstd, float c, const Unit& dh) {
    float dx[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        dx[e] = __fmul_rn(rstd, __fmaf_rn(-__fmul_rn(element(x, e), rstd), c, g[e]));
        if constexpr (Residual) dx[e] = __fadd_rn(dx[e], element(dh, e));
    }
    return {{round_pair(dx[0], dx[1]), round_pair(dx[2], dx[3]), round_pair(dx[4], dx[5]), round_pair(dx[6], dx[7])}};
}

// The chunks' roots in the workspace, and what follows them.
__device__ __forceinline__ char* partials(const BackwardParams& p) { return p.workspace + workspace_header; }

// Writes dw for four columns, if they exist: the root of the row tree, added to what was there if that is asked for.
__device__ __forceinline__ void write_weight_gradient(const BackwardParams& p, u32 quad, const Quad& root) {
#pragma unroll
    for (u32 e = 0; e < 4; ++e) {
        const u32 column = 4 * quad + e;
        if (column >= p.width) break;
        const i64 at = column * p.column[backward::DW];
        float sum = root.of[e];
        if (p.dw_fp32) {
            float& dw = writable(reinterpret_cast<float*>(p.dw) + at);
            dw = p.accumulate ? __fadd_rn(dw, sum) : sum;
        } else {
            u16& dw = writable(reinterpret_cast<u16*>(p.dw) + at);
            if (p.accumulate) sum = __fadd_rn(low_float(dw), sum);
            dw = u16(round_pair(sum, 0.0f));
        }
    }
}

// Waits until all CTAs have written their chunks' roots, joins these and writes dw.
template <u32 Threads>
__device__ __forceinline__ void join_chunks(const BackwardParams& p, Quad* shared) {
    grid_barrier(reinterpret_cast<u32*>(p.workspace));
    finish<Threads>(partials(p), p.chunks, ceil_div(p.width, 4), shared,
                    [&](u32 quad, const Quad& root) { write_weight_gradient(p, quad, root); });
}

}  // namespace cake::rmsnorm
