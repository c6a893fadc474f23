//! Faults of the host code: the host path, the checks of arguments, and what tells a kernel its work.

use super::tests::Tests;
use super::{Fault, fault};

/// Tests inside cake-core.
const fn core(names: &'static [&'static str]) -> Tests {
    Tests::of("cake-core", "cake-core", names)
}

const fn sums(names: &'static [&'static str]) -> Tests {
    Tests::of("cake-core", "sums", names)
}

const fn properties(names: &'static [&'static str]) -> Tests {
    Tests::of("cake-core", "properties", names)
}

/// Properties of calls and routes.
const fn calls(names: &'static [&'static str]) -> Tests {
    Tests::of("cake-verify", "properties", names)
}

const DTYPE: &str = "crates/cake-core/src/dtype.rs";
const FAST: &str = "crates/cake-core/src/sums/fast.rs";
const RMS: &str = "crates/cake-core/src/sums/rms.rs";
const VIEW: &str = "crates/cake-core/src/view.rs";
const OVERLAP: &str = "crates/cake-core/src/overlap.rs";
const BIND: &str = "crates/cake-core/src/bind.rs";
const ROWS: &str = "crates/cake-core/src/rows.rs";
const HOST: &str = "crates/cake-core/src/host.rs";
const CHUNKS: &str = "crates/cake-core/src/chunks.rs";
const NORM_BACKWARD: &str = "crates/cake-rmsnorm/src/backward.rs";
const NORM_FORWARD: &str = "crates/cake-rmsnorm/src/forward.rs";
const ROUTES: &str = "crates/cake-rmsnorm/src/routes/mod.rs";
const GATE: &str = "crates/cake-silu-gate/src/gate.rs";
const GATE_BACKWARD: &str = "crates/cake-silu-gate/src/backward.rs";

