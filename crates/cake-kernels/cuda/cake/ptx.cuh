// Every access to global memory, and every word that needs inline PTX or a compiler's favour; crates/cake-verify/emulator
// has the same words for the host, where it looks at each address. Tensors that an output may alias (x, residual) are never
// read through the non-coherent path.
//
// Default cache policies: on an H200, at H = 2048, T = 65536, L1::no_allocate loads cost 2 %, with .cs stores 5 %.
#pragma once
#include "cake/types.cuh"

namespace cake {

// Rounds two floats to BF16, to nearest even; a NaN stays a NaN.
__device__ __forceinline__ u32 round_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Two BF16 within the bounds `low` and `high`, also two BF16 each; a NaN becomes some number or a NaN.
__device__ __forceinline__ u32 clamp_pair(u32 pair, u32 low, u32 high) {
    asm("max.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(low));
    asm("min.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(high));
    return pair;
}

// The greater of the numbers in each half of two words.
__device__ __forceinline__ u32 greatest_pair(u32 a, u32 b) {
#if __CUDA_ARCH__ >= 900
    asm("max.u16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
#else
    return max(a & 0xffffu, b & 0xffffu) | max(a & 0xffff0000u, b & 0xffff0000u);
#endif
}

// 1 / value within an ulp, for a value of 2^-64 to 2^94.
__device__ __forceinline__ float reciprocal(float value) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(value));
    return r;
}

// Reads a unit of a tensor that an output may alias.
__device__ __forceinline__ Unit load_unit(const void* address) {
    Unit u;
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(u.pair[0]), "=r"(u.pair[1]), "=r"(u.pair[2]), "=r"(u.pair[3])
                 : "l"(address)
                 : "memory");
    return u;
}

// Reads 16 bytes of a weight, which other CTAs read too and no output aliases. Volatile and never under a condition, so
// that it is issued where it is written: the compiler would sink it below the wait for x, and a cold call would wait for
// memory twice.
__device__ __forceinline__ Unit load_weight(const void* address) {
    Unit u;
    asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
        : "=r"(u.pair[0]), "=r"(u.pair[1]), "=r"(u.pair[2]), "=r"(u.pair[3])
        : "l"(address));
    return u;
}

// Likewise, to be issued where the compiler sees fit.
__device__ __forceinline__ Unit load_weight_late(const void* address) {
    Unit u;
    asm("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
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

// Half a unit.
__device__ __forceinline__ void load_half(const void* address, u32 (&pairs)[2]) {
    asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(pairs[0]), "=r"(pairs[1]) : "l"(address) : "memory");
}

__device__ __forceinline__ void store_half(void* address, const u32 (&pairs)[2]) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(address), "r"(pairs[0]), "r"(pairs[1]) : "memory");
}

// A single element, to be read or to be written.
template <class T>
__device__ __forceinline__ const T& readable(const T* address) {
    return *address;
}

template <class T>
__device__ __forceinline__ T& writable(T* address) {
    return *address;
}

// Asks L2 to fetch `bytes`, a multiple of 16, from an address that is one too. Does nothing before sm_90.
__device__ __forceinline__ void fetch_ahead(const void* address, u32 bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(bytes) : "memory");
#endif
}

// Asks L2 to fetch what is around an address. Cheaper than `fetch_ahead` where each thread asks for its own.
__device__ __forceinline__ void touch(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory"); }

// Makes the compiler forget what it has computed from a unit, so that it unpacks the unit again instead of keeping eight
// floats alive.
__device__ __forceinline__ void forget(u32& pair) { asm volatile("" : "+r"(pair)); }

__device__ __forceinline__ void forget(Unit& u) {
    asm volatile("" : "+r"(u.pair[0]), "+r"(u.pair[1]), "+r"(u.pair[2]), "+r"(u.pair[3]));
}

// Adds to a word that all CTAs see; writes before it are seen by who acquires a value at or after it. The value before.
__device__ __forceinline__ u32 add_release(u32* word, u32 value) {
    u32 before;
    asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(value) : "memory");
    return before;
}

__device__ __forceinline__ u32 load_acquire(const u32* word) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

// Adds to a number that all CTAs add to, in any order.
__device__ __forceinline__ void add_double(double* number, double value) {
    asm volatile("red.relaxed.gpu.global.add.f64 [%0], %1;" ::"l"(number), "d"(value) : "memory");
}

// Reads what `add_double` has made of a number, past the cache of this SM.
__device__ __forceinline__ double load_double(const double* number) {
    double value;
    asm volatile("ld.relaxed.gpu.global.f64 %0, [%1];" : "=d"(value) : "l"(number) : "memory");
    return value;
}

// The shared memory that the launch asks for.
__device__ __forceinline__ float* dynamic_shared() {
    extern __shared__ float memory[];
    return memory;
}

}  // namespace cake
