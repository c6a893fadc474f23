//! Two runs: what differs in what they found.

use std::collections::{BTreeMap, BTreeSet};

use super::results::Report;
use super::tally::Outcome;

/// What differs, as lines of text. Those that say that something got worse are apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// More failures, a larger error in a run of the same cases, a program that is judged no more.
    pub worse: Vec<String>,
    /// Everything else.
    pub other: Vec<String>,
}

/// What became of `before`.
pub fn diff(before: &Report, now: &Report) -> Difference {
    let mut found = Difference { other: now.facts.differences(&before.facts), ..Difference::default() };
    let [old, new] = [before, now].map(cells);
    programs(&mut found, &old, &new);
    for key in both(&old, &new) {
        let (op, program, check) = &key;
        let none = Outcome::default();
        let [was, is] = [&old, &new].map(|cells| cells.get(&key).unwrap_or(&none));
        let what = format!("{op} {program} {check}");
        if was.failures != is.failures {
            let line = format!("{what}: {} failures before, {} now", was.failures, is.failures);
            if is.failures > was.failures { found.worse.push(line) } else { found.other.push(line) }
        }
        if was.cases != is.cases {
            found.other.push(format!("{what}: {} judgements before, {} now", was.cases, is.cases));
        }
        let only = |a: &Outcome, b: &Outcome| a.messages.iter().filter(|m| !b.messages.contains(m)).cloned().collect();
        let [fixed, broken]: [Vec<String>; 2] = [only(was, is), only(is, was)];
        found.other.extend(broken.iter().map(|message| format!("{what}: fails only now: {message}")));
        found.other.extend(fixed.iter().map(|message| format!("{what}: failed only before: {message}")));
    }
    errors(&mut found, before, now);
    found
}

impl Difference {
    /// Whether both found the same.
    pub fn is_empty(&self) -> bool {
        self.worse.is_empty() && self.other.is_empty()
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_empty() {
            return writeln!(f, "both runs found the same");
        }
        self.worse.iter().try_for_each(|line| writeln!(f, "WORSE {line}"))?;
        self.other.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Operator, program, check.
type Cells = BTreeMap<(String, String, String), Outcome>;

fn cells(report: &Report) -> Cells {
    let mut cells = Cells::new();
    for (op, programs) in report.by_op() {
        for (program, tally) in programs.0 {
            let of_checks = tally.0.into_iter();
            cells.extend(of_checks.map(|(check, outcome)| ((op.to_string(), program.clone(), check), outcome)));
        }
    }
    cells
}

fn both(old: &Cells, new: &Cells) -> BTreeSet<(String, String, String)> {
    old.keys().chain(new.keys()).cloned().collect()
}

/// Programs that only one of them judges.
fn programs(found: &mut Difference, old: &Cells, new: &Cells) {
    let names = |cells: &Cells| -> BTreeSet<String> {
        cells.keys().map(|(op, program, _)| format!("{op} {program}")).collect()
    };
    let (old, new) = (names(old), names(new));
    found.worse.extend(old.difference(&new).map(|program| format!("{program}: is judged no more")));
    found.other.extend(new.difference(&old).map(|program| format!("{program}: is judged only now")));
}

/// Largest errors that moved. In a run of other cases they may.
fn errors(found: &mut Difference, before: &Report, now: &Report) {
    let same_cases = (&before.facts.profile, before.facts.seed) == (&now.facts.profile, now.facts.seed);
    let largest = |report: &Report| {
        let mut largest: BTreeMap<String, f64> = BTreeMap::new();
        for ((op, _, _), outcome) in cells(report) {
            for (output, errors) in outcome.errors {
                let known = largest.entry(format!("{op} {output}")).or_default();
                *known = known.max(errors.worst);
            }
        }
        largest
    };
    let (old, new) = (largest(before), largest(now));
    for (output, was) in old {
        let Some(is) = new.get(&output).copied().filter(|&is| is != was) else { continue };
        let line = format!("{output}: largest error {was:.4} ulp before, {is:.4} now");
        if is > was && same_cases { found.worse.push(line) } else { found.other.push(line) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::results::tests::report;
    use crate::report::tally::ROUTED;

    fn changed(change: impl FnOnce(&mut Report)) -> Difference {
        let mut now = report();
        change(&mut now);
        diff(&report(), &now)
    }

    #[test]
    fn equal_runs_do_not_differ() {
        let same = changed(|now| (now.seconds, now.begun) = (99.0, "later".into()));
        assert!(same.is_empty() && same.to_string() == "both runs found the same\n", "{same:?}");
    }

    #[test]
    fn a_new_failure_is_worse_and_a_mended_one_is_not() {
        let fail = |now: &mut Report| {
            now.tasks.get_mut("rows/h256").unwrap().programs.at(ROUTED).judge("bits", Some("wrong".into()));
        };
        let broken = changed(fail);
        assert_eq!(broken.worse, ["rmsnorm routed bits: 0 failures before, 1 now"]);
        assert!(broken.other.contains(&"rmsnorm routed bits: fails only now: wrong".to_string()), "{broken:?}");
        assert!(broken.other.contains(&"rmsnorm routed bits: 2 judgements before, 3 now".to_string()), "{broken:?}");
        let mut before = report();
        fail(&mut before);
        let mended = diff(&before, &report());
        assert!(mended.worse.is_empty() && mended.other[0] == "rmsnorm routed bits: 1 failures before, 0 now");
    }

    #[test]
    fn a_program_that_is_judged_no_more_is_worse_than_a_new_one() {
        let fewer = changed(|now| {
            now.tasks.get_mut("rows/h128").unwrap().programs.0.remove("rmsnorm_fwd_h128_row");
        });
        assert_eq!(fewer.worse, ["rmsnorm rmsnorm_fwd_h128_row: is judged no more"]);
        let more = changed(|now| {
            now.tasks.get_mut("rows/h128").unwrap().programs.at("rmsnorm_fwd_h128_warp").judge("bits", None);
        });
        assert!(more.worse.is_empty());
        assert!(more.other.contains(&"rmsnorm rmsnorm_fwd_h128_warp: is judged only now".to_string()), "{more:?}");
    }

    #[test]
    fn a_larger_error_is_worse_in_a_run_of_the_same_cases() {
        let grow = |now: &mut Report| {
            let tally = now.tasks.get_mut("rows/h256").unwrap().programs.at(ROUTED);
            tally.measure("accuracy", "y", 0.75, || "elsewhere".into());
        };
        let larger = changed(grow);
        assert_eq!(larger.worse, ["rmsnorm y: largest error 0.4375 ulp before, 0.7500 now"]);
        let of_others = changed(|now| {
            grow(now);
            now.facts.seed = 8;
        });
        assert!(of_others.worse.is_empty(), "{of_others:?}");
        assert!(of_others.other.contains(&"seed: 0x7 there, 0x8 here".to_string()));
    }
}