/// Every fault.
#[rustfmt::skip]
pub(super) const FAULTS: &[Fault] = &[
    // Arithmetic.
    fault("ties-away-from-even", DTYPE,
        ["bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16", "bits.wrapping_add(0x8000) >> 16"],
        core(&["dtype::tests::every_rounding_decision_is_as_in_half"]), "half of the ties round to odd"),
    fault("nan-rounds-to-a-number", DTYPE,
        ["if value.is_nan() { quiet } else { nearest } as u16", "nearest as u16"],
        core(&["dtype::tests::every_rounding_decision_is_as_in_half"]), "a NaN becomes an infinity or a zero"),
    fault("fma-rounds-twice", FAST,
        ["*acc = a[i].to_f32().mul_add(b[i].to_f32(), *acc);", "*acc += a[i].to_f32() * b[i].to_f32();"],
        sums(&["folds_are_plain_f32"]), "products are rounded before they are added"),
    fault("chains-interleaved", FAST,
        ["let acc = &mut chains[i / CHAIN];", "let acc = &mut chains[i % 2];"],
        sums(&["folds_are_plain_bf16"]), "even and odd elements are added apart: another order"),
    fault("tree-joins-too-late", FAST,
        ["(0..(self.rows / LEAF_ROWS).trailing_zeros())", "(1..(self.rows / LEAF_ROWS).trailing_zeros())"],
        sums(&["every_number_of_pushed_rows_is_plain"]), "subtrees wait a level too long: another order"),
    fault("tree-lacks-the-last-leaf", FAST,
        ["while self.subtrees.len() > self.width {", "while self.subtrees.len() > 2 * self.width {"],
        sums(&["every_number_of_pushed_rows_is_plain"]), "dw lacks the rows behind the last whole subtree"),
    fault("dh-before-the-product", RMS,
        ["let dx = rstd * (-xhat).mul_add(c, g);\n    X::from_f32(dh.map_or(dx, |dh| dx + dh.to_f32()))", "let dx = rstd * (-xhat).mul_add(c, g);\n    dh.map_or(X::from_f32(dx), |dh| X::from_f32(X::from_f32(dx).to_f32() + dh.to_f32()))"],
        sums(&["the_steps_of_dx_round_as_specified"]), "dx is rounded before dh is added"),
    fault("accumulation-forgets", RMS,
        ["E::from_f32(old.map_or(root, |old| old.to_f32() + root))", "{\n        let _ = old;\n        E::from_f32(root)\n    }"],
        sums(&["weight_gradients_accumulate_in_f32_and_round_once"]), "an accumulating call overwrites dw"),
    fault("mean-by-whole-units", RMS,
        ["let mean = ss / width as f32;", "let mean = ss / width.next_multiple_of(8) as f32;"],
        sums(&["edges_of_rstd"]), "the sum of squares is divided by the width in whole units"),
    fault("no-offset-adds-zero", RMS,
        ["if one_plus { 1.0 } else { -0.0 }", "if one_plus { 1.0 } else { 0.0 }"],
        sums(&["no_offset_leaves_every_weight"]), "a weight of -0 becomes +0"),
    // Views, and which of them may share memory.
    fault("extent-in-32-bits", VIEW,
        ["checked_add((size as u128 - 1).checked_mul(stride as u128)?)?", "checked_add((size as u32 as u128).wrapping_sub(1).checked_mul(stride as u128)?)?"],
        properties(&["an_accepted_view_lies_in_its_buffer"]), "a size of 2^32 rows counts as none"),
    fault("extent-an-element-short", VIEW,
        ["last.checked_add(1)?.checked_mul(self.dtype.size() as u128)", "last.checked_mul(self.dtype.size() as u128)"],
        properties(&["an_accepted_view_lies_in_its_buffer"]), "a view may reach an element beyond its buffer"),
    fault("outputs-may-touch", VIEW,
        ["if (stride as u128) < span && !self.is_empty() {", "if (stride as u128) + 1 < span && !self.is_empty() {"],
        properties(&["an_accepted_view_lies_in_its_buffer"]), "neighbouring rows of an output share an element"),
    fault("overlap-an-element-short", OVERLAP,
        ["(stride as i128 * size, n as i128 - 1)", "(stride as i128 * size, n as i128 - 2)"],
        Tests::of("cake-core", "overlap", &["overlap_is_what_looking_at_every_byte_says"]), "an overlap with the last element is not seen"),
    fault("overlap-off-by-one", OVERLAP,
        ["b.dtype.size() as i128 - 1 - base, &mut budget", "b.dtype.size() as i128 - base, &mut budget"],
        Tests::of("cake-core", "overlap", &["overlap_is_what_looking_at_every_byte_says"]), "neighbours that share no byte are refused"),
    // Rows.
    fault("fold-asks-one-tensor", ROWS,
        ["(0..N).all(|n| strides[n][dimension]", "(0..N).any(|n| strides[n][dimension]"],
        properties(&["a_bound_row_is_where_its_indices_say"]), "dimensions fold though some tensor has a gap there"),
    fault("three-levels-to-tuned-programs", BIND,
        ["let all_vectors = rows.levels <= 2 &&", "let all_vectors = rows.levels <= 3 &&"],
        properties(&["a_bound_row_is_where_its_indices_say"]), "a tuned program gets rows that it cannot find"),
    fault("alignment-of-the-address-alone", BIND,
        ["&& steps.iter().all(|step| aligned(step.wrapping_mul(view.dtype.size() as u64)));", "&& (steps.is_empty() || aligned(steps[0]));"],
        properties(&["a_bound_row_is_where_its_indices_say"]), "rows at odd pitches count as aligned"),
    fault("rows-beyond-31-bits", BIND,
        [".filter(|&count| count <= i32::MAX as u32)", ".filter(|_| true)"],
        properties(&["a_bound_row_is_where_its_indices_say"]), "a kernel's row index overflows"),
    fault("host-swaps-strides", HOST,
        ["self.lead.iter().zip(self.view.strides()).rev()", "self.lead.iter().rev().zip(self.view.strides())"],
        properties(&["the_host_reads_and_writes_rows_in_place"]), "the strides of leading dimensions are taken in reverse"),
    fault("host-loses-the-last-task", HOST,
        ["(0..rows.div_ceil(chunk)).into_par_iter()", "(0..(rows / chunk).max(1)).into_par_iter()"],
        Tests::verify(&["many_rows"]), "rows of the last task are not computed"),
    fault("tasks-are-no-subtrees", HOST,
        ["LEAF_ROWS as u64 * leaves.next_power_of_two();", "LEAF_ROWS as u64 * leaves;"],
        properties(&["rows_in_tasks_have_the_sum_of_all"]), "dw of very many rows is added in another order"),
    fault("host-loses-the-last-row", HOST,
        ["(task * chunk..rows.min((task + 1) * chunk))", "(task * chunk..(rows - 1).min((task + 1) * chunk))"],
        properties(&["the_host_reads_and_writes_rows_in_place"]), "the last row is not computed"),
    // What a call is told.
    fault("dtype-by-its-size", BIND,
        ["if view.dtype != dtype {", "if view.dtype.size() != dtype.size() {"],
        Tests::verify(&["arguments"]), "FP16 is read as BF16"),
    fault("residual-may-be-y", NORM_FORWARD,
        ["&[(\"y\", \"x\"), (\"h\", \"residual\")]", "&[(\"y\", \"x\"), (\"y\", \"residual\"), (\"h\", \"residual\")]"],
        Tests::verify(&["arguments"]), "y overwrites the residual that h is made of"),
    fault("no-rows-leave-dw", NORM_BACKWARD,
        ["shape.rows == 0 && (spec.dw.is_none() || spec.accumulate)", "shape.rows == 0"],
        Tests::verify(&["backward_no_rows"]), "dw of no rows keeps what was there"),
    fault("max-sms-is-ignored", CHUNKS,
        ["self.max_sms.map_or(self.device.sms, |most| most.min(self.device.sms))", "self.device.sms"],
        calls(&["a_route_leads_to_a_program_that_serves"]), "a call takes SMs that were to be left to others"),
    fault("workspace-a-cta-short", CHUNKS,
        ["sums * sum + u64::from(ctas) * waiting;", "sums * sum + u64::from(ctas - 1) * waiting;"],
        Tests::emulated(&["backward::backward_narrow_rows"]), "sums of the last CTA wait beyond the workspace"),
    fault("workspace-for-these-rows-alone", NORM_BACKWARD,
        ["divider(spec, kernel, device).workspace_for_up_to(rows)", "divider(spec, kernel, device).chunks(rows).workspace"],
        Tests::of("cake-verify", "coverage", &["a_workspace_for_many_rows_serves_fewer"]), "fewer rows may need more workspace"),
    fault("split-while-dy-is-overwritten", ROUTES,
        ["} else if !shape.in_place {", "} else if spec.rstd {"],
        calls(&["a_route_leads_to_a_program_that_serves"]), "a route sends a call in place to a program that reads dy after dx is written"),
    fault("levels-beyond-shared-memory", GATE_BACKWARD,
        ["u64::from(shape.rows) * u64::from(spec.norm.width) <= 1 << 32", "u64::from(shape.rows) * u64::from(spec.norm.width) <= 1 << 40"],
        Tests::of("cake-verify", "coverage", &["every_gated_call_has_a_route"]), "a route sends deeper trees to a program than shared memory holds"),
    fault("exponential-lacks-a-term", GATE,
        ["f32::from_bits(0x3922_09c5),", "0.0,"],
        Tests::of("cake-verify", "sigmoid", &["has_the_published_bits"]), "the host's sigmoid has bits of its own"),
];
