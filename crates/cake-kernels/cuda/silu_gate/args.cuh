// Parameters of the gated RMSNorm; mirrors the blocks of cake-kernels/src/silu_gate.rs.
#pragma once
#include "cake/rows.cuh"

namespace cake::silu_gate {

// What the gate is, and where it stands.
struct Form {
    bool sigmoid;  // gate = sigmoid(z), else z * sigmoid(z)
    bool first;    // rmsnorm(x * gate) * w, else rmsnorm(x) * w * gate
};

namespace forms {
constexpr Form plain = {false, false}, sigmoid = {true, false}, first = {false, true}, first_sigmoid = {true, true};
}

// Bits of ForwardParams::vectors, and indices of its arrays.
enum { X, Z, Y, RSTD, ROW_TENSORS, WEIGHT = ROW_TENSORS, TENSORS };

struct ForwardParams {
    RowTensor x, z, y, rstd;
    char* weight;
    u32 rows, levels;  // levels of row indices in use
    float eps;
    u32 width, ahead;  // ahead: rows to the one to fetch into L2; 0, also where levels > 1, for none
    u32 weight_fp32;
    u32 sizes[max_levels];
    i64 more[max_levels - 2][ROW_TENSORS];  // strides of levels 2 and up
    i64 column[TENSORS];                    // strides between columns
    u32 vectors;                            // bit t: tensor t allows 16-byte accesses to each unit
};

static_assert(sizeof(ForwardParams) == 328, "the mirror in src/silu_gate.rs has this size");

// Bits of BackwardParams::vectors, and indices of its arrays.
namespace backward {
enum { X, DY, Z, DX, DZ, RSTD, ROW_TENSORS, WEIGHT = ROW_TENSORS, DW, TENSORS };
}

struct BackwardParams {
    static constexpr int dw_index = backward::DW;
    static constexpr bool two_sizes = true;  // of chunks
    RowTensor x, dy, z, dx, dz, rstd;  // rstd absent: it is computed again from x and eps
    char* weight;
    char* dw;  // null: only dx and dz are wanted
    char* workspace;
    u32 rows, levels;
    float eps;
    u32 width, ahead;
    u32 weight_fp32;
    u32 chunk, chunks;      // rows of a chunk, 8 times a power of two for each group of a CTA; chunks of all rows
    u32 large;              // chunks of that size; those behind them, if any, have an eighth of it
    u32 ctas;               // that share the chunks
    u32 dw_fp32, accumulate;
    u32 unordered;          // chunks' roots are added up in any order
    u32 sizes[max_levels];
    i64 more[max_levels - 2][backward::ROW_TENSORS];
    i64 column[backward::TENSORS];
    u32 vectors;
};

static_assert(sizeof(BackwardParams) == 512, "the mirror in src/silu_gate.rs has this size");

}  // namespace cake::silu_gate
