// Fixed-width integers and the element types. No header of the toolkit is used: an image depends on these files alone.
#pragma once

namespace cake {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

struct bf16 {
    u16 bits;
};

// In place of a weight's type where there is no weight.
struct none {};

// Two BF16 in a register: the element of the lower address in the lower half.
__device__ __forceinline__ float low_float(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_float(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// A unit: 8 consecutive BF16 elements, 16 bytes.
struct alignas(16) Unit {
    u32 pair[4];
};

__device__ __forceinline__ float element(const u32* pairs, int e) {
    return e % 2 == 0 ? low_float(pairs[e / 2]) : high_float(pairs[e / 2]);
}

__device__ __forceinline__ float element(const Unit& u, int e) { return element(u.pair, e); }

// Four consecutive floats.
struct alignas(16) Quad {
    float of[4];
};

constexpr u32 ceil_div(u32 a, u32 b) { return (a + b - 1) / b; }

constexpr u32 next_power_of_two(u32 n) {
    u32 p = 1;
    while (p < n) p *= 2;
    return p;
}

}  // namespace cake
