// Exercises the grid barrier. In each round every CTA writes its cell, passes the barrier, and checks the cells of all
// CTAs; a second barrier keeps the next round's writes away from readers.
#pragma once
#include "cake/grid_barrier.cuh"
#include "probe/args.cuh"

namespace cake::probe {

template <u32 Width, u32 Group, u32 Rows, Streams Form, class Weight>
__device__ __forceinline__ void fwd_barrier(const ForwardParams& p) {
    for (u32 round = 1; round <= p.rounds; ++round) {
        if (threadIdx.x == 0) p.cells[blockIdx.x] = round * gridDim.x + blockIdx.x;
        grid_barrier(p.barrier);
        for (u32 cta = threadIdx.x; cta < gridDim.x; cta += blockDim.x) {
            if (p.cells[cta] != round * gridDim.x + cta) atomicAdd(p.errors, 1u);
        }
        grid_barrier(p.barrier);
    }
}

}  // namespace cake::probe
