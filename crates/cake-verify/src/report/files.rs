//! The folder of a report.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::results::{Report, replace};

/// For people.
const TEXT: &str = "report.txt";

/// Makes the folder, and writes what the run begins with. What people read of an earlier run goes: it would stand
/// beside the results of this one.
pub fn begin(report: &Report, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making the folder {}", folder.display()))?;
    for name in [TEXT] {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {name} of {}", folder.display()));
            }
            _ => {}
        }
    }
    report.store(folder)
}

/// Writes the report of a run that has ended.
pub fn end(report: &Report, folder: &Path) -> Result<()> {
    report.store(folder)?;
    replace(&folder.join(TEXT), report.to_string().as_bytes())
}
