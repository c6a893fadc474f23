//! Counts of what was judged.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::errors::Errors;

/// Most messages that are kept of a check.
const MESSAGES: usize = 12;

/// Results by check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally(pub BTreeMap<String, Outcome>);

/// Results of one check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// Judgements made.
    pub cases: u64,
    /// Of these, how many were bad.
    pub failures: u64,
    /// The first failures, at most twelve.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
    /// What was left out, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// Errors of each output.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, Errors>,
}

/// Results by program: the name of a kernel, [`ROUTED`] or [`HOST`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ByProgram(pub BTreeMap<String, Tally>);

/// Stands for a program where a plan was made as a user makes it.
pub const ROUTED: &str = "routed";
/// Stands for a program where no kernel ran.
pub const HOST: &str = "host";
/// Stands for an operator where several are judged at once.
pub const ALL: &str = "all";

impl Tally {
    /// Records a judgement: `problem` says what was wrong, if anything was.
    pub fn judge(&mut self, check: &str, problem: Option<String>) {
        let outcome = entry(&mut self.0, check);
        outcome.cases += 1;
        if let Some(message) = problem {
            outcome.failures += 1;
            outcome.messages.push(message);
            outcome.messages.truncate(MESSAGES);
        }
    }

    /// As [`Tally::judge`], of a result.
    pub fn judge_result<E: fmt::Display>(&mut self, check: &str, what: &str, result: Result<(), E>) {
        self.judge(check, result.err().map(|error| format!("{what}: {error}")));
    }

    /// Records what was left out.
    pub fn skip(&mut self, check: &str, what: impl fmt::Display) {
        entry(&mut self.0, check).skipped.push(what.to_string());
    }

    /// Records an error's size.
    pub fn measure(&mut self, check: &str, output: &str, ulps: f64, at: impl FnOnce() -> String) {
        entry(&mut entry(&mut self.0, check).errors, output).add(ulps, at);
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
            theirs.errors.into_iter().for_each(|(output, errors)| ours.errors.entry(output).or_default().merge(errors));
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

impl ByProgram {
    /// Results of one program.
    pub fn of(program: &str, tally: Tally) -> ByProgram {
        ByProgram([(program.to_string(), tally)].into())
    }

    /// Where results of a program go.
    pub fn at(&mut self, program: &str) -> &mut Tally {
        entry(&mut self.0, program)
    }

    /// Both together.
    pub fn merge(mut self, other: ByProgram) -> ByProgram {
        for (program, theirs) in other.0 {
            let ours = self.0.entry(program).or_default();
            *ours = std::mem::take(ours).merge(theirs);
        }
        self
    }

    /// Of all programs.
    pub fn total(&self) -> Tally {
        self.0.values().cloned().fold(Tally::default(), Tally::merge)
    }
}

/// The value of a key, which is copied only when it is new.
fn entry<'m, V: Default>(map: &'m mut BTreeMap<String, V>, key: &str) -> &'m mut V {
    if !map.contains_key(key) {
        map.insert(key.into(), V::default());
    }
    map.get_mut(key).expect("inserted above")
}

impl fmt::Display for Tally {
    /// A table: check, cases, failures, worst errors; then what failed, then what was left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<14} {:>8} {:>9}  worst error, ulp", "check", "cases", "failures")?;
        for (check, outcome) in self.0.iter().filter(|(_, outcome)| outcome.cases > 0) {
            let worst = outcome.errors.iter().map(|(output, errors)| format!("{output} {:.4}", errors.worst));
            let worst = worst.collect::<Vec<_>>().join(", ");
            let line = format!("{check:<14} {:>8} {:>9}  {worst}", outcome.cases, outcome.failures);
            writeln!(f, "{}", line.trim_end())?;
        }
        for (output, errors) in self.0.values().flat_map(|outcome| &outcome.errors) {
            writeln!(f, "worst {output}: {}", errors.at)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_tallies_count_both_and_keep_the_first_messages() {
        let mut a = Tally::default();
        (0..10).for_each(|i| a.judge("bits", Some(format!("a{i}"))));
        a.measure("accuracy", "y", 0.5, || "a".into());
        let mut b = Tally::default();
        (0..10).for_each(|i| b.judge("bits", (i > 0).then(|| format!("b{i}"))));
        b.measure("accuracy", "y", 0.25, || "b".into());
        b.skip("limits", "too large");
        let both = a.merge(b);
        assert_eq!((both.cases(), both.failures()), (20, 19));
        let bits = &both.0["bits"];
        assert_eq!((bits.messages.len(), bits.messages[11].as_str()), (MESSAGES, "b2"));
        assert_eq!(both.0["limits"].skipped, ["too large"]);
        let errors = &both.0["accuracy"].errors["y"];
        assert_eq!((errors.count(), errors.at.as_str()), (2, "a"));
        let text = both.to_string();
        assert!(text.contains("FAILED bits: and 7 more\n") && text.contains("skipped limits: too large\n"), "{text}");
    }

    #[test]
    fn programs_are_kept_apart_and_added_up() {
        let mut a = ByProgram::default();
        a.at(ROUTED).judge("bits", None);
        let mut b = ByProgram::default();
        b.at(ROUTED).judge("bits", Some("wrong".into()));
        b.at("rmsnorm_fwd_h128_row").judge("bits", None);
        let both = a.merge(b);
        assert_eq!(both.0[ROUTED].failures(), 1);
        assert_eq!(both.0["rmsnorm_fwd_h128_row"].failures(), 0);
        assert_eq!((both.total().cases(), both.total().failures()), (3, 1));
    }
}
