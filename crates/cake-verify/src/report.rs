//! Counts of what was judged, for people and for machines.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// Most messages that are kept of a check.
const MESSAGES: usize = 12;

/// Results by check.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tally(pub BTreeMap<&'static str, Outcome>);

/// Results of one check.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Judgements made.
    pub cases: u64,
    /// Of these, how many were bad.
    pub failures: u64,
    /// The first failures.
    pub messages: Vec<String>,
    /// What was left out, and why.
    pub skipped: Vec<String>,
    /// Largest error of each output.
    pub worst: BTreeMap<&'static str, Worst>,
}

/// The largest error of an output.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Worst {
    /// In ulps of the exact value.
    pub ulps: f64,
    /// The case, coordinates and bits.
    pub at: String,
}

impl Tally {
    /// Records a judgement: `problem` says what was wrong, if anything was.
    pub fn judge(&mut self, check: &'static str, problem: Option<String>) {
        let outcome = self.0.entry(check).or_default();
        outcome.cases += 1;
        if let Some(message) = problem {
            outcome.failures += 1;
            outcome.messages.push(message);
            outcome.messages.truncate(MESSAGES);
        }
    }

    /// As [`Tally::judge`], of a result.
    pub fn judge_result<E: fmt::Display>(&mut self, check: &'static str, what: &str, result: Result<(), E>) {
        self.judge(check, result.err().map(|error| format!("{what}: {error}")));
    }

    /// Records what was left out.
    pub fn skip(&mut self, check: &'static str, what: impl fmt::Display) {
        self.0.entry(check).or_default().skipped.push(what.to_string());
    }

    /// Records an error's size.
    pub fn measure(&mut self, check: &'static str, output: &'static str, ulps: f64, at: impl FnOnce() -> String) {
        let worst = self.0.entry(check).or_default().worst.entry(output).or_default();
        if ulps > worst.ulps {
            *worst = Worst { ulps, at: at() };
        }
    }

    /// Both together.
    pub fn merge(mut self, other: Tally) -> Tally {
        for (check, theirs) in other.0 {
            let ours = self.0.entry(check).or_default();
            ours.cases += theirs.cases;
            ours.failures += theirs.failures;
            ours.messages.extend(theirs.messages);
            ours.messages.truncate(MESSAGES);
            ours.skipped.extend(theirs.skipped);
            for (output, worst) in theirs.worst {
                let known = ours.worst.entry(output).or_default();
                if worst.ulps > known.ulps {
                    *known = worst;
                }
            }
        }
        self
    }

    /// Bad judgements of all checks.
    pub fn failures(&self) -> u64 {
        self.0.values().map(|outcome| outcome.failures).sum()
    }

    /// Judgements of all checks.
    pub fn cases(&self) -> u64 {
        self.0.values().map(|outcome| outcome.cases).sum()
    }

    /// Every message.
    pub fn messages(&self) -> String {
        let lines =
            self.0.iter().flat_map(|(check, outcome)| outcome.messages.iter().map(move |m| format!("{check}: {m}\n")));
        lines.collect()
    }
}

impl fmt::Display for Tally {
    /// A table: check, cases, failures, worst errors; then what failed, then what was left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<14} {:>8} {:>9}  worst error, ulp", "check", "cases", "failures")?;
        for (check, outcome) in self.0.iter().filter(|(_, outcome)| outcome.cases > 0) {
            let worst = outcome.worst.iter().map(|(output, worst)| format!("{output} {:.4}", worst.ulps));
            let worst = worst.collect::<Vec<_>>().join(", ");
            writeln!(f, "{check:<14} {:>8} {:>9}  {worst}", outcome.cases, outcome.failures)?;
        }
        for (output, worst) in self.0.values().flat_map(|outcome| &outcome.worst) {
            writeln!(f, "worst {output}: {}", worst.at)?;
        }
        for (check, outcome) in &self.0 {
            for message in &outcome.messages {
                writeln!(f, "FAILED {check}: {message}")?;
            }
            let unseen = outcome.failures as usize - outcome.messages.len();
            if unseen > 0 {
                writeln!(f, "FAILED {check}: and {unseen} more")?;
            }
            for skipped in &outcome.skipped {
                writeln!(f, "skipped {check}: {skipped}")?;
            }
        }
        Ok(())
    }
}

/// A run, for `--report`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of cake-verify.
    pub version: &'static str,
    /// What was judged.
    pub target: String,
    /// Version of the driver, where there is one.
    pub driver: Option<i32>,
    /// How much was tried.
    pub profile: crate::cases::groups::Profile,
    /// Seed of every random number.
    pub seed: u64,
    /// Wall time.
    pub seconds: f64,
    /// Wall time of each task; they run side by side.
    pub tasks: BTreeMap<String, f64>,
    /// Results.
    pub checks: Tally,
}
