// Adds two or three inputs, bit by bit and without carries, into one or two outputs: a unit for each thread, 16 bytes of each.
// Its rate is the roof over kernels that read and write so many streams.
#pragma once
#include "cake/ptx.cuh"
#include "probe/args.cuh"

namespace cake::probe {

template <u32 Width, u32 Group, u32 Rows, Streams Form, class Weight>
__device__ __forceinline__ void fwd_add(const ForwardParams& p) {
    const u32 unit = blockIdx.x * Group + threadIdx.x;
    if (unit >= p.units) return;
    Unit in[Form.read];
#pragma unroll
    for (u32 t = 0; t < Form.read; ++t) in[t] = load_unit(p.inputs[t] + unit);
#pragma unroll
    for (u32 t = 1; t < Form.read; ++t) {
        for (u32 i = 0; i < 4; ++i) in[0].pair[i] ^= in[t].pair[i];
    }
#pragma unroll
    for (u32 t = 0; t < Form.written; ++t) store_unit(p.outputs[t] + unit, in[0]);
}

}  // namespace cake::probe
