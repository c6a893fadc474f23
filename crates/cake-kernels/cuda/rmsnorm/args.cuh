// Parameters and scalar steps of RMSNorm; mirrors the blocks of cake-kernels/src/rmsnorm.rs.
#pragma once
#include "cake/rows.cuh"
#include "cake/sums.cuh"

namespace cake::rmsnorm {

// Whether a residual is added (its gradient, in the backward) in the same pass over memory.
namespace forms {
constexpr bool plain = false, res = true;
}

// Bits of ForwardParams::vectors, and indices of its arrays.
enum { X, RESIDUAL, Y, H, RSTD, ROW_TENSORS, WEIGHT = ROW_TENSORS, TENSORS };

// On sm_90 parameters lie in constant memory from 0x210 on, cold at each launch: what the first loads need shares the
// line at 0x240, and what tuned kernels never read comes last.
struct ForwardParams {
    RowTensor y, rstd;
    RowTensor x, residual;  // 0x240
    char* weight;
    u32 rows, levels;       // levels of row indices in use
    RowTensor h;            // 0x280
    float eps, offset;      // offset: added to each weight, 1 or -0
    u32 ahead, width;       // ahead: rows to the one to fetch into L2; 0, also where levels > 1, for none
    u32 sizes[max_levels];  // of the levels
    i64 more[max_levels - 2][ROW_TENSORS];  // strides of levels 2 and up
    i64 column[TENSORS];                    // strides between columns
    u32 vectors;                            // bit t: tensor t allows 16-byte accesses to each unit
};

static_assert(sizeof(ForwardParams) == 392, "the mirror in src/rmsnorm.rs has this size");

// Bits of BackwardParams::vectors, and indices of its arrays.
namespace backward {
enum { X, DY, DX, DH, RSTD, ROW_TENSORS, WEIGHT = ROW_TENSORS, DW, TENSORS };
}

// Tensors in the order in which they are needed first.
struct BackwardParams {
    static constexpr int dw_index = backward::DW;
    static constexpr bool two_sizes = false;  // of chunks
    RowTensor x, dy, rstd;  // rstd absent: it is computed again from x and eps
    RowTensor dx, dh;       // dx absent: only dw is wanted
    char* weight;
    char* dw;               // null: only dx is wanted
    char* workspace;
    u32 rows, levels;
    float eps, offset;
    u32 width, ahead;
    u32 chunk, chunks;      // rows of a chunk, 8 times a power of two for each group of a CTA; chunks of all rows
    u32 columns, ctas;      // units of columns for a CTA that takes columns; CTAs that share the chunks
    u32 shared_levels;      // levels of the row tree that wait in shared memory; the others in the workspace
    u32 dw_fp32, accumulate;
    u32 unordered;          // chunks' roots are added up in any order
    u32 sizes[max_levels];
    i64 more[max_levels - 2][backward::ROW_TENSORS];
    i64 column[backward::TENSORS];
    u32 vectors;
};

static_assert(sizeof(BackwardParams) == 448, "the mirror in src/rmsnorm.rs has this size");

// h = bf16(x + residual).
__device__ __forceinline__ Unit add(const Unit& x, const Unit& residual) {
    Unit h;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        h.pair[i] = round_pair(__fadd_rn(low_float(x.pair[i]), low_float(residual.pair[i])),
                               __fadd_rn(high_float(x.pair[i]), high_float(residual.pair[i])));
    }
    return h;
}

// The weights of a unit.
template <class Weight>
struct WeightUnit;

template <>
struct WeightUnit<bf16> {
    Unit bits;
    __device__ __forceinline__ void load(const char* weights, u32 unit) { bits = load_weight(weights + u64(16) * unit); }
    __device__ __forceinline__ void load_late(const char* weights, u32 unit) {
        bits = load_weight_late(weights + u64(16) * unit);
    }
    __device__ __forceinline__ void set(u32 e, bf16 w) { bits.pair[e / 2] |= u32(w.bits) << (e % 2 * 16); }
    __device__ __forceinline__ float low(int i) const { return low_float(bits.pair[i]); }
    __device__ __forceinline__ float high(int i) const { return high_float(bits.pair[i]); }
    __device__ __forceinline__ float element(int e) const { return cake::element(bits, e); }
};

template <>
struct WeightUnit<float> {
    Unit bits[2];
    __device__ __forceinline__ void load(const char* weights, u32 unit) {
        bits[0] = load_weight(weights + u64(32) * unit);
        bits[1] = load_weight(weights + u64(32) * unit + 16);
    }
    __device__ __forceinline__ void load_late(const char* weights, u32 unit) {
        bits[0] = load_weight_late(weights + u64(32) * unit);
        bits[1] = load_weight_late(weights + u64(32) * unit + 16);
    }
    __device__ __forceinline__ void set(u32 e, float w) { bits[e / 4].pair[e % 4] = __float_as_uint(w); }
    __device__ __forceinline__ float low(int i) const { return __uint_as_float(bits[i / 2].pair[i % 2 * 2]); }
    __device__ __forceinline__ float high(int i) const { return __uint_as_float(bits[i / 2].pair[i % 2 * 2 + 1]); }
    __device__ __forceinline__ float element(int e) const { return __uint_as_float(bits[e / 4].pair[e % 4]); }
};

template <>
struct WeightUnit<none> {
    __device__ __forceinline__ void load(const char*, u32) {}
    __device__ __forceinline__ void load_late(const char*, u32) {}
    __device__ __forceinline__ float low(int) const { return 1.0f; }
    __device__ __forceinline__ float high(int) const { return 1.0f; }
    __device__ __forceinline__ float element(int) const { return 1.0f; }
};

// y = bf16((x * rstd) * (w + offset)).
template <class Weight>
__device__ __forceinline__ Unit scale(const Unit& x, float rstd, const WeightUnit<Weight>& w, float offset) {
    Unit y;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        y.pair[i] = round_pair(
            __fmul_rn(__fmul_rn(low_float(x.pair[i]), rstd), __fadd_rn(w.low(i), offset)),
            __fmul_rn(__fmul_rn(high_float(x.pair[i]), rstd), __fadd_rn(w.high(i), offset)));
    }
    return y;
}

}  // namespace cake::rmsnorm
