//! One record against another of the same board.
//!
//! Times of two runs are never set against each other: clocks and temperature differ. A row is followed by two ratios,
//! each taken in one run: its median over that of its reference, which moves as many bytes next to it, and over the
//! median of [`Engine::Empty`] in the whole run, a kernel that no one tunes. A row has lost when both have grown: the
//! first alone also grows when the reference got faster, the second alone when the memory got slower.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Result, ensure};

use super::record::{Engine, Measured, Record};

/// What a row may lose, in per cent, unless another tolerance is asked for.
pub const TOLERANCE: f64 = 5.0;

/// Two records, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Rows of both; the one that lost most first.
    pub changes: Vec<Change>,
    /// Rows that only the record before has.
    pub gone: Vec<String>,
    /// Rows that only the record now has.
    pub new: Vec<String>,
}

/// What became of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Name of the row; of a forced program, that too.
    pub row: String,
    /// The programs before and now.
    pub programs: [Option<String>; 2],
    /// Rate beside the reference before and now, in per cent.
    pub percent: [f64; 2],
    /// How much longer it takes beside its reference, in per cent.
    pub of_reference: f64,
    /// How much longer it takes beside the empty kernel, in per cent; not known where that was not timed.
    pub of_empty: Option<f64>,
}

/// A tolerance on the command line.
pub fn tolerance(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if percent.is_finite() && percent >= 0.0 { Ok(percent) } else { Err("expected 0 or more per cent".into()) }
}

/// Refuses records of different boards.
pub fn same_board(before: &Record, now: &Record) -> Result<()> {
    let [there, here] = [before, now].map(|record| format!("{} with {} SMs", record.device.name, record.device.sms));
    ensure!(there == here, "records of different boards cannot be compared: {there} before, {here} now");
    Ok(())
}

impl Comparison {
    /// Compares two records of the same board.
    pub fn new(before: &Record, now: &Record) -> Result<Comparison> {
        same_board(before, now)?;
        let (old, new) = (ours(before), ours(now));
        let empty = [before, now].map(median_of_empty);
        let mut changes: Vec<Change> = old
            .iter()
            .filter_map(|(name, (measured, reference))| {
                let (now, its_reference) = new.get(name)?;
                let [was, is] =
                    [(measured, reference), (now, its_reference)].map(|(own, reference)| ratio(own, reference));
                let of_empty = match empty {
                    [Some(before), Some(after)] => {
                        Some(grown(measured.ns.p50 as f64 / before, now.ns.p50 as f64 / after))
                    }
                    _ => None,
                };
                Some(Change {
                    row: name.clone(),
                    programs: [measured.program.clone(), now.program.clone()],
                    percent: [100.0 / was, 100.0 / is],
                    of_reference: grown(was, is),
                    of_empty,
                })
            })
            .collect();
        changes.sort_by(|a, b| b.loss().total_cmp(&a.loss()).then_with(|| a.row.cmp(&b.row)));
        let without = |a: &Rows<'_>, b: &Rows<'_>| {
            let [a, b] = [a, b].map(|rows| rows.keys().cloned().collect::<BTreeSet<_>>());
            a.difference(&b).cloned().collect()
        };
        Ok(Comparison { changes, gone: without(&old, &new), new: without(&new, &old) })
    }

    /// Without the rows of the record before that a run was not asked for.
    pub fn of_rows_named(mut self, wanted: impl Fn(&str) -> bool) -> Comparison {
        self.gone.retain(|row| wanted(row));
        self
    }

    /// Whether any row lost more than a tolerance.
    pub fn has_lost(&self, tolerance: f64) -> bool {
        self.changes.iter().any(|change| change.loss() > tolerance)
    }

    /// Every row, as a table; those that lost are marked.
    pub fn table(&self, tolerance: f64) -> String {
        self.text(tolerance, self.changes.iter())
    }

    /// The rows that lost, as a table.
    pub fn lost(&self, tolerance: f64) -> String {
        self.text(tolerance, self.changes.iter().filter(|change| change.loss() > tolerance))
    }

    fn text<'c>(&'c self, tolerance: f64, shown: impl Iterator<Item = &'c Change>) -> String {
        let mut text =
            format!("{:<34} {:>8} {:>8} {:>10} {:>10}  program\n", "row", "% before", "% now", "/reference", "/empty");
        shown.for_each(|change| text.push_str(&change.line(tolerance)));
        for (rows, what) in [(&self.gone, "only before"), (&self.new, "only now")] {
            if !rows.is_empty() {
                writeln!(text, "{what}: {}", rows.join(", ")).expect("strings take all text");
            }
        }
        let lost = self.changes.iter().filter(|change| change.loss() > tolerance).count();
        text + &format!("{} rows compared, {lost} lost more than {tolerance} %\n", self.changes.len())
    }
}

impl Change {
    /// What the row has lost for certain: the smaller of both growths.
    pub fn loss(&self) -> f64 {
        self.of_empty.map_or(self.of_reference, |of_empty| of_empty.min(self.of_reference))
    }

    fn line(&self, tolerance: f64) -> String {
        let [before, now] = &self.programs;
        let program = match (before, now) {
            (Some(before), Some(now)) if before != now => format!("{before} -> {now}"),
            _ => now.clone().unwrap_or_default(),
        };
        let of_empty = self.of_empty.map_or("-".into(), |percent| format!("{percent:+.1} %"));
        let of_reference = format!("{:+.1} %", self.of_reference);
        let [was, is] = self.percent;
        let lost = if self.loss() > tolerance { "  LOST" } else { "" };
        let line = format!("{:<34} {was:>8.1} {is:>8.1} {of_reference:>10} {of_empty:>10}  {program}", self.row);
        format!("{}{lost}\n", line.trim_end())
    }
}

