// The gate: docs/silu-gate.md specifies each step, and says why the result is one bit pattern on every board.
#pragma once
#include "cake/ptx.cuh"
#include "silu_gate/args.cuh"

namespace cake::silu_gate {

// sigmoid(z) = 1 / (1 + exp(-z)) for the BF16 z; `clamped` is z within -104 .. 40.
//
// With -z / ln 2 = n + f: 1 + exp(-z) = 1 + 2^n (1 + m), here times 2^-64, which keeps every number normal; `far + near` is
// that sum in twice the precision. One step of refinement makes of any reciprocal within 8 ulp the same result.
__device__ __forceinline__ float sigmoid(float clamped) {
    constexpr float log2e = 0x1.715476p+0f, log2e_rest = 0x1.4ae0cp-26f;  // of 1 / ln 2
    constexpr float magic = 12582912.0f;                                 // 1.5 * 2^23: its last bit counts ones
    constexpr float one = 0x1p-64f;
    const float shifted = __fmaf_rn(clamped, -log2e, magic);
    const float n = __fadd_rn(shifted, -magic);
    const float f = __fmaf_rn(clamped, -log2e_rest, __fmaf_rn(clamped, -log2e, -n));
    float q = 0x1.44138ap-13f;  // (2^f - 1) / f
    q = __fmaf_rn(q, f, 0x1.5f089p-10f);
    q = __fmaf_rn(q, f, 0x1.3b2a54p-7f);
    q = __fmaf_rn(q, f, 0x1.c6af6cp-5f);
    q = __fmaf_rn(q, f, 0x1.ebfbep-3f);
    q = __fmaf_rn(q, f, 0x1.62e43p-1f);
    const float m = __fmaf_rn(q, f, 0x1p-36f);
    const float power = __uint_as_float((__float_as_uint(shifted) << 23) + __float_as_uint(one));  // 2^n * one
    const float near = __fmaf_rn(power, m, __fadd_rn(power, one));
    const float far = __fmaf_rn(power, m, __fadd_rn(__fadd_rn(power, -near), one));
    const float r = reciprocal(near);
    const float rest = __fmaf_rn(-far, r, __fmaf_rn(-near, r, 1.0f));
    return __fmul_rn(__fmaf_rn(r, rest, r), one);
}

// Gates of a unit of z.
template <Form F>
struct Gates {
    Unit z;
    float s[8];

    __device__ __forceinline__ void set(const Unit& unit) {
        z = unit;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 pair = clamp_pair(unit.pair[i], 0xc2d0c2d0u, 0x42204220u);  // -104, 40
            s[2 * i] = sigmoid(low_float(pair));
            s[2 * i + 1] = sigmoid(high_float(pair));
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

// The weights of a unit.
struct WeightUnit {
    float of[8];

    __device__ __forceinline__ void load(const char* weights, bool fp32, u32 unit) {
        if (fp32) {
            const Unit low = load_weight_late(weights + u64(32) * unit), high = load_weight_late(weights + u64(32) * unit + 16);
#pragma unroll
            for (int e = 0; e < 8; ++e) of[e] = __uint_as_float(e < 4 ? low.pair[e] : high.pair[e - 4]);
        } else {
            const Unit bits = load_weight_late(weights + u64(16) * unit);
#pragma unroll
            for (int e = 0; e < 8; ++e) of[e] = element(bits, e);
        }
    }
};

__device__ __forceinline__ Unit round_unit(const float (&v)[8]) {
    return {{round_pair(v[0], v[1]), round_pair(v[2], v[3]), round_pair(v[4], v[5]), round_pair(v[6], v[7])}};
}

}  // namespace cake::silu_gate
