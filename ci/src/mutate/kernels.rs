//! Faults of the kernels' source. The tests that must notice them run that source on this machine; on a board,
//! `cake-verify run` must.

use super::tests::Tests;
use super::{Fault, fault};

const FWD_ROW: &str = "crates/cake-kernels/cuda/rmsnorm/fwd_row.cuh";
const FWD_SCAN: &str = "crates/cake-kernels/cuda/rmsnorm/fwd_scan.cuh";
const BWD_SCAN: &str = "crates/cake-kernels/cuda/rmsnorm/bwd_scan.cuh";
const BWD_SPLIT: &str = "crates/cake-kernels/cuda/rmsnorm/bwd_split.cuh";
const BWD_WALK: &str = "crates/cake-kernels/cuda/rmsnorm/bwd_walk.cuh";
const ARGS: &str = "crates/cake-kernels/cuda/rmsnorm/args.cuh";
const GRADIENT: &str = "crates/cake-kernels/cuda/rmsnorm/gradient.cuh";
const JOIN: &str = "crates/cake-kernels/cuda/rmsnorm/bwd_join.cuh";
const ROWS: &str = "crates/cake-kernels/cuda/cake/rows.cuh";
const SCAN: &str = "crates/cake-kernels/cuda/cake/scan.cuh";
const SUMS: &str = "crates/cake-kernels/cuda/cake/sums.cuh";
const TREE: &str = "crates/cake-kernels/cuda/cake/row_tree.cuh";
const WEIGHT_GRADIENT: &str = "crates/cake-kernels/cuda/cake/weight_gradient.cuh";
const BARRIER: &str = "crates/cake-kernels/cuda/cake/grid_barrier.cuh";
const GATE: &str = "crates/cake-kernels/cuda/silu_gate/gate.cuh";
const GATE_FWD_ROW: &str = "crates/cake-kernels/cuda/silu_gate/fwd_row.cuh";
const GATE_FWD_SCAN: &str = "crates/cake-kernels/cuda/silu_gate/fwd_scan.cuh";
const GATE_BWD_FEW: &str = "crates/cake-kernels/cuda/silu_gate/bwd_few.cuh";
const GATE_BWD_SCAN: &str = "crates/cake-kernels/cuda/silu_gate/bwd_scan.cuh";
const GATE_BWD_WALK: &str = "crates/cake-kernels/cuda/silu_gate/bwd_walk.cuh";
const GATE_GRADIENT: &str = "crates/cake-kernels/cuda/silu_gate/gradient.cuh";

