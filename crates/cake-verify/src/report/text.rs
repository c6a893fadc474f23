//! The report as text.

use std::fmt;

use super::results::{Facts, Report};

impl fmt::Display for Facts {
    /// What stands above the results.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts { version, executable, device, profile, seed, .. } = self;
        writeln!(f, "cake-verify {version}, profile {}, seed {seed:#x}", profile.word())?;
        writeln!(f, "program sha256 {executable}")?;
        write!(f, "judging {device}")?;
        if let Some(driver) = self.driver {
            write!(f, ", driver for CUDA {}.{}", driver / 1000, driver % 1000 / 10)?;
        }
        writeln!(f)?;
        self.images.iter().try_for_each(|image| writeln!(f, "image {} sha256 {}", image.op, image.sha256))
    }
}

impl Report {
    /// Results by check, what was left out, the longest tasks, and the sums.
    pub fn results(&self) -> String {
        let total = self.total();
        let mut text = total.to_string();
        for (names, why) in [(&self.need_device, "need a GPU"), (&self.left, "have not ended")] {
            if !names.is_empty() {
                text += &format!("skipped: {} tasks that {why}: {}\n", names.len(), names.join(", "));
            }
        }
        let longest = self.longest(5).into_iter().map(|(name, seconds)| format!("{name} {seconds:.1} s"));
        text += &format!("longest tasks: {}\n", longest.collect::<Vec<_>>().join(", "));
        let (tasks, seconds) = (self.tasks.len(), self.seconds);
        let (cases, failures) = (total.cases(), total.failures());
        text + &format!("{tasks} tasks, {cases} judgements, {failures} failures, {seconds:.1} s\n")
    }
}

impl fmt::Display for Report {
    /// Facts, then results.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}begun {}\n{}", self.facts, self.begun, self.results())
    }
}

#[cfg(test)]
mod tests {
    use crate::report::results::tests::report;

    #[test]
    fn text_has_facts_failures_and_what_was_left_out() {
        let text = report().to_string();
        for line in [
            "cake-verify 0.1.0, profile quick, seed 0x7\n",
            "judging cuda:0 <board>, driver for CUDA 13.0\n",
            "image rmsnorm sha256 ab12\n",
            "FAILED bits: [T3 H128]: 0x0 & <0x1>\n",
            "skipped limits: needs 80 GiB\n",
            "skipped: 1 tasks that need a GPU: barrier\n",
            "skipped: 1 tasks that have not ended: eps\n",
            "3 tasks, 5 judgements, 1 failures, 3.5 s\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
