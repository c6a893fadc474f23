// Scalar steps of the gated backward.
#pragma once
#include "cake/sums.cuh"
#include "cake/weight_gradient.cuh"
#include "silu_gate/gate.cuh"

namespace cake::silu_gate {

// What the backward knows of a unit before it knows the row.
template <Form F>
struct GradientUnit {
    Unit x, dy;
    Gates<F> gates;

    __device__ __forceinline__ void set(const Unit& own_x, const Unit& own_dy, const Unit& z) {
        x = own_x;
        dy = own_dy;
        gates.set(z);
    }

    // What rstd normalises.
    __device__ __forceinline__ float normed(int e) const {
        return F.first ? __fmul_rn(element(x, e), gates.gate(e)) : element(x, e);
    }

    // The gradient of what the weight scales.
    __device__ __forceinline__ float upstream(int e) const {
        return F.first ? element(dy, e) : __fmul_rn(element(dy, e), gates.gate(e));
    }

    __device__ __forceinline__ float squares() const {
        if constexpr (!F.first) return unit_squares(x);
        float u[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) u[e] = normed(e);
        return unit_products(u, u);
    }

    // Adds upstream * xhat to the leaf's sums; the products of g = upstream * w and xhat. Beyond the row's last of `count`
    // elements the terms are zeros, though rstd may be infinite.
    __device__ __forceinline__ float products(float rstd, const WeightUnit& w, Quad (&sums)[2], u32 count = 8) const {
        float g[8], xhat[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const float a = upstream(e);
            xhat[e] = u32(e) < count ? __fmul_rn(normed(e), rstd) : 0.0f;
            g[e] = __fmul_rn(a, w.of[e]);
            float& sum = sums[e / 4].of[e % 4];
            sum = __fmaf_rn(a, xhat[e], sum);
        }
        return unit_products(g, xhat);
    }

    // dx and dz, where c = fold(g * xhat) / width.
    __device__ __forceinline__ void outputs(float rstd, float c, const WeightUnit& w, Unit& dx, Unit& dz) const {
        float to_x[8], to_z[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const float xhat = __fmul_rn(normed(e), rstd);
            to_x[e] = __fmul_rn(rstd, __fmaf_rn(-xhat, c, __fmul_rn(upstream(e), w.of[e])));
            if constexpr (F.first) {
                to_z[e] = __fmul_rn(__fmul_rn(to_x[e], element(x, e)), gates.slope(e));
                to_x[e] = __fmul_rn(to_x[e], gates.gate(e));
            } else {
                to_z[e] = __fmul_rn(__fmul_rn(element(dy, e), __fmul_rn(xhat, w.of[e])), gates.slope(e));
            }
        }
        dx = round_unit(to_x);
        dz = round_unit(to_z);
    }
};

}  // namespace cake::silu_gate
