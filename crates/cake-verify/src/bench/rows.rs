//! What is timed: rows as data, in groups that each say why they are there.

use std::fmt;

use cake_core::Dtype;
use cake_rmsnorm::{BackwardSpec, Spec};

use crate::cases::Form;
use crate::cases::layout::Layout;
use crate::cases::shapes::TUNED;

/// What is timed as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// The forward, `rstd` asked for.
    Forward,
    /// The backward with both gradients, `rstd` given.
    Backward,
    /// The backward with `dx` alone.
    Dx,
    /// The backward with `dw` alone.
    Dw,
    /// The forward and then the backward with both gradients.
    Step,
}

/// One call, or a forward and its backward.
#[derive(Clone, Debug)]
pub struct Row {
    /// What the figure tells.
    pub why: &'static str,
    /// What is called.
    pub calls: Calls,
    /// The form of the norm.
    pub spec: Spec,
    /// Whether it is the gated norm, which is asked for no `rstd`, and given none.
    pub gate: bool,
    /// Leading dimensions; their product is the number of rows.
    pub lead: Vec<u64>,
    /// Where `x` and `residual` lie. Tensors of a backward are contiguous.
    pub inputs: Layout,
    /// Where `y` and `h` lie.
    pub outputs: Layout,
    /// What the name says of the layouts; empty for contiguous ones.
    pub layout: &'static str,
}

/// Every combination of some widths and numbers of rows.
struct Group {
    why: &'static str,
    form: Form,
    widths: &'static [u32],
    rows: &'static [u64],
}

const PLAIN: Form = Form::COMMON[0];
const RESIDUAL: Form = Form::COMMON[1];

/// Without those that are timed at the numbers of packed sequences instead.
const ROUND: [u32; 14] = [128, 256, 1024, 1536, 2560, 2880, 3072, 3584, 4096, 5120, 7168, 8192, 12288, 16384];
const ROUND_RESIDUAL: [u32; 16] =
    [128, 256, 512, 1024, 1536, 2048, 2560, 2880, 3072, 3584, 4096, 5120, 7168, 8192, 12288, 16384];
/// A narrow, a usual and a wide one, for which every number of rows is timed.
const SWEPT: [u32; 3] = [512, 2048, 6144];
const SWEPT_RESIDUAL: [u32; 1] = [6144];
/// Widths between those, and the numbers of rows that they are timed at.
const BETWEEN: [u32; 4] = [1536, 4096, 7168, 8192];
const BETWEEN_ROWS: [u64; 2] = [4096, 16384];
/// From few rows to many.
const SWEEP: [u64; 7] = [256, 1024, 4096, 16172, 16231, 32768, 65536];

const FEW: &str = "few rows: starting and ending weigh more than bytes";
const WAVE: &str = "as many rows as run at once, or a few times that: one wave";
const SEQUENCE: &str = "one sequence: from a fraction of L2 to several times its size";
const BATCH: &str = "a batch of four sequences: for most widths the memory's rate decides";
const PACKED: &str = "packed sequences: a number of rows that no tile divides; 16231 is prime";
const PACKED_HEADS: &str = "packed sequences of 48 heads: some tokens more or less than a round of tiles";
const LONG: &str = "long: the last per cent of the memory's rate";
const F32_WEIGHT: &str = "an FP32 weight takes more registers and twice the loads";
const NO_WEIGHT: &str = "no weight: kernels of their own";
const OFFSET: &str = "1 + w, as Gemma has it: one more addition for each element";
const ANY: &str = "a width without a program of its own: what the promise of any width costs";

const ALONE: &str = "one gradient alone: for a frozen weight, or for a first layer";
const STEP: &str = "a step of training: the backward finds what the forward left in L2";

const GROUPS: [(Calls, &[Group]); 5] = [
    (Calls::Forward, FORWARD),
    (Calls::Backward, BACKWARD),
    (Calls::Dx, ONE_GRADIENT),
    (Calls::Dw, ONE_GRADIENT),
    (Calls::Step, STEPS),
];

