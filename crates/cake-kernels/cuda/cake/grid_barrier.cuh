// A barrier across all CTAs of a cooperative launch; docs/grid-barrier.md argues why it is sound.
//
// One 32-bit word. Each round the first CTA adds 2^31 - (CTAs - 1) and every other CTA adds 1, so that the round's last
// arrival flips bit 31 and leaves the lower bits as they were: zero. A CTA has passed once bit 31 differs from what it
// was before its own arrival. Nothing has to be set between launches.
#pragma once
#include "cake/ptx.cuh"

namespace cake {

constexpr u32 grid_barrier_flip = 0x80000000u;

// All threads of all CTAs call it. Writes to global memory before it are seen by every thread after it. A CTA that waits
// for more than `patience` polls prints what it saw and traps: the launch fails instead of hanging.
__device__ __forceinline__ void grid_barrier(u32* word, u32 patience = 1u << 26) {
    __syncthreads();
    if (threadIdx.x == 0) {
        const u32 before = add_release(word, blockIdx.x == 0 ? grid_barrier_flip - (gridDim.x - 1) : 1);
        u32 now = load_acquire(word);
        for (u32 polls = 0; ((before ^ now) & grid_barrier_flip) == 0; now = load_acquire(word)) {
            if (++polls > patience) {
                printf("grid barrier: CTA %u of %u waits, word %#x before its arrival, %#x now, expected bit 31 to flip\n",
                       blockIdx.x, gridDim.x, before, now);
                __trap();
            }
        }
    }
    __syncthreads();
}

}  // namespace cake
