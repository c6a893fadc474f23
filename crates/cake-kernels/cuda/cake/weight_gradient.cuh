// The weight gradient, from the roots of the chunks to dw. `Params` are those of an operator's backward.
#pragma once
#include "cake/grid_barrier.cuh"
#include "cake/row_tree.cuh"

namespace cake {

// With Params::two_sizes chunks are alike, or large ones that keep all CTAs busy and then small ones, an eighth of their size,
// that share the rest.
template <class Params>
__device__ __forceinline__ u32 chunk_rows(const Params& p, u32 chunk) { return chunk < p.large ? p.chunk : p.chunk / 8; }

template <class Params>
__device__ __forceinline__ u32 chunk_begin(const Params& p, u32 chunk) {
    const u32 large = min(chunk, p.large);
    return (7 * large + chunk) * (p.chunk / 8);
}

// Behind the header of the workspace: for each quad of columns the roots of all chunks, or, where their order does not
// matter, one FP64 sum for each column.
template <class Params>
__device__ __forceinline__ char* roots(const Params& p) { return p.workspace + workspace_header; }

// What follows them.
template <class Params>
__device__ __forceinline__ char* behind_roots(const Params& p) {
    return roots(p) + 16 * u64(ceil_div(p.width, 4)) * (p.unordered ? 2 : p.chunks);
}

// Before the first chunk: zeros, where sums are added up in any order.
template <u32 Threads, class Params>
__device__ __forceinline__ void clear_roots(const Params& p) {
    if (!p.unordered) return;
    const u32 count = 2 * ceil_div(p.width, 4);
    for (u32 i = blockIdx.x * Threads + threadIdx.x; i < count; i += gridDim.x * Threads) store_quad(roots(p) + 16 * i, Quad{});
    grid_barrier(reinterpret_cast<u32*>(p.workspace));
}

// Hands in a chunk's root for four columns.
template <class Params>
__device__ __forceinline__ void write_root(const Params& p, u32 chunk, u32 quad, const Quad& root) {
    if (!p.unordered) return store_quad(roots(p) + 16 * (u64(chunk) * ceil_div(p.width, 4) + quad), root);
    double* const sums = reinterpret_cast<double*>(roots(p)) + 4 * quad;
#pragma unroll
    for (u32 e = 0; e < 4; ++e) add_double(sums + e, root.of[e]);
}

// Where the sums of a CTA's groups wait if a row may have any number of columns: in the workspace, [levels][Rows][quads],
// followed by the groups' roots, [Rows][quads].
template <u32 Rows>
struct FarLevels {
    char* own;
    u32 quads;
    u32 share;   // rows of a chunk for a group
    u32 levels;

    template <class Params>
    __device__ __forceinline__ explicit FarLevels(const Params& p) {
        quads = ceil_div(p.width, 4);
        share = p.chunk / Rows;
        levels = 31 - __clz(share / leaf_rows);
        own = behind_roots(p) + 16 * u64(quads) * (u64(blockIdx.x) * (levels + 1) * Rows);
    }

    __device__ __forceinline__ char* at(u32 level, u32 group, u32 quad) const {
        return own + 16 * ((u64(level) * Rows + group) * quads + quad);
    }

    // Adds what waits for the sum of leaf `leaf`; then that waits itself, or is the group's root.
    __device__ __forceinline__ void join(u32 leaf, bool last, u32 group, u32 quad, Quad sum) const {
        if (quad >= quads) return;
        u32 level = 0;
        for (u32 rest = leaf; rest != 0 && (last || (rest & 1)); rest >>= 1, ++level) {
            if (rest & 1) sum = load_quad(at(level, group, quad)) + sum;
        }
        store_quad(at(last ? levels : level, group, quad), sum);
    }

    // Hands in the root of a chunk. All threads of the CTA call it.
    template <class Params>
    __device__ __forceinline__ void write_roots(const Params& p, u32 chunk) const {
        __syncthreads();
        for (u32 quad = threadIdx.x; quad < quads; quad += blockDim.x) {
            Quad sums[Rows];
#pragma unroll
            for (u32 g = 0; g < Rows; ++g) {
                sums[g] = chunk * p.chunk + g * share < p.rows ? load_quad(at(levels, g, quad)) : Quad{};
            }
            join_groups(sums);
            write_root(p, chunk, quad, sums[0]);
        }
        __syncthreads();
    }
};

// Writes dw of a column: the root of the row tree, added to what was there if that is asked for.
template <class Params>
__device__ __forceinline__ void write_weight_gradient(const Params& p, u32 column, float root) {
    const i64 at = column * p.column[Params::dw_index];
    if (p.dw_fp32) {
        float& dw = writable(reinterpret_cast<float*>(p.dw) + at);
        dw = p.accumulate ? __fadd_rn(dw, root) : root;
    } else {
        u16& dw = writable(reinterpret_cast<u16*>(p.dw) + at);
        dw = u16(round_pair(p.accumulate ? __fadd_rn(low_float(dw), root) : root, 0.0f));
    }
}

// Likewise of four columns, as far as they exist.
template <class Params>
__device__ __forceinline__ void write_weight_gradient(const Params& p, u32 quad, const Quad& root) {
#pragma unroll
    for (u32 e = 0; e < 4; ++e) {
        if (4 * quad + e < p.width) write_weight_gradient(p, 4 * quad + e, root.of[e]);
    }
}

// Joins up to eight adjacent roots, `pitch` bytes apart; one by one, to spare registers.
__device__ __forceinline__ Quad join_small(const char* first, u64 pitch, u32 count) {
    Quad low = {}, high = {}, pair = {};
#pragma unroll 1
    for (u32 i = 0; i < 8; ++i) {
        const Quad root = i < count ? load_quad(first) : Quad{};
        first += pitch;
        pair = i % 2 == 0 ? root : pair + root;
        if (i == 1) low = pair;
        if (i == 3) low = low + pair;
        if (i == 5) high = pair;
        if (i == 7) high = high + pair;
    }
    return low + high;
}

// Waits until all CTAs have handed in their chunks' roots, joins these and writes dw.
template <u32 Threads, class Params>
__device__ __forceinline__ void join_chunks(const Params& p, Quad* shared) {
    grid_barrier(reinterpret_cast<u32*>(p.workspace));
    const u32 quads = ceil_div(p.width, 4);
    if (!p.unordered) {
        const auto write = [&](u32 quad, const Quad& root) { write_weight_gradient(p, quad, root); };
        // The small chunks' roots join by eights before they count as one of the others'.
        u32 large = p.chunks;
        if constexpr (Params::two_sizes) large = min(p.large, p.chunks);
        const auto node = [&](u32 i, u32 quad) {
            const char* const at = roots(p) + 16 * (u64(i < large ? i : large + 8 * (i - large)) * quads + quad);
            if (!Params::two_sizes || i < large) return load_quad(at);
            return join_small(at, 16 * u64(quads), min(8u, p.chunks - (large + 8 * (i - large))));
        };
        return finish<Threads>(node, large + ceil_div(p.chunks - large, 8), quads, shared, write);
    }
    for (u32 quad = blockIdx.x * Threads + threadIdx.x; quad < quads; quad += gridDim.x * Threads) {
        const double* const sums = reinterpret_cast<const double*>(roots(p)) + 4 * quad;
        Quad root;
#pragma unroll
        for (u32 e = 0; e < 4; ++e) root.of[e] = __double2float_rn(load_double(sums + e));
        write_weight_gradient(p, quad, root);
    }
}

}  // namespace cake
