// A lane's part of a row, read and written by vectors: half a unit where there are as many lanes, else units that are Group
// apart.
#pragma once
#include "silu_gate/gate.cuh"

namespace cake::silu_gate {

template <u32 Width, u32 Group>
struct Part {
    static_assert(Width % (4 * Group) == 0 && (Width == 4 * Group || Width % (8 * Group) == 0));
    static constexpr int pairs = Width / 2 / Group;
    static constexpr bool halves = pairs == 2;

    // Of the first element of four, the index in the row.
    static __device__ __forceinline__ u32 column(u32 lane, u32 quad) {
        return halves ? 4 * lane : 8 * (lane + quad / 2 * Group) + quad % 2 * 4;
    }

    static __device__ __forceinline__ void load(const char* row, u32 lane, u32 (&part)[pairs]) {
        if constexpr (halves) {
            load_half(row + 8 * lane, part);
        } else {
#pragma unroll
            for (u32 s = 0; s < pairs / 4; ++s) {
                const Unit unit = load_unit(row + 16 * (lane + s * Group));
#pragma unroll
                for (u32 i = 0; i < 4; ++i) part[4 * s + i] = unit.pair[i];
            }
        }
    }

    // Asks L2 for it.
    static __device__ __forceinline__ void touch(const char* row, u32 lane) {
        if constexpr (halves) {
            cake::touch(row + 8 * lane);
        } else {
#pragma unroll
            for (u32 s = 0; s < pairs / 4; ++s) cake::touch(row + 16 * (lane + s * Group));
        }
    }

    static __device__ __forceinline__ void store(char* row, u32 lane, const u32 (&part)[pairs]) {
        if constexpr (halves) {
            store_half(row + 8 * lane, part);
        } else {
#pragma unroll
            for (u32 s = 0; s < pairs / 4; ++s) {
                store_unit(row + 16 * (lane + s * Group), Unit{{part[4 * s], part[4 * s + 1], part[4 * s + 2], part[4 * s + 3]}});
            }
        }
    }
};

}  // namespace cake::silu_gate