const FORWARD: &[Group] = &[
    Group { why: "nothing to move: the latency of a call", form: PLAIN, widths: &[1], rows: &[1] },
    Group { why: FEW, form: PLAIN, widths: &TUNED, rows: &[256] },
    Group { why: WAVE, form: PLAIN, widths: &SWEPT, rows: &[1024] },
    Group { why: SEQUENCE, form: PLAIN, widths: &TUNED, rows: &[4096] },
    Group { why: BATCH, form: PLAIN, widths: &ROUND, rows: &[16384] },
    Group { why: PACKED, form: PLAIN, widths: &SWEPT, rows: &[16172, 16231] },
    Group { why: LONG, form: PLAIN, widths: &SWEPT, rows: &[32768, 65536] },
    Group { why: FEW, form: RESIDUAL, widths: &TUNED, rows: &[256] },
    Group { why: WAVE, form: RESIDUAL, widths: &SWEPT_RESIDUAL, rows: &[1024] },
    Group { why: SEQUENCE, form: RESIDUAL, widths: &TUNED, rows: &[4096] },
    Group { why: BATCH, form: RESIDUAL, widths: &ROUND_RESIDUAL, rows: &[16384] },
    Group { why: PACKED, form: RESIDUAL, widths: &SWEPT_RESIDUAL, rows: &[16172, 16231] },
    Group { why: LONG, form: RESIDUAL, widths: &SWEPT_RESIDUAL, rows: &[32768, 65536] },
    Group {
        why: F32_WEIGHT,
        form: Form { weight: Some(Dtype::F32), ..PLAIN },
        widths: &[2048, 6144],
        rows: &[4096, 16384],
    },
    Group {
        why: F32_WEIGHT,
        form: Form { weight: Some(Dtype::F32), ..RESIDUAL },
        widths: &[6144],
        rows: &[4096, 16384],
    },
    Group { why: NO_WEIGHT, form: Form { weight: None, ..PLAIN }, widths: &[6144], rows: &[4096, 16384] },
    Group { why: OFFSET, form: Form { offset: true, ..PLAIN }, widths: &[2048, 3072], rows: &[4096, 16384] },
    Group { why: ANY, form: PLAIN, widths: &[1000], rows: &[16384] },
    Group { why: ANY, form: PLAIN, widths: &[53248], rows: &[1024] },
];

const BACKWARD: &[Group] = &[
    Group { why: FEW, form: PLAIN, widths: &TUNED, rows: &[256] },
    Group { why: WAVE, form: PLAIN, widths: &SWEPT, rows: &[1024] },
    Group { why: SEQUENCE, form: PLAIN, widths: &TUNED, rows: &[4096] },
    Group { why: BATCH, form: PLAIN, widths: &TUNED, rows: &[16384] },
    Group { why: PACKED, form: PLAIN, widths: &SWEPT, rows: &[16172, 16231] },
    Group { why: LONG, form: PLAIN, widths: &SWEPT, rows: &[32768, 65536] },
    Group {
        why: "dh is a third tensor to read: from few rows to many",
        form: RESIDUAL,
        widths: &SWEPT_RESIDUAL,
        rows: &SWEEP,
    },
];

const ONE_GRADIENT: &[Group] = &[Group { why: ALONE, form: PLAIN, widths: &[6144], rows: &[4096, 65536] }];

const STEPS: &[Group] = &[
    Group { why: STEP, form: PLAIN, widths: &SWEPT, rows: &SWEEP },
    Group { why: STEP, form: PLAIN, widths: &BETWEEN, rows: &BETWEEN_ROWS },
    Group { why: STEP, form: RESIDUAL, widths: &SWEPT_RESIDUAL, rows: &SWEEP },
];