/// Our programs with their references, by what stays the same from record to record.
type Rows<'r> = BTreeMap<String, (&'r Measured, &'r Measured)>;

fn ours(record: &Record) -> Rows<'_> {
    let rows = record.measurements.iter().filter_map(|measured| {
        let name = match (measured.engine, &measured.program) {
            (Engine::Routed, _) => measured.row.clone(),
            (Engine::Forced, Some(program)) => format!("{} {program}", measured.row),
            _ => return None,
        };
        Some((name, (measured, record.reference(&measured.row)?)))
    });
    rows.filter(|(_, (own, reference))| own.ns.p50 > 0 && reference.ns.p50 > 0).collect()
}

fn ratio(own: &Measured, reference: &Measured) -> f64 {
    own.ns.p50 as f64 / reference.ns.p50 as f64
}

fn grown(before: f64, now: f64) -> f64 {
    100.0 * (now / before - 1.0)
}

/// Of all rows: in one row the few microseconds of a launch vary by a tenth.
fn median_of_empty(record: &Record) -> Option<f64> {
    let of_rows = record.measurements.iter().filter(|measured| measured.engine == Engine::Empty);
    let mut medians: Vec<u64> = of_rows.map(|measured| measured.ns.p50).filter(|&ns| ns > 0).collect();
    medians.sort_unstable();
    medians.get(medians.len() / 2).map(|&ns| ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::tests::{measured, record};

    /// A row `a` that takes `own` beside a copy that takes `copy` and an empty kernel that takes `empty`, and a row `b`.
    fn times(own: u64, copy: u64, empty: u64) -> Record {
        let row = |row, engine, ns| measured(row, engine, ns);
        let measurements = vec![
            row("a", Engine::Routed, own),
            row("a", Engine::Copy, copy),
            row("a", Engine::Empty, empty),
            row("b", Engine::Routed, 5000),
            row("b", Engine::Add, 4000),
            row("b", Engine::Empty, empty),
        ];
        Record { measurements, ..record() }
    }

    fn loss(before: &Record, now: &Record) -> f64 {
        let comparison = Comparison::new(before, now).unwrap();
        comparison.changes.iter().find(|change| change.row == "a").unwrap().loss()
    }

    #[test]
    fn a_slower_row_has_lost() {
        let (before, now) = (times(10_000, 9000, 3000), times(11_000, 9000, 3000));
        assert!((loss(&before, &now) - 10.0).abs() < 0.1);
        let comparison = Comparison::new(&before, &now).unwrap();
        assert!(comparison.has_lost(9.0) && !comparison.has_lost(11.0));
        assert_eq!(comparison.changes[0].row, "a");
        let text = comparison.lost(9.0);
        assert!(text.contains("LOST") && text.contains("2 rows compared, 1 lost more than 9 %"), "{text}");
        assert!(!text.contains("\nb "), "{text}");
        assert!(comparison.table(11.0).contains("\nb ") && !comparison.table(11.0).contains("LOST"));
    }

    #[test]
    fn a_slower_board_or_a_faster_copy_is_no_loss() {
        let before = times(10_000, 9000, 3000);
        assert!(loss(&before, &times(12_000, 10_800, 3600)).abs() < 0.1);
        assert!(loss(&before, &times(10_000, 8000, 3000)).abs() < 0.1);
        assert!(loss(&before, &times(12_000, 10_800, 3000)).abs() < 0.1);
        assert!(loss(&before, &times(9000, 9000, 3000)) < -9.0);
    }

    #[test]
    fn a_record_without_the_empty_kernel_is_compared_by_the_reference_alone() {
        let mut before = times(10_000, 9000, 3000);
        before.measurements.retain(|measured| measured.engine != Engine::Empty);
        assert!((loss(&before, &times(11_000, 9000, 9000)) - 10.0).abs() < 0.1);
    }

    #[test]
    fn rows_and_programs_that_come_and_go_are_named() {
        let before = times(10_000, 9000, 3000);
        let mut now = times(10_000, 9000, 3000);
        now.measurements[0].program = Some("rmsnorm_fwd_h2048_row_t512".into());
        now.measurements[3].row = "c".into();
        now.measurements[4].row = "c".into();
        let comparison = Comparison::new(&before, &now).unwrap();
        assert_eq!(
            (comparison.gone.as_slice(), comparison.new.as_slice()),
            (&["b".to_string()][..], &["c".into()][..])
        );
        let text = comparison.table(5.0);
        assert!(text.contains("rmsnorm_fwd_h2048_row -> rmsnorm_fwd_h2048_row_t512"), "{text}");
        assert!(text.contains("only before: b\nonly now: c\n"), "{text}");
        assert!(comparison.of_rows_named(|row| row != "b").gone.is_empty());
    }

    #[test]
    fn another_board_is_refused() {
        let (before, mut now) = (times(10_000, 9000, 3000), times(10_000, 9000, 3000));
        now.device.name = "H100".into();
        let error = Comparison::new(&before, &now).unwrap_err().to_string();
        assert!(error.contains("H200 with 132 SMs before, H100 with 132 SMs now"), "{error}");
    }

    #[test]
    fn a_tolerance_is_a_number_of_per_cent() {
        assert_eq!(tolerance("2.5"), Ok(2.5));
        assert!(["-1", "x", "NaN", "inf"].iter().all(|text| tolerance(text).is_err()));
    }
}
