// Scalar steps of the RMSNorm backward.
#pragma once
#include "cake/weight_gradient.cuh"
#include "rmsnorm/args.cuh"

namespace cake::rmsnorm {

// dx = bf16(rstd * fma(-xhat, c, g) [+ dh]), with xhat = x * rstd.
template <bool Residual>
__device__ __forceinline__ Unit input_gradient(const Unit& x, const float (&g)[8], float rstd, float c, const Unit& dh) {
    float dx[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        dx[e] = __fmul_rn(rstd, __fmaf_rn(-__fmul_rn(element(x, e), rstd), c, g[e]));
        if constexpr (Residual) dx[e] = __fadd_rn(dx[e], element(dh, e));
    }
    return {{round_pair(dx[0], dx[1]), round_pair(dx[2], dx[3]), round_pair(dx[4], dx[5]), round_pair(dx[6], dx[7])}};
}

}  // namespace cake::rmsnorm