/// Tokens and heads of the gated norm, of 128 elements each.
const GATED: [([u64; 2], &str); 9] = [
    ([256, 32], FEW),
    ([1024, 32], WAVE),
    ([4096, 32], SEQUENCE),
    ([16384, 32], BATCH),
    ([7600, 48], PACKED_HEADS),
    ([9500, 48], PACKED_HEADS),
    ([11400, 48], PACKED_HEADS),
    ([16384, 48], LONG),
    ([32737, 48], LONG),
];

/// Every row.
pub fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for (calls, groups) in GROUPS {
        for group in groups {
            for &width in group.widths {
                let row = |&count| Row { calls, ..Row::new(group.why, group.form, width, vec![count]) };
                rows.extend(group.rows.iter().map(row));
            }
        }
    }
    rows.push(Row {
        inputs: Layout::Strides(&[6144, 128]),
        layout: "qkv",
        ..Row::new(
            "32 query heads inside the rows of a joint projection: two levels of rows",
            PLAIN,
            128,
            vec![4096, 32],
        )
    });
    for calls in [Calls::Forward, Calls::Backward, Calls::Step] {
        let row = |(lead, why): ([u64; 2], &'static str)| Row {
            calls,
            gate: true,
            ..Row::new(why, PLAIN, 128, lead.to_vec())
        };
        rows.extend(GATED.map(row));
    }
    rows.push(Row {
        inputs: Layout::Pitch(2),
        outputs: Layout::Pitch(2),
        layout: "pitch2",
        ..Row::new("rows twice as far apart as they are wide: one half of a split tensor", PLAIN, 4096, vec![16384])
    });
    rows
}

impl Row {
    /// A forward of contiguous tensors.
    pub fn new(why: &'static str, form: Form, width: u32, lead: Vec<u64>) -> Row {
        let spec = Spec { width, ..form.spec() };
        Row {
            why,
            calls: Calls::Forward,
            spec,
            gate: false,
            lead,
            inputs: Layout::Contiguous,
            outputs: Layout::Contiguous,
            layout: "",
        }
    }

    /// Rows in all.
    pub fn count(&self) -> u64 {
        self.lead.iter().product()
    }

    /// Whether the forward is called.
    pub fn forward(&self) -> bool {
        matches!(self.calls, Calls::Forward | Calls::Step)
    }

    /// What the plan of the backward fixes, if it is called.
    pub fn backward(&self) -> Option<BackwardSpec> {
        let (dx, dw) = match self.calls {
            Calls::Forward => return None,
            Calls::Backward | Calls::Step => (true, true),
            Calls::Dx => (true, false),
            Calls::Dw => (false, true),
        };
        Some(BackwardSpec { dx, dw: dw.then_some(Dtype::Bf16), ..BackwardSpec::new(self.spec) })
    }

    /// What the plan of a gated forward fixes.
    pub fn gate_spec(&self) -> cake_silu_gate::Spec {
        let weight = self.spec.weight.expect("a gated norm has a weight");
        cake_silu_gate::Spec { weight, ..cake_silu_gate::Spec::new(self.spec.width) }
    }

    /// The same of the backward, which computes all gradients.
    pub fn gate_backward_spec(&self) -> cake_silu_gate::BackwardSpec {
        cake_silu_gate::BackwardSpec { dw: Some(Dtype::Bf16), ..cake_silu_gate::BackwardSpec::new(self.gate_spec()) }
    }

    /// The least that must move.
    pub fn bytes(&self) -> u64 {
        self.forward_bytes() + self.backward_bytes()
    }

    /// By the forward: `x` and `y`, `residual` and `h` where there are any, `rstd`, the weight; with a gate `x`, `z` and `y`.
    fn forward_bytes(&self) -> u64 {
        if self.gate && self.forward() {
            return self.activations(3) + self.of_width(self.spec.weight);
        }
        if self.forward() { self.activations(2 * self.pairs()) + self.of_width(self.spec.weight) } else { 0 }
    }

