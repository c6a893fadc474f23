// The canonical order of sums across rows (docs/numerics.md): leaves of 8 rows, joined pairwise, adjacent ones first.
//
// A CTA walks through chunks: aligned runs of rows, so that each is a subtree, of 8 rows times a power of two. Within a
// chunk joined sums wait at their level of the tree, like the carries of a binary counter; the roots of the chunks are the
// partial sums in the workspace, and `finish` joins these.
#pragma once
#include "cake/ptx.cuh"

namespace cake {

constexpr u32 leaf_rows = 8;

// The workspace: a header with the barrier word, the roots of the chunks, the upper levels of each CTA.
constexpr u32 workspace_header = 1024;

__device__ __forceinline__ Quad load_quad(const void* address) {
    const Unit u = load_unit(address);
    return {{__uint_as_float(u.pair[0]), __uint_as_float(u.pair[1]), __uint_as_float(u.pair[2]), __uint_as_float(u.pair[3])}};
}

__device__ __forceinline__ void store_quad(void* address, const Quad& q) {
    store_unit(address, Unit{{__float_as_uint(q.of[0]), __float_as_uint(q.of[1]), __float_as_uint(q.of[2]), __float_as_uint(q.of[3])}});
}

__device__ __forceinline__ Quad operator+(const Quad& a, const Quad& b) {
    return {{__fadd_rn(a.of[0], b.of[0]), __fadd_rn(a.of[1], b.of[1]), __fadd_rn(a.of[2], b.of[2]), __fadd_rn(a.of[3], b.of[3])}};
}

// Where a thread's sums of its Slots units wait: 2 * Entries quads for each level, the lower levels in shared memory, the
// upper ones in the workspace. A unit's first quads are Threads apart, its second quads Entries behind them. No other
// thread touches them.
template <u32 Slots, u32 Threads, u32 Entries>
struct TreeLevels {
    Quad* shared;  // of this thread, as the next
    char* global;
    u32 shared_levels;

    // Adds to `sums`, those of leaf `leaf` of a subtree, what waits for them. Then they wait themselves, or, if it is the
    // last leaf, take in all that still waits and are the root of the subtree.
    __device__ __forceinline__ void join(u32 leaf, bool last, Quad (&sums)[2 * Slots]) const {
        u32 level = 0;
        for (u32 rest = leaf; rest != 0 && (last || (rest & 1)); rest >>= 1, ++level) {
            if (rest & 1) {
                each(level, [&](u32 q, auto load, auto) { sums[q] = load() + sums[q]; });
            }
        }
        if (!last) each(level, [&](u32 q, auto, auto store) { store(sums[q]); });
    }

    template <class Do>
    __device__ __forceinline__ void each(u32 level, const Do& act) const {
        const bool lower = level < shared_levels;
        Quad* const near = shared + level * 2 * Entries;
        char* const far = global + 16 * u64(level - shared_levels) * 2 * Entries;
#pragma unroll
        for (u32 q = 0; q < 2 * Slots; ++q) {
            const u32 at = q % 2 * Entries + q / 2 * Threads;
            if (Entries % Threads != 0 && q / 2 * Threads + threadIdx.x >= Entries) continue;
            act(q, [&] { return lower ? near[at] : load_quad(far + 16 * at); },
                [&](const Quad& sum) { lower ? void(near[at] = sum) : store_quad(far + 16 * at, sum); });
        }
    }
};

// Joins the roots of a power of two of adjacent subtrees into the first.
template <u32 Count>
__device__ __forceinline__ void join_groups(Quad (&roots)[Count]) {
#pragma unroll
    for (u32 span = 1; span < Count; span *= 2) {
#pragma unroll
        for (u32 g = 0; g + span < Count; g += 2 * span) roots[g] = roots[g] + roots[g + span];
    }
}

// Joins up to eight adjacent sums, `sum(i)` for i < 8.
template <class Sum>
__device__ __forceinline__ Quad join_eight(const Sum& sum) {
    Quad sums[8];
#pragma unroll
    for (u32 i = 0; i < 8; ++i) sums[i] = sum(i);
    join_groups(sums);
    return sums[0];
}

// Joins the sums that `lanes` threads, a power of two, hold of each column, adjacent lanes first; lane 0 gets the root. All
// threads of the CTA call it, with Count quads of shared memory for each; thread lane * columns + column has a sum if
// lane < lanes.
template <u32 Threads, u32 Count>
__device__ __forceinline__ void join_lanes(Quad (&sum)[Count], Quad* shared, u32 lanes, u32 columns) {
    const u32 lane = threadIdx.x / columns, column = threadIdx.x % columns;
    for (u32 left = lanes; left > 1; left = ceil_div(left, 8)) {
        if (lane < left) {
#pragma unroll
            for (u32 q = 0; q < Count; ++q) shared[q * Threads + threadIdx.x] = sum[q];
        }
        __syncthreads();
        if (lane * 8 < left) {
#pragma unroll
            for (u32 q = 0; q < Count; ++q) {
                sum[q] = join_eight([&](u32 i) {
                    return lane * 8 + i < left ? shared[q * Threads + (lane * 8 + i) * columns + column] : Quad{};
                });
            }
        }
        __syncthreads();
    }
}

// Joins the sums of `count` adjacent subtrees, `node(i, quad)`; `write(quad, sum)` gets the root for each quad of columns.
// Called by all threads of all CTAs when the sums are there; takes a Quad of shared memory for each thread.
template <u32 Threads, class Node, class Write>
__device__ __forceinline__ void finish(const Node& node, u32 count, u32 quads, Quad* shared, const Write& write) {
    // A CTA takes `columns` quads at a time, `lanes` threads for each, and `each` adjacent subtrees for a thread.
    const u32 columns = min(max(ceil_div(quads, gridDim.x), 2u), Threads / 32);
    const u32 lanes = 1u << (31 - __clz(Threads / columns));
    const u32 lane = threadIdx.x / columns;
    u32 each = 1;
    while (each * lanes < count) each *= 2;
    for (u32 first = blockIdx.x * columns; first < quads; first += gridDim.x * columns) {
        const u32 quad = first + threadIdx.x % columns;
        const bool live = lane < lanes && quad < quads;
        // Eights of them join in registers, and these like the carries of a binary counter.
        Quad waiting[4] = {}, sum[1] = {};
        for (u32 eight = 0; 8 * eight < each && live; ++eight) {
            const u32 begin = lane * each + 8 * eight;
            sum[0] = join_eight([&](u32 i) {
                const bool there = 8 * eight + i < each && begin + i < count;
                return there ? node(begin + i, quad) : Quad{};
            });
            bool carry = true;
#pragma unroll
            for (u32 level = 0; level < 4; ++level) {  // without a break, which would keep `waiting` in memory
                const bool joins = eight >> level & 1;
                if (carry && joins) sum[0] = waiting[level] + sum[0];
                if (carry && !joins) waiting[level] = sum[0];
                carry = carry && joins;
            }
        }
        join_lanes<Threads>(sum, shared, lanes, columns);
        if (lane == 0 && quad < quads) write(quad, sum[0] + Quad{});
    }
}

}  // namespace cake
