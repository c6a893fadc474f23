//! The folder of a report.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::html;
use super::results::{Report, replace};
use crate::bench::record::Record;

/// For people.
const TEXT: &str = "report.txt";
const PAGE: &str = "report.html";

/// Makes the folder, and writes what the run begins with. What people read of an earlier run goes: it would stand
/// beside the results of this one.
pub fn begin(report: &Report, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making the folder {}", folder.display()))?;
    for name in [TEXT, PAGE] {
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
    replace(&folder.join(TEXT), report.to_string().as_bytes())?;
    page(report, &[], folder).map(|_| ())
}

/// Writes the page for people; its path.
pub fn page(report: &Report, benches: &[Record], folder: &Path) -> Result<PathBuf> {
    let path = folder.join(PAGE);
    replace(&path, html::page(report, benches).as_bytes())?;
    Ok(path)
}
