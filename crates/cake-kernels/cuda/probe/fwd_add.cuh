// Adds two inputs, three in the residual form, bit by bit and without carries: a unit for each thread, 16 bytes read of
// each input and 16 written. Its rate is the roof over kernels that read and write so many streams.
#pragma once
#include "cake/ptx.cuh"
#include "probe/args.cuh"

namespace cake::probe {

template <u32 Width, u32 Group, u32 Rows, bool Residual, class Weight>
__device__ __forceinline__ void fwd_add(const ForwardParams& p) {
    u32 unit = blockIdx.x * Group + threadIdx.x;
    if (unit >= p.units) return;
    Unit sum = load_unit(p.inputs[0] + unit);
    Unit second = load_unit(p.inputs[1] + unit);
    Unit third = {};
    if constexpr (Residual) third = load_unit(p.inputs[2] + unit);
    for (u32 i = 0; i < 4; ++i) sum.pair[i] ^= second.pair[i] ^ third.pair[i];
    store_unit(p.output + unit, sum);
}

}  // namespace cake::probe
