//! `cargo ci mutate`: whether the tests notice faults.
//!
//! Each fault of a list is put into a copy of the working tree, alone, and the tests that it names must fail there, which
//! pass without it. A fault that no longer fits its file, or does not compile, is an error of the list.

mod copy;
mod host;
mod kernels;
mod tests;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use copy::Copy;
use tests::{Tests, Verdict};

/// A fault that some test must notice.
struct Fault {
    /// What is wrong, as a word of the command line.
    name: &'static str,
    /// The file, from the root.
    file: &'static str,
    /// What stands there, once.
    right: &'static str,
    /// What the fault has in its place.
    wrong: &'static str,
    /// What must fail.
    tests: Tests,
    /// What would go wrong for a user.
    why: &'static str,
}

/// A fault, from its place in a list.
const fn fault(
    name: &'static str,
    file: &'static str,
    [right, wrong]: [&'static str; 2],
    tests: Tests,
    why: &'static str,
) -> Fault {
    Fault { name, file, right, wrong, tests, why }
}

impl Fault {
    /// The text of the file with the fault in it.
    fn applied(&self, text: &str) -> Result<String> {
        let places = text.matches(self.right).count();
        ensure!(places == 1, "{}: its text occurs {places} times in {}, expected once", self.name, self.file);
        Ok(text.replacen(self.right, self.wrong, 1))
    }

    /// Whether it is in a kernel's source, which the tests themselves compile.
    fn in_kernel(&self) -> bool {
        self.file.ends_with(".cuh")
    }
}

/// Which faults, and what to do with them.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only faults whose names contain one of these; all, if there is none.
    names: Vec<String>,
    /// Only lists them.
    #[arg(long)]
    list: bool,
    /// Only puts the one fault into the copy and leaves it there, to be packed for a board.
    #[arg(long)]
    leave: bool,
}

/// Every fault. Those in kernels come first: their tests are built once, before any fault is in what they are built from.
fn all() -> impl Iterator<Item = &'static Fault> {
    kernels::FAULTS.iter().chain(host::FAULTS)
}

/// Tries the faults, prints a table of them, and fails unless each was noticed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let chosen =
        |fault: &&Fault| options.names.is_empty() || options.names.iter().any(|name| fault.name.contains(name));
    let faults: Vec<&Fault> = all().filter(chosen).collect();
    ensure!(!faults.is_empty(), "no fault's name contains one of {:?}", options.names);
    if options.list {
        faults
            .iter()
            .for_each(|fault| println!("{:<32} {}\n    {}: {}", fault.name, fault.file, fault.tests, fault.why));
        return Ok(());
    }
    let copy = Copy::new()?;
    if options.leave {
        let [fault] = faults[..] else { bail!("{} faults have such a name, expected one", faults.len()) };
        copy.put(fault)?;
        println!("{} has the fault {}: {}", copy.tree.display(), fault.name, fault.why);
        return Ok(());
    }
    let programs = without_faults(&copy, &faults)?;
    let missed = faults.len() - judge(&copy, &faults, &programs)?;
    ensure!(missed == 0, "{missed} faults were not noticed");
    Ok(())
}

/// The programs of the tests, which must pass on the copy as it is.
fn without_faults(copy: &Copy, faults: &[&'static Fault]) -> Result<Vec<(&'static Tests, PathBuf)>> {
    let mut programs: Vec<(&Tests, PathBuf)> = Vec::new();
    for fault in faults {
        let tests = &fault.tests;
        if programs.iter().any(|(known, _)| *known == tests) {
            continue;
        }
        let start = Instant::now();
        let program = tests.build(copy)?;
        let verdict = tests.run(copy, &program, "without")?;
        ensure!(verdict == Verdict::Passed, "without a fault: {tests}: {verdict}");
        println!("{tests}: passes without a fault, {:.1} s", start.elapsed().as_secs_f64());
        programs.push((tests, program));
    }
    Ok(programs)
}

/// How many faults were noticed.
fn judge(copy: &Copy, faults: &[&Fault], programs: &[(&Tests, PathBuf)]) -> Result<usize> {
    println!("\n{:<32} {:>7}  caught by", "fault", "seconds");
    let (all, mut caught) = (Instant::now(), 0);
    for fault in faults {
        let start = Instant::now();
        let applied = copy.put(fault)?;
        let built = programs.iter().find(|(tests, _)| fault.in_kernel() && *tests == &fault.tests);
        let program = match built {
            Some((_, program)) => program.clone(),
            None => fault.tests.build(copy).with_context(|| format!("with the fault {}", fault.name))?,
        };
        let verdict = fault.tests.run(copy, &program, fault.name)?;
        applied.undo()?;
        caught += usize::from(matches!(verdict, Verdict::Failed(_)));
        println!("{:<32} {:>7.1}  {verdict}", fault.name, start.elapsed().as_secs_f64());
    }
    println!("\n{caught} of {} faults caught in {:.0} s", faults.len(), all.elapsed().as_secs_f64());
    Ok(caught)
}

#[cfg(test)]
mod the_list {
    use std::collections::BTreeSet;

    use super::all;
    use crate::shell::root;

    /// So that a change of a source cannot leave a fault behind.
    #[test]
    fn fits_the_sources() {
        let mut names = BTreeSet::new();
        for fault in all() {
            let text = std::fs::read_to_string(root().join(fault.file)).expect(fault.file);
            assert_ne!(fault.applied(&text).expect("the fault fits"), text, "{}", fault.name);
            assert!(names.insert(fault.name), "two faults are named {}", fault.name);
        }
    }
}
