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

// Behind the header of the workspace: for each quad of columns the roots of all chunks, or, where their order does not
// matter, one FP64 sum for each column.
__device__ __forceinline__ char* roots(const BackwardParams& p) { return p.workspace + workspace_header; }

// What follows them.
__device__ __forceinline__ char* behind_roots(const BackwardParams& p) {
    return roots(p) + 16 * u64(ceil_div(p.width, 4)) * (p.unordered ? 2 : p.chunks);
}

// Before the first chunk: zeros, where sums are added up in any order.
template <u32 Threads>
__device__ __forceinline__ void clear_roots(const BackwardParams& p) {
    if (!p.unordered) return;
    const u32 count = 2 * ceil_div(p.width, 4);
    for (u32 i = blockIdx.x * Threads + threadIdx.x; i < count; i += gridDim.x * Threads) store_quad(roots(p) + 16 * i, Quad{});
    grid_barrier(reinterpret_cast<u32*>(p.workspace));
}

// Hands in a chunk's root for four columns.
__device__ __forceinline__ void write_root(const BackwardParams& p, u32 chunk, u32 quad, const Quad& root) {
    if (!p.unordered) return store_quad(roots(p) + 16 * (u64(chunk) * ceil_div(p.width, 4) + quad), root);
    double* const sums = reinterpret_cast<double*>(roots(p)) + 4 * quad;
#pragma unroll
    for (u32 e = 0; e < 4; ++e) add_double(sums + e, root.of[e]);
}

// Writes dw of a column: the root of the row tree, added to what was there if that is asked for.
__device__ __forceinline__ void write_weight_gradient(const BackwardParams& p, u32 column, float root) {
    const i64 at = column * p.column[backward::DW];
    if (p.dw_fp32) {
        float& dw = writable(reinterpret_cast<float*>(p.dw) + at);
        dw = p.accumulate ? __fadd_rn(dw, root) : root;
    } else {
        u16& dw = writable(reinterpret_cast<u16*>(p.dw) + at);
        dw = u16(round_pair(p.accumulate ? __fadd_rn(low_float(dw), root) : root, 0.0f));
    }
}

// Likewise of four columns, as far as they exist.
__device__ __forceinline__ void write_weight_gradient(const BackwardParams& p, u32 quad, const Quad& root) {
#pragma unroll
    for (u32 e = 0; e < 4; ++e) {
        if (4 * quad + e < p.width) write_weight_gradient(p, 4 * quad + e, root.of[e]);
    }
}

// Waits until all CTAs have handed in their chunks' roots, joins these and writes dw.
template <u32 Threads>
__device__ __forceinline__ void join_chunks(const BackwardParams& p, Quad* shared) {
    grid_barrier(reinterpret_cast<u32*>(p.workspace));
    const u32 quads = ceil_div(p.width, 4);
    if (!p.unordered) {
        const auto write = [&](u32 quad, const Quad& root) { write_weight_gradient(p, quad, root); };
        return finish<Threads>(roots(p), p.chunks, quads, shared, write);
    }
    for (u32 quad = blockIdx.x * Threads + threadIdx.x; quad < quads; quad += gridDim.x * Threads) {
        const double* const sums = reinterpret_cast<const double*>(roots(p)) + 4 * quad;
        Quad root;
#pragma unroll
        for (u32 e = 0; e < 4; ++e) root.of[e] = __double2float_rn(load_double(sums + e));
        write_weight_gradient(p, quad, root);
    }
}

}  // namespace cake::rmsnorm
