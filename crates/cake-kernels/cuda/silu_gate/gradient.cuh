// Scalar steps of the gated backward.
#pragma once
#include "cake/sums.cuh"
#include "cake/weight_gradient.cuh"
#include "silu_gate/gate.cuh"

namespace cake::silu_gate {

// What the backward knows of pairs of elements of a row.
template <Form F, int Pairs>
struct Gradient {
    u32 x[Pairs], dy[Pairs];
    Gates<F, Pairs> gates;

    // What rstd normalises.
    __device__ __forceinline__ float normed(int e) const {
        return F.first ? __fmul_rn(element(x, e), gates.gate(e)) : element(x, e);
    }

    // The gradient of what the weight scales.
    __device__ __forceinline__ float upstream(int e) const {
        return F.first ? element(dy, e) : __fmul_rn(element(dy, e), gates.gate(e));
    }

    // dx and dz of these elements, where c = fold(g * xhat) / width with g = upstream * w.
    __device__ __forceinline__ void outputs(float rstd, float c, const float (&w)[2 * Pairs], u32 (&dx)[Pairs], u32 (&dz)[Pairs]) const {
        float to_x[2 * Pairs], to_z[2 * Pairs];
#pragma unroll
        for (int e = 0; e < 2 * Pairs; ++e) {
            const float xhat = __fmul_rn(normed(e), rstd);
            to_x[e] = __fmul_rn(rstd, __fmaf_rn(-xhat, c, __fmul_rn(upstream(e), w[e])));
            if constexpr (F.first) {
                to_z[e] = __fmul_rn(__fmul_rn(to_x[e], element(x, e)), gates.slope(e));
                to_x[e] = __fmul_rn(to_x[e], gates.gate(e));
            } else {
                to_z[e] = __fmul_rn(__fmul_rn(element(dy, e), __fmul_rn(xhat, w[e])), gates.slope(e));
            }
        }
        round_pairs(to_x, dx);
        round_pairs(to_z, dz);
    }
};

}  // namespace cake::silu_gate
