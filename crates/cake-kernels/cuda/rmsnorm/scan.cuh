// Weights for rows of any width, alignment and strides.
#pragma once
#include "cake/scan.cuh"
#include "rmsnorm/args.cuh"

namespace cake::rmsnorm {

// The weights of elements first .. first + count of a row, count <= 8; `tensor` is the weight's index in p's arrays.
template <class Weight, class Params>
__device__ __forceinline__ WeightUnit<Weight> read_weights(const Params& p, int tensor, u64 first, u32 count) {
    WeightUnit<Weight> w{};
    if constexpr (sizeof(Weight) > 1) {  // `none` has a size of 1
        if (has_vectors(p, tensor) && count == 8) {
            w.load(p.weight, u32(first / 8));
        } else {
            const Weight* weights = reinterpret_cast<const Weight*>(p.weight);
#pragma unroll
            for (u32 e = 0; e < 8; ++e) {
                if (e < count) w.set(e, readable(&weights[i64(first + e) * p.column[tensor]]));
            }
        }
    }
    return w;
}

}  // namespace cake::rmsnorm
