// Global memory accesses of 16 bytes. Tensors that an output may alias (x, residual) are never read through the non-coherent path.
//
// Default cache policies: on an H200, L1::no_allocate loads cost 2 % at H = 2048, T = 65536, and .cs stores 1 to 5 %.
#pragma once
#include "cake/types.cuh"

namespace cake {

// A unit: 8 consecutive BF16 elements, 16 bytes.
struct Unit {
    u32 pair[4];
};

// Reads a unit of a tensor that an output may alias.
__device__ __forceinline__ Unit load_unit(const void* address) {
    Unit u;
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(u.pair[0]), "=r"(u.pair[1]), "=r"(u.pair[2]), "=r"(u.pair[3])
                 : "l"(address)
                 : "memory");
    return u;
}

// Reads 16 bytes of a weight, which other CTAs read too and no output aliases. Volatile, so that it is issued where it is
// written: the compiler would sink it below the wait for x, and a cold call would wait for memory twice.
__device__ __forceinline__ Unit load_weight(const void* address) {
    Unit u;
    asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
        : "=r"(u.pair[0]), "=r"(u.pair[1]), "=r"(u.pair[2]), "=r"(u.pair[3])
        : "l"(address));
    return u;
}

// Writes a unit of an output.
__device__ __forceinline__ void store_unit(void* address, const Unit& u) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(u.pair[0]), "r"(u.pair[1]),
                 "r"(u.pair[2]), "r"(u.pair[3])
                 : "memory");
}

}  // namespace cake
