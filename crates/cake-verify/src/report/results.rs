//! The report of a run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use super::tally::{ByProgram, Tally};
use crate::bench::record::ImageFacts;
use crate::cases::groups::Profile;

/// A run. It is also what a later run resumes: written after each task, it holds every task that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What the results rest on.
    pub facts: Facts,
    /// UTC, when the run began; a resumed run keeps the date of the first.
    pub begun: String,
    /// Wall time, that of resumed runs together.
    pub seconds: f64,
    /// What was found, by the task's name.
    pub tasks: BTreeMap<String, TaskResult>,
    /// Tasks that were asked for and have not ended.
    pub left: Vec<String>,
    /// Tasks that need a GPU, where none is judged.
    pub need_device: Vec<String>,
}

/// What the results rest on. Results with other facts are never put together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Version of cake-verify.
    pub version: String,
    /// SHA-256 of the program that judged.
    pub executable: String,
    /// What was judged: the host path, or a board.
    pub device: String,
    /// CUDA version of the driver, 1000 * major + 10 * minor, where there is one.
    pub driver: Option<i32>,
    /// The compiled kernels; none on the host.
    pub images: Vec<ImageFacts>,
    /// How much was tried.
    pub profile: Profile,
    /// Of every random number.
    pub seed: u64,
}

/// What a task found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskResult {
    /// The operator that was judged, `rmsnorm`; `all` for a task that judges several at once.
    pub op: String,
    /// Wall time; tasks run side by side.
    pub seconds: f64,
    /// Results by program, then by check.
    pub programs: ByProgram,
}

/// The file in a report's folder that the others are made from.
pub const FILE: &str = "report.json";

impl Facts {
    /// What differs from other facts, as `seed 1 there, 2 here`.
    pub fn differences(&self, there: &Facts) -> Vec<String> {
        let images = |facts: &Facts| match facts.images.len() {
            0 => "none".to_string(),
            _ => {
                facts.images.iter().map(|image| format!("{} {}", image.op, image.sha256)).collect::<Vec<_>>().join(", ")
            }
        };
        let shown = |facts: &Facts| {
            [
                ("version", facts.version.clone()),
                ("device", facts.device.clone()),
                ("driver", facts.driver.map_or("none".into(), |version| version.to_string())),
                ("profile", facts.profile.word().into()),
                ("seed", format!("{:#x}", facts.seed)),
                ("images", images(facts)),
                ("program, by SHA-256", facts.executable.clone()),
            ]
        };
        let pairs = shown(there).into_iter().zip(shown(self)).filter(|(there, here)| there != here);
        pairs.map(|((what, there), (_, here))| format!("{what}: {there} there, {here} here")).collect()
    }
}

impl Report {
    /// A run that has judged nothing yet.
    pub fn new(facts: Facts) -> Report {
        Report {
            facts,
            begun: crate::bench::date::now(),
            seconds: 0.0,
            tasks: BTreeMap::new(),
            left: Vec::new(),
            need_device: Vec::new(),
        }
    }

    /// The report in a folder.
    pub fn load(folder: &Path) -> Result<Report> {
        let path = folder.join(FILE);
        let json = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&json).with_context(|| format!("{}: not a report of a run", path.display()))
    }

    /// Puts the report into a folder. The file is replaced at once: whoever reads it finds the old one or the new one.
    pub fn store(&self, folder: &Path) -> Result<()> {
        let mut json = serde_json::to_vec(self).context("writing JSON")?;
        json.push(b'\n');
        replace(&folder.join(FILE), &json)
    }

    /// The report in a folder, to be continued by a run with these facts; nothing is continued where the facts differ.
    pub fn resume(folder: &Path, facts: &Facts) -> Result<Report> {
        let report = Report::load(folder)?;
        let differences = facts.differences(&report.facts);
        if !differences.is_empty() {
            bail!("{} cannot be resumed: {}", folder.display(), differences.join("; "));
        }
        Ok(report)
    }

    /// Results of all tasks by check.
    pub fn total(&self) -> Tally {
        self.tasks.values().map(|task| task.programs.total()).fold(Tally::default(), Tally::merge)
    }

    /// Results of all tasks, by operator and program.
    pub fn by_op(&self) -> BTreeMap<&str, ByProgram> {
        let mut ops: BTreeMap<&str, ByProgram> = BTreeMap::new();
        for task in self.tasks.values() {
            let op = ops.entry(&task.op).or_default();
            *op = std::mem::take(op).merge(task.programs.clone());
        }
        ops
    }

    /// Results by group of tasks: those whose names begin alike, up to the last `/`.
    pub fn by_group(&self) -> BTreeMap<&str, Tally> {
        let mut groups: BTreeMap<&str, Tally> = BTreeMap::new();
        for (name, task) in &self.tasks {
            let group = groups.entry(name.rsplit_once('/').map_or(name.as_str(), |(group, _)| group)).or_default();
            *group = std::mem::take(group).merge(task.programs.total());
        }
        groups
    }

    /// The tasks that took longest, with their seconds.
    pub fn longest(&self, most: usize) -> Vec<(&str, f64)> {
        let mut tasks: Vec<(&str, f64)> = self.tasks.iter().map(|(name, task)| (name.as_str(), task.seconds)).collect();
        tasks.sort_by(|a, b| b.1.total_cmp(&a.1));
        tasks.truncate(most);
        tasks
    }
}