/// Every fault.
#[rustfmt::skip]
pub(super) const FAULTS: &[Fault] = &[
    // RMSNorm, forward.
    fault("row-drops-the-last-unit", FWD_ROW,
        ["if (live && (Units % Group == 0 || unit < Units)) {\n            x[s] = load_unit", "if (live && unit + 1 < Units) {\n            x[s] = load_unit"],
        Tests::emulated(&["far_rows"]), "the last 8 elements of a row are taken for zeros"),
    fault("row-loses-the-last-row", FWD_ROW,
        ["const bool live = row < p.rows;", "const bool live = row + 1 < p.rows;"],
        Tests::emulated(&["far_rows"]), "the last row is not written"),
    fault("row-swaps-strides", FWD_ROW,
        ["char* y_row = row_of<2>(p.y, index);", "char* y_row = row_of<2>(RowTensor{p.y.address, p.x.pitch, p.x.outer}, index);"],
        Tests::emulated(&["layouts_of_outputs"]), "y is written where the strides of x lead"),
    fault("row-cuts-offsets-to-32-bits", ROWS,
        ["row.inner * tensor.pitch + row.outer * tensor.outer);", "u32(row.inner * tensor.pitch + row.outer * tensor.outer));"],
        Tests::emulated(&["far_rows"]), "rows beyond 2^32 elements are found elsewhere"),
    fault("row-reads-before-the-barrier", FWD_ROW,
        ["if (lane == 0) scratch->whole[group] = rstd;\n        __syncthreads();", "if (lane == 0) scratch->whole[group] = rstd;"],
        Tests::emulated(&["layouts_of_outputs"]), "rstd leaves before the rows' threads have written it"),
    fault("row-writes-the-next-rstd", FWD_ROW,
        ["= scratch->whole[threadIdx.x];", "= scratch->whole[(threadIdx.x + 1) % Rows];"],
        Tests::emulated(&["far_rows"]), "each row gets the rstd of its neighbour"),
    fault("row-keeps-h-unrounded", FWD_ROW,
        ["squares[s] = unit_squares(x[s]);", "{\n        if constexpr (Residual) {\n            float h[8];\n            for (int e = 0; e < 8; ++e) h[e] = __fadd_rn(element(load_unit(x_row + 16 * min(lane + s * Group, Units - 1)), e), element(residual[s], e));\n            squares[s] = unit_products(h, h);\n        } else {\n            squares[s] = unit_squares(x[s]);\n        }\n    }"],
        Tests::emulated(&["weights"]), "the sum of squares is that of x + residual, not of h"),
    fault("scan-drops-the-tail", SCAN,
        ["return first >= width ? 0u : min(8u, u32(width - first));", "return first + 8 > width ? 0u : 8u;"],
        Tests::emulated(&["gate::gate_widths"]), "a last unit of fewer than 8 elements is left out"),
    fault("scan-swaps-strides", FWD_SCAN,
        ["write_unit(y_row, p.column[Y], has_vectors(p, Y), first, count, y);", "write_unit(y_row, p.column[X], has_vectors(p, Y), first, count, y);"],
        Tests::emulated(&["layouts_of_outputs"]), "y is written with the stride between the columns of x"),
    fault("offset-is-dropped", ARGS,
        ["__fadd_rn(w.low(i), offset)", "w.low(i)"],
        Tests::emulated(&["weights"]), "1 + w is w in half of the columns"),
    fault("mean-of-the-padded-row", ROWS,
        ["const float h = __uint2float_rn(width);", "const float h = __uint2float_rn((width + 7) / 8 * 8);"],
        Tests::emulated(&["gate::gate_widths"]), "the sum of squares is divided by the width in whole units"),
    fault("fold-joins-neighbours", SUMS,
        ["for (u32 p = Lanes / 2; p > 0; p /= 2) value", "for (u32 p = 1; p < Lanes; p *= 2) value"],
        Tests::emulated(&["gate::gate_eps"]), "lanes are folded from near to far: another order of the sum"),
    fault("fold-lacks-a-barrier", SUMS,
        ["for (u32 i = 0; i < Count; ++i) scratch[i].value[threadIdx.x] = values[i];\n    __syncthreads();", "for (u32 i = 0; i < Count; ++i) scratch[i].value[threadIdx.x] = values[i];"],
        Tests::emulated(&["weights"]), "warps read each other's sums before they are written"),

    // RMSNorm, backward.
    fault("walk-loses-the-last-row", BWD_WALK,
        ["const u32 own = Group >= 32 ? count : first >= p.rows ? 0 : min(share, p.rows - first);", "const u32 own = first >= p.rows ? 0 : min(share, p.rows - 1 - first);"],
        Tests::emulated(&["backward::backward_narrow_rows"]), "the last row has no gradient"),
    fault("walk-drops-the-tail", BWD_WALK,
        ["const auto in_row = [&](u32 s) { return Units % Group == 0 || lane + s * Group < Units; };", "const auto in_row = [&](u32 s) { return lane + s * Group + 1 < Units; };"],
        Tests::emulated(&["backward::backward_narrow_rows"]), "the last unit of each row has no gradient"),
    fault("walk-takes-a-neighbours-rstd", BWD_WALK,
        ["__shfl_sync(0xffffffffu, rstds, (i + r) % leaf_rows, leaf_rows)", "__shfl_sync(0xffffffffu, rstds, (i + r + 1) % leaf_rows, leaf_rows)"],
        Tests::emulated(&["backward::backward_narrow_rows"]), "each row is normalised by the rstd of the next"),
    fault("walk-forgets-the-last-leaf", BWD_WALK,
        ["const bool last = i + Step >= count;", "const bool last = i + Step + leaf_rows >= count && (i + Step) % leaf_rows == 0;"],
        Tests::emulated(&["backward::backward_levels"]), "dw lacks the last leaf of a chunk"),
    fault("walk-hands-in-early", BWD_WALK,
        ["tree[q % 2 * Entries + q / 2 * Threads + threadIdx.x] = sums[q];\n            __syncthreads();", "tree[q % 2 * Entries + q / 2 * Threads + threadIdx.x] = sums[q];"],
        Tests::emulated(&["backward::backward_narrow_rows"]), "a chunk's root is joined before all groups have theirs"),
    fault("split-drops-a-row-of-the-leaf", BWD_SPLIT,
        ["if (row < p.rows && unit < Width / 8) {", "if (row + 1 < p.rows && unit < Width / 8) {"],
        Tests::emulated(&["backward::backward_narrow_rows"]), "dw lacks the last row"),
    fault("split-mistakes-the-row", BWD_SPLIT,
        ["const u32 row = (blockIdx.x - tasks) * Rows + threadIdx.x / Group;", "const u32 row = blockIdx.x * Rows + threadIdx.x / Group;"],
        Tests::emulated(&["backward::backward_narrow_rows"]), "rows are counted from the CTAs that take columns"),
    fault("dh-after-rounding", GRADIENT,
        ["if constexpr (Residual) dx[e] = __fadd_rn(dx[e], element(dh, e));", "if constexpr (Residual) dx[e] = __fadd_rn(low_float(round_pair(dx[e], 0.0f)), element(dh, e));"],
        Tests::emulated(&["backward::backward_forms"]), "dx is rounded before dh is added"),
    fault("scan-takes-one-c", BWD_SCAN,
        ["const float rstd = stats[group][0][i], c = stats[group][1][i];", "const float rstd = stats[group][0][i], c = stats[group][1][0];"],
        Tests::emulated(&["backward::backward_forms"]), "the rows of a leaf share the projection of the first"),
    fault("tree-joins-the-wrong-side", TREE,
        ["each(level, [&](u32 q, auto load, auto) { sums[q] = load() + sums[q]; });", "each(level ^ (level == 1), [&](u32 q, auto load, auto) { sums[q] = load() + sums[q]; });"],
        Tests::emulated(&["backward::backward_levels"]), "level 1 of the row tree is read at level 0"),
    fault("tree-joins-far-leaves", TREE,
        ["for (u32 span = 1; span < Count; span *= 2) {\n#pragma unroll\n        for (u32 g = 0; g + span < Count; g += 2 * span) roots[g] = roots[g] + roots[g + span];", "for (u32 span = Count / 2; span > 0; span /= 2) {\n#pragma unroll\n        for (u32 g = 0; g < span; ++g) roots[g] = roots[g] + roots[g + span];"],
        Tests::emulated(&["backward::backward_narrow_rows"]), "subtrees are joined as in the fold, far ones first"),
    fault("lanes-lack-a-barrier", TREE,
        ["shared[q * Threads + threadIdx.x] = sum[q];\n        }\n        __syncthreads();", "shared[q * Threads + threadIdx.x] = sum[q];\n        }"],
        Tests::emulated(&["backward::backward_narrow_rows"]), "sums of other lanes are read before they are written"),
    fault("root-in-the-wrong-slot", WEIGHT_GRADIENT,
        ["store_quad(roots(p) + 16 * (u64(chunk) * ceil_div(p.width, 4) + quad), root);", "store_quad(roots(p) + 16 * (u64(chunk == 1 ? 0 : chunk) * ceil_div(p.width, 4) + quad), root);"],
        Tests::emulated(&["backward::backward_narrow_rows"]), "the second chunk's root takes the place of the first: a stale one stays"),
    fault("no-grid-barrier", WEIGHT_GRADIENT,
        ["grid_barrier(reinterpret_cast<u32*>(p.workspace));\n    const u32 quads", "const u32 quads"],
        Tests::emulated(&["backward::backward_narrow_rows"]), "roots are joined before all CTAs have handed theirs in"),
    fault("grid-barrier-waits-for-nobody", BARRIER,
        ["((before ^ now) & grid_barrier_flip) == 0;", "((before ^ now) & grid_barrier_flip) == 0 && polls > 0;"],
        Tests::emulated(&["backward::backward_narrow_rows"]), "a CTA arrives and goes on"),
    fault("grid-barrier-holds-one-thread", BARRIER,
        ["        }\n    }\n    __syncthreads();\n}", "        }\n    }\n}"],
        Tests::emulated(&["backward::backward_narrow_rows"]), "the threads beside the one that waits go on"),
    fault("dw-ignores-what-was-there", WEIGHT_GRADIENT,
        ["dw = p.accumulate ? __fadd_rn(dw, root) : root;", "dw = root;"],
        Tests::emulated(&["backward::backward_forms"]), "an accumulating call overwrites dw"),
    fault("dw-of-the-wrong-dtype", WEIGHT_GRADIENT,
        ["if (p.dw_fp32) {", "if (!p.dw_fp32) {"],
        Tests::emulated(&["backward::backward_forms"]), "FP32 is written where BF16 is asked for"),
    fault("join-lacks-the-last-shard", JOIN,
        ["for (u32 rest = shard; rest != 0 && (last || (rest & 1)); rest >>= 1, ++level) {", "for (u32 rest = shard; rest != 0 && (rest & 1); rest >>= 1, ++level) {"],
        Tests::emulated(&["backward::shards_combine"]), "what waits is not joined where the shards are no power of two"),

    // Gated RMSNorm.
    fault("gate-loses-the-last-row", GATE_FWD_ROW,
        ["if (row < p.rows) Own::store(p.y", "if (row + 1 < p.rows) Own::store(p.y"],
        Tests::emulated(&["gate::gate_rows"]), "the last row is not written"),
    fault("gate-lacks-a-barrier", GATE_FWD_ROW,
        ["weights[i] = weight(p.weight, p.weight_fp32, i);\n    __syncthreads();", "weights[i] = weight(p.weight, p.weight_fp32, i);"],
        Tests::emulated(&["gate::gate_rows"]), "weights are used before other threads have unpacked them"),
    fault("gate-of-the-wrong-tensor", GATE_FWD_SCAN,
        ["if constexpr (F.first) gates.set(z.read(first, count).pair);", "if constexpr (F.first) gates.set(x.read(first, count).pair);"],
        Tests::emulated(&["gate::gate_widths"]), "with the gate first, x gates itself in the sum of squares"),
    fault("exponential-is-truncated", GATE,
        ["float q = 0x1.44138ap-13f;", "float q = 0.0f;"],
        Tests::emulated(&["gate::gate_of_every_z"]), "the exponential lacks a term: right to an ulp or two, but not the bits"),
    fault("sigmoid-unrefined", GATE,
        ["const float s = __fmaf_rn(r, __fmaf_rn(-low, r, __fmaf_rn(-high, r, 1.0f)), r);", "const float s = r;"],
        Tests::emulated(&["gate::gate_of_every_z"]), "the board's own reciprocal decides the last bits"),
    fault("far-gates-as-near-ones", GATE,
        ["if (max(most & 0xffffu, most >> 16) <= near_bits) {", "if (max(most & 0xffffu, most >> 16) <= near_bits + 64) {"],
        Tests::emulated(&["gate::gate_of_every_z"]), "large z overflow on the way"),
    fault("slope-without-its-rest", GATE_GRADIENT,
        ["to_z[e] = __fmul_rn(__fmul_rn(to_x[e], element(x, e)), gates.slope(e));\n                to_x[e] = __fmul_rn(to_x[e], gates.gate(e));", "to_x[e] = __fmul_rn(to_x[e], gates.gate(e));\n                to_z[e] = __fmul_rn(__fmul_rn(to_x[e], element(x, e)), gates.slope(e));"],
        Tests::emulated(&["gate::gate_rows"]), "with the gate first, dz is made of the gated gradient"),
    fault("gate-walk-stays-at-its-level", GATE_BWD_WALK,
        ["if (last) continue;\n#pragma unroll\n            for (u32 q = 0; q < Quads; ++q) {\n                tree[(level * Quads + q) * Threads] = sums[q];", "if (last) continue;\n#pragma unroll\n            for (u32 q = 0; q < Quads; ++q) {\n                tree[((level == 1 ? 0 : level) * Quads + q) * Threads] = sums[q];"],
        Tests::emulated(&["gate::gate_levels"]), "sums of 16 rows wait where those of 8 do"),
    fault("gate-few-reads-early", GATE_BWD_FEW,
        ["if (p.dw == nullptr) continue;\n        __syncthreads();", "if (p.dw == nullptr) continue;"],
        Tests::emulated(&["gate::gate_rows"]), "terms of a leaf are added before they are there"),
    fault("gate-few-takes-one-row-more", GATE_BWD_FEW,
        ["const bool there = row < p.rows;", "const bool there = row <= p.rows;"],
        Tests::emulated(&["gate::gate_rows"]), "a row beyond the last is written, and counts in dw"),
    fault("gate-scan-lacks-the-last-leaf", GATE_BWD_SCAN,
        ["const bool last = (leaf + 1) * leaf_rows >= count;", "const bool last = (leaf + 1) * leaf_rows > count;"],
        Tests::emulated(&["gate::gate_levels"]), "a root is not written where the last leaf is whole"),
    fault("small-chunks-in-the-wrong-place", WEIGHT_GRADIENT,
        ["return (7 * large + chunk) * (p.chunk / 8);", "return (7 * large + chunk) * (p.chunk / 8) + (chunk > p.large ? p.chunk / 8 : 0);"],
        Tests::emulated(&["gate::gate_levels"]), "small chunks behind large ones begin a chunk too late"),
];
