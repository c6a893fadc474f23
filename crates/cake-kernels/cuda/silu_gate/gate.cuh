// The gate: docs/silu-gate.md specifies each step, and says why the result is one bit pattern on every board.
#pragma once
#include "cake/ptx.cuh"
#include "silu_gate/args.cuh"

namespace cake::silu_gate {

// Every |z| up to this, in BF16, has a sigmoid that needs no care: 64.
constexpr u32 near_bits = 0x4280;

// sigmoid(z) = 1 / (1 + exp(-z)) for the BF16 z within -104 .. 40; with One = 1, as far as |z| <= 64.
//
// With -z / ln 2 = n + f: 1 + exp(-z) = 1 + 2^n (1 + m), here times One, which keeps every number normal; `high + low` is
// that sum in twice the precision. One step of refinement makes of any reciprocal within 8 ulp the same result.
template <u32 Log2One>
__device__ __forceinline__ float sigmoid(float z) {
    constexpr float log2e = 0x1.715476p+0f, log2e_rest = 0x1.4ae0cp-26f;  // of 1 / ln 2
    constexpr float one = Log2One == 0 ? 1.0f : 0x1p-64f;
    constexpr float magic = 12582912.0f + (Log2One == 0 ? 127.0f : 63.0f);  // 1.5 * 2^23 and the exponent of one
    const float shifted = __fmaf_rn(z, -log2e, magic);
    const float n = __fadd_rn(shifted, -magic);
    const float f = __fmaf_rn(z, -log2e_rest, __fmaf_rn(z, -log2e, -n));
    float q = 0x1.44138ap-13f;  // (2^f - 1) / f
    q = __fmaf_rn(q, f, 0x1.5f089p-10f);
    q = __fmaf_rn(q, f, 0x1.3b2a54p-7f);
    q = __fmaf_rn(q, f, 0x1.c6af6cp-5f);
    q = __fmaf_rn(q, f, 0x1.ebfbep-3f);
    q = __fmaf_rn(q, f, 0x1.62e43p-1f);
    const float m = __fmaf_rn(q, f, 0x1p-36f);
    const float power = __uint_as_float(__float_as_uint(shifted) << 23);  // 2^n * one
    const float high = __fmaf_rn(power, m, __fadd_rn(power, one));
    const float low = __fmaf_rn(power, m, __fadd_rn(__fadd_rn(power, -high), one));
    const float r = reciprocal(high);
    const float s = __fmaf_rn(r, __fmaf_rn(-low, r, __fmaf_rn(-high, r, 1.0f)), r);
    return Log2One == 0 ? s : __fmul_rn(s, one);
}

// Gates of pairs of elements of z.
template <Form F, int Pairs>
struct Gates {
    u32 z[Pairs];
    float s[2 * Pairs];

    __device__ __forceinline__ void set(const u32 (&pairs)[Pairs]) {
        u32 most = 0;
#pragma unroll
        for (int i = 0; i < Pairs; ++i) {
            z[i] = pairs[i];
            most = greatest_pair(most, pairs[i] & 0x7fff7fffu);
        }
        if (max(most & 0xffffu, most >> 16) <= near_bits) {
#pragma unroll
            for (int i = 0; i < Pairs; ++i) {
                s[2 * i] = sigmoid<0>(low_float(pairs[i]));
                s[2 * i + 1] = sigmoid<0>(high_float(pairs[i]));
            }
        } else {
#pragma unroll
            for (int i = 0; i < Pairs; ++i) {
                const u32 pair = clamp_pair(pairs[i], 0xc2d0c2d0u, 0x42204220u);  // -104, 40
                s[2 * i] = sigmoid<64>(low_float(pair));
                s[2 * i + 1] = sigmoid<64>(high_float(pair));
            }
        }
    }

    // A NaN stays a NaN: by z itself, or by the choice.
    __device__ __forceinline__ float gate(int e) const {
        const float at = element(z, e);
        if constexpr (F.sigmoid) return at == at ? s[e] : at;
        return __fmul_rn(at, s[e]);
    }

    __device__ __forceinline__ float slope(int e) const {
        const float at = element(z, e), rest = __fadd_rn(1.0f, -s[e]);
        if constexpr (F.sigmoid) return at == at ? __fmul_rn(s[e], rest) : at;
        return __fmul_rn(s[e], __fmaf_rn(at, rest, 1.0f));
    }
};

// A weight, from FP32 or BF16.
__device__ __forceinline__ float weight(const char* weights, bool fp32, i64 at) {
    if (fp32) return readable(reinterpret_cast<const float*>(weights) + at);
    return low_float(readable(reinterpret_cast<const u16*>(weights) + at));
}

// Rounds floats to pairs of BF16.
template <int Pairs>
__device__ __forceinline__ void round_pairs(const float (&v)[2 * Pairs], u32 (&pairs)[Pairs]) {
#pragma unroll
    for (int i = 0; i < Pairs; ++i) pairs[i] = round_pair(v[2 * i], v[2 * i + 1]);
}

}  // namespace cake::silu_gate