/// Replaces a file at once.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, content)
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::tally::{HOST, ROUTED};

    pub(crate) fn facts() -> Facts {
        Facts {
            version: "0.1.0".into(),
            executable: "e0".into(),
            device: "cuda:0 <board>".into(),
            driver: Some(13000),
            images: vec![ImageFacts { op: "rmsnorm".into(), sha256: "ab12".into() }],
            profile: Profile::Quick,
            seed: 7,
        }
    }

    /// Two tasks of an operator and one of all: an error of a program, a failure, something skipped.
    pub(crate) fn report() -> Report {
        let result = |op: &str, seconds, programs| TaskResult { op: op.into(), seconds, programs };
        let mut rows = ByProgram::default();
        rows.at(ROUTED).judge("bits", None);
        rows.at(ROUTED).measure("accuracy", "y", 0.4375, || "[T3 H128] y row 1".into());
        rows.at(ROUTED).judge("accuracy", None);
        rows.at("rmsnorm_fwd_h128_row").judge("bits", Some("[T3 H128]: 0x0 & <0x1>".into()));
        let mut values = ByProgram::default();
        values.at(ROUTED).judge("bits", None);
        values.at(ROUTED).skip("limits", "needs 80 GiB");
        let mut threads = Tally::default();
        threads.judge("threads", None);
        Report {
            seconds: 3.5,
            begun: "1970-01-01T00:00:00Z".into(),
            tasks: [
                ("rows/h128".to_string(), result("rmsnorm", 2.0, rows)),
                ("rows/h256".to_string(), result("rmsnorm", 1.0, values)),
                ("threads".to_string(), result("all", 0.1, ByProgram::of(HOST, threads))),
            ]
            .into(),
            left: vec!["eps".into()],
            need_device: vec!["barrier".into()],
            ..Report::new(facts())
        }
    }

    #[test]
    fn a_report_survives_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let report = report();
        report.store(folder.path()).unwrap();
        assert_eq!(Report::load(folder.path()).unwrap(), report);
        let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(files, [FILE]);
    }

    #[test]
    fn only_the_same_facts_are_resumed() {
        let folder = tempfile::tempdir().unwrap();
        report().store(folder.path()).unwrap();
        assert_eq!(Report::resume(folder.path(), &facts()).unwrap(), report());
        let others = [
            ("seed: 0x7 there, 0x8 here", Facts { seed: 8, ..facts() }),
            ("profile: quick there, full here", Facts { profile: Profile::Full, ..facts() }),
            ("device: cuda:0 <board> there, host here", Facts { device: "host".into(), ..facts() }),
            ("version: 0.1.0 there, 0.2.0 here", Facts { version: "0.2.0".into(), ..facts() }),
            ("driver: 13000 there, none here", Facts { driver: None, ..facts() }),
            ("images: rmsnorm ab12 there, none here", Facts { images: Vec::new(), ..facts() }),
            ("SHA-256: e0 there, e1 here", Facts { executable: "e1".into(), ..facts() }),
        ];
        for (expected, facts) in others {
            let error = Report::resume(folder.path(), &facts).unwrap_err().to_string();
            assert!(error.ends_with(expected) && error.contains("cannot be resumed"), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_no_report_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Report::load(folder.path()).unwrap_err().to_string().contains("reading"));
        fs::write(folder.path().join(FILE), "{}").unwrap();
        assert!(Report::load(folder.path()).unwrap_err().to_string().contains("not a report"));
    }

    #[test]
    fn the_page_on_reports_names_every_field() {
        let page = include_str!("../../../../docs/reports.md");
        let json = serde_json::to_value(report()).unwrap();
        let [rows, skipped] = ["rows/h128", "rows/h256"].map(|task| &json["tasks"][task]);
        let accuracy = &rows["programs"][ROUTED]["accuracy"];
        let outcomes =
            [accuracy, &rows["programs"]["rmsnorm_fwd_h128_row"]["bits"], &skipped["programs"][ROUTED]["limits"]];
        let structs = [&json, &json["facts"], &json["facts"]["images"][0], rows, &accuracy["errors"]["y"]];
        let fields = structs.into_iter().chain(outcomes).flat_map(|value| value.as_object().unwrap().keys());
        let unnamed: Vec<_> = fields.filter(|field| !page.contains(&format!("`{field}`"))).collect();
        assert!(unnamed.is_empty(), "{unnamed:?}");
    }

    #[test]
    fn results_add_up_by_op_and_by_group() {
        let report = report();
        assert_eq!((report.total().cases(), report.total().failures()), (5, 1));
        let ops = report.by_op();
        assert_eq!(ops.keys().copied().collect::<Vec<_>>(), ["all", "rmsnorm"]);
        assert_eq!(ops["rmsnorm"].0[ROUTED].0["bits"].cases, 2);
        assert_eq!(ops["rmsnorm"].0["rmsnorm_fwd_h128_row"].failures(), 1);
        let groups = report.by_group();
        assert_eq!(groups.keys().copied().collect::<Vec<_>>(), ["rows", "threads"]);
        assert_eq!(groups["rows"].0["bits"].cases, 3);
        assert_eq!(report.longest(1), [("rows/h128", 2.0)]);
    }
}
