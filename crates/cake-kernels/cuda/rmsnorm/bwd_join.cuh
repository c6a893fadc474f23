// Joins the weight gradients of shards of the rows, aligned powers of two of 8 rows each: `x` holds them as FP32 rows. Each
// thread joins a column; sums that wait for their neighbour are in shared memory, [levels][threads].
//
// Order of sums: the canonical tree above the shards.
#pragma once
#include "rmsnorm/gradient.cuh"

namespace cake::rmsnorm {

template <u32 Width, u32 Group, u32 Rows, bool Residual, class Weight>
__device__ __forceinline__ void bwd_join(const BackwardParams& p) {
    const u32 column = blockIdx.x * Group + threadIdx.x;
    if (column >= p.width) return;
    float* const waiting = dynamic_shared() + threadIdx.x;
    float sum = 0.0f;
    for (u32 shard = 0; shard < p.rows; ++shard) {
        const bool last = shard + 1 == p.rows;
        const float* const shards = reinterpret_cast<const float*>(row_of<4>(p.x, {shard, 0}));
        sum = readable(shards + column * p.column[backward::X]);
        u32 level = 0;
        for (u32 rest = shard; rest != 0 && (last || (rest & 1)); rest >>= 1, ++level) {
            if (rest & 1) sum = __fadd_rn(waiting[level * Group], sum);
        }
        if (!last) waiting[level * Group] = sum;
    }
    write_weight_gradient(p, column, __fadd_rn(sum, 0.0f));
}

}  // namespace cake::rmsnorm