    /// By the backward: `x` and `dy`, `rstd`, for `dx` itself, the weight and `dh` where there is one, `dw`; with a gate `x`,
    /// `z`, `dy`, `dx` and `dz`.
    fn backward_bytes(&self) -> u64 {
        let Some(spec) = self.backward() else { return 0 };
        if self.gate {
            return self.activations(5) + self.of_width(spec.norm.weight) + self.of_width(spec.dw);
        }
        let (tensors, weight) = if spec.dx { (2 + self.pairs(), spec.norm.weight) } else { (2, None) };
        self.activations(tensors) + self.of_width(weight) + self.of_width(spec.dw)
    }

    /// So many activations, and `rstd` where the call has it.
    fn activations(&self, tensors: u64) -> u64 {
        self.count() * (2 * tensors * u64::from(self.spec.width) + if self.gate { 0 } else { 4 })
    }

    fn of_width(&self, dtype: Option<Dtype>) -> u64 {
        dtype.map_or(0, |dtype| u64::from(self.spec.width) * dtype.size() as u64)
    }

    /// Pairs of an activation that the forward reads and one that it writes; for `dx`, activations beside `x` and `dy`.
    fn pairs(&self) -> u64 {
        if self.spec.residual { 2 } else { 1 }
    }

    /// Bytes of each of the copies that together read and write as much as the forward: two with a residual, else one. With
    /// a gate, of each stream of an addition that reads two and writes one, in whole units.
    pub fn bytes_of_copy(&self) -> u64 {
        match self.gate {
            true => self.forward_bytes().div_ceil(3).next_multiple_of(16),
            false => self.forward_bytes().div_ceil(2 * self.pairs()),
        }
    }

    /// Bytes of each stream of the addition that reads and writes as much as the backward: three are read with a
    /// residual, else two; with a gate three, and two are written. In whole units.
    pub fn bytes_of_add(&self) -> u64 {
        let streams = if self.gate { 5 } else { 2 + self.pairs() };
        self.backward_bytes().div_ceil(streams).next_multiple_of(16)
    }
}

impl fmt::Display for Row {
    /// The name: calls, form, layout, width, rows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.calls {
            Calls::Forward if self.gate => return write!(f, "gate{}", self.size()),
            Calls::Forward => "rms",
            Calls::Backward | Calls::Dx | Calls::Dw => "bwd",
            Calls::Step => "step",
        })?;
        f.write_str(if self.spec.residual { "+res" } else { "" })?;
        f.write_str(if self.gate { "+gate" } else { "" })?;
        match self.calls {
            Calls::Dx => f.write_str("/dx")?,
            Calls::Dw => f.write_str("/dw")?,
            Calls::Forward | Calls::Backward | Calls::Step => {}
        }
        match self.spec.weight {
            Some(Dtype::F32) => f.write_str("/w32")?,
            None => f.write_str("/w0")?,
            Some(_) => {}
        }
        if self.spec.offset {
            f.write_str("/1+w")?;
        }
        if !self.layout.is_empty() {
            write!(f, "/{}", self.layout)?;
        }
        f.write_str(&self.size())
    }
}

