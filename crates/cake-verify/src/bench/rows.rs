//! What is timed: rows as data, in groups that each say why they are there.

use std::fmt;

use cake_core::Dtype;
use cake_rmsnorm::Spec;

use crate::cases::Form;
use crate::cases::layout::Layout;
use crate::cases::shapes::TUNED;

/// One forward call, `rstd` asked for.
#[derive(Clone, Debug)]
pub struct Row {
    /// What the figure tells.
    pub why: &'static str,
    /// What the plan fixes.
    pub spec: Spec,
    /// Leading dimensions; their product is the number of rows.
    pub lead: Vec<u64>,
    /// Where `x` and `residual` lie.
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

const FEW: &str = "few rows: starting and ending weigh more than bytes";
const WAVE: &str = "as many rows as run at once, or a few times that: one wave";
const SEQUENCE: &str = "one sequence: from a fraction of L2 to several times its size";
const BATCH: &str = "a batch of four sequences: for most widths the memory's rate decides";
const PACKED: &str = "packed sequences: a number of rows that no tile divides; 16231 is prime";
const LONG: &str = "long: the last per cent of the memory's rate";
const F32_WEIGHT: &str = "an FP32 weight takes more registers and twice the loads";
const NO_WEIGHT: &str = "no weight: kernels of their own";
const OFFSET: &str = "1 + w, as Gemma has it: one more addition for each element";
const ANY: &str = "a width without a program of its own: what the promise of any width costs";

const GROUPS: &[Group] = &[
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

/// Every row.
pub fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for group in GROUPS {
        for &width in group.widths {
            rows.extend(group.rows.iter().map(|&count| Row::new(group.why, group.form, width, vec![count])));
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
    rows.push(Row {
        inputs: Layout::Pitch(2),
        outputs: Layout::Pitch(2),
        layout: "pitch2",
        ..Row::new("rows twice as far apart as they are wide: one half of a split tensor", PLAIN, 4096, vec![16384])
    });
    rows
}

impl Row {
    /// Contiguous tensors.
    pub fn new(why: &'static str, form: Form, width: u32, lead: Vec<u64>) -> Row {
        let spec = Spec { width, ..form.spec() };
        Row { why, spec, lead, inputs: Layout::Contiguous, outputs: Layout::Contiguous, layout: "" }
    }

    /// Rows in all.
    pub fn count(&self) -> u64 {
        self.lead.iter().product()
    }

    /// The least that must move: `x` and `y`, `residual` and `h` where there are any, `rstd`, the weight.
    pub fn bytes(&self) -> u64 {
        let width = u64::from(self.spec.width);
        let weight = self.spec.weight.map_or(0, |dtype| width * dtype.size() as u64);
        4 * self.pairs() * self.count() * width + 4 * self.count() + weight
    }

    /// Pairs of an activation read and one written.
    pub fn pairs(&self) -> u64 {
        if self.spec.residual { 2 } else { 1 }
    }

    /// Bytes of one of [`Row::pairs`] copies that together read and write as much as the call.
    pub fn bytes_of_copy(&self) -> u64 {
        self.bytes().div_ceil(2 * self.pairs())
    }
}

impl fmt::Display for Row {
    /// The name: form, layout, width, rows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.spec.residual { "rms+res" } else { "rms" })?;
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
        let lead: Vec<String> = self.lead.iter().map(u64::to_string).collect();
        write!(f, "/H{}/T{}", self.spec.width, lead.join("x"))
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
                        (row.spec.width, row.spec.residual) == (width, residual)
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
        for (width, counts) in plain.into_iter().chain(rest) {
            for count in counts {
                assert!(names.contains(&format!("rms/H{width}/T{count}")), "{width} {count}");
            }
        }
        for count in all {
            assert!(names.contains(&format!("rms+res/H6144/T{count}")), "{count}");
        }
    }

    #[test]
    fn names_say_what_sets_a_row_apart() {
        for name in ["rms/w32/H2048/T4096", "rms/w0/H6144/T4096", "rms/1+w/H3072/T4096", "rms/qkv/H128/T4096x32"] {
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
    }
}
