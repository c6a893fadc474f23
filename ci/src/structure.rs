//! `cargo ci structure`: the rules about who may name whom, and the links between the pages.
//!
//! Each rule is a function from the packages or the files to breaches, so that the tests can show it made-up ones.

mod layers;
mod links;
mod sources;

use std::path::Path;
use std::{fmt, fs};

use anyhow::{Context, Result, bail};

use crate::shell::{metadata, root};

/// A rule that something does not keep.
#[derive(Debug, PartialEq)]
struct Breach {
    /// A file, with its line if one is to blame, or a package.
    at: String,
    rule: String,
}

impl Breach {
    fn new(at: impl Into<String>, rule: impl Into<String>) -> Self {
        Breach { at: at.into(), rule: rule.into() }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.rule)
    }
}

/// A file of code or a page, by its path from the root with `/` between the names.
struct Source {
    path: String,
    text: String,
}

/// Checks every rule, and lists what breaks one.
pub(crate) fn run() -> Result<()> {
    let packages = layers::packages(&metadata()?)?;
    let mut files = Vec::new();
    collect(&root(), "", &mut files)?;
    let mut breaches = layers::check(&packages);
    breaches.extend(sources::check(&files, &layers::ops(&packages)));
    breaches.extend(links::check(&files, |path| root().join(path).exists()));
    for breach in &breaches {
        println!("{breach}");
    }
    match breaches.len() {
        0 => println!("{} packages and {} files keep the rules", packages.len(), files.len()),
        number => bail!("{number} breaches of the structure"),
    }
    Ok(())
}

/// Every file of code and every page below `folder`, except in hidden folders and in those of build outputs.
fn collect(folder: &Path, prefix: &str, files: &mut Vec<Source>) -> Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            if !name.starts_with('.') && !["target", "out", "shared", "__pycache__"].contains(&name.as_str()) {
                collect(&entry.path(), &format!("{path}/"), files)?;
            }
        } else if ["rs", "cuh", "cu", "py", "sh", "md"].iter().any(|code| name.ends_with(&format!(".{code}"))) {
            let text = fs::read_to_string(entry.path()).with_context(|| format!("cannot read {path}"))?;
            files.push(Source { path, text });
        }
    }
    Ok(())
}