impl Row {
    /// Width and rows, as they stand in the name.
    fn size(&self) -> String {
        let lead: Vec<String> = self.lead.iter().map(u64::to_string).collect();
        format!("/H{}/T{}", self.spec.width, lead.join("x"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn names() -> Vec<String> {
        all().iter().map(Row::to_string).collect()
    }

    #[test]
    fn names_are_unique() {
        let names = names();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    }

    #[test]
    fn every_tuned_width_has_few_one_sequence_and_many_rows_in_both_forms() {
        let rows = all();
        for width in TUNED {
            for residual in [false, true] {
                for counts in [256..=256, 4096..=4096, 16172..=16384] {
                    let found = rows.iter().any(|row| {
                        (row.spec.width, row.spec.residual, row.gate) == (width, residual, false)
                            && row.calls == Calls::Forward
                            && row.layout.is_empty()
                            && counts.contains(&row.count())
                    });
                    assert!(found, "no row of width {width} with {counts:?} rows, residual: {residual}");
                }
            }
        }
    }

    #[test]
    fn every_row_that_peers_were_timed_at_is_here() {
        let all = [256, 1024, 4096, 16172, 16231, 32768, 65536];
        let plain = [(512, &all[..]), (2048, &all), (6144, &all)];
        let rest = [1536, 4096, 7168, 8192].map(|width| (width, &[4096, 16384][..]));
        let names = names();
        for calls in ["rms", "bwd", "step"] {
            for (width, counts) in plain.into_iter().chain(rest) {
                for count in counts {
                    assert!(names.contains(&format!("{calls}/H{width}/T{count}")), "{calls} {width} {count}");
                }
            }
            for count in all {
                assert!(names.contains(&format!("{calls}+res/H6144/T{count}")), "{calls} {count}");
            }
        }
    }

    #[test]
    fn every_gated_row_that_peers_were_timed_at_is_here() {
        for calls in ["gate", "bwd+gate", "step+gate"] {
            for lead in
                ["256x32", "1024x32", "4096x32", "16384x32", "7600x48", "9500x48", "11400x48", "16384x48", "32737x48"]
            {
                let name = format!("{calls}/H128/T{lead}");
                assert!(names().contains(&name), "{name}");
            }
        }
        let row = all().into_iter().find(|row| row.to_string() == "step+gate/H128/T256x32").unwrap();
        assert_eq!(row.bytes(), 256 * 32 * (768 + 1280) + 3 * 256);
    }

    #[test]
    fn names_say_what_sets_a_row_apart() {
        for name in ["rms/w32/H2048/T4096", "rms/w0/H6144/T4096", "rms/1+w/H3072/T4096", "rms/qkv/H128/T4096x32"] {
            assert!(names().contains(&name.to_string()), "{name}");
        }
        for name in ["bwd/H2880/T256", "bwd/dx/H6144/T4096", "bwd/dw/H6144/T65536"] {
            assert!(names().contains(&name.to_string()), "{name}");
        }
    }

    #[test]
    fn bytes_are_those_of_the_tensors() {
        let (t, h) = (16, 2048);
        let plain = Row::new("", PLAIN, h as u32, vec![t]);
        assert_eq!(plain.bytes(), 4 * t * h + 4 * t + 2 * h);
        assert_eq!(plain.bytes_of_copy() * 2, plain.bytes());
        let residual = Row::new("", Form { weight: Some(Dtype::F32), ..RESIDUAL }, h as u32, vec![t]);
        assert_eq!(residual.bytes(), 8 * t * h + 4 * t + 4 * h);
        assert_eq!(residual.bytes_of_copy() * 4, residual.bytes());

        let of = |row: &Row, calls| Row { calls, ..row.clone() };
        let [dx, dw] = [Calls::Dx, Calls::Dw].map(|calls| of(&plain, calls).bytes());
        assert_eq!(dx, 6 * t * h + 4 * t + 2 * h);
        assert_eq!(dw, 4 * t * h + 4 * t + 2 * h);
        assert_eq!(of(&plain, Calls::Backward).bytes(), dx + 2 * h);
        assert_eq!(of(&residual, Calls::Backward).bytes(), 8 * t * h + 4 * t + 6 * h);
        assert_eq!(of(&plain, Calls::Step).bytes(), plain.bytes() + dx + 2 * h);
        for row in [of(&plain, Calls::Backward), of(&residual, Calls::Step)] {
            let (streams, moved) = (2 + row.pairs(), row.backward_bytes());
            assert!((moved..moved + 16 * streams).contains(&(row.bytes_of_add() * streams)));
        }
    }
}
