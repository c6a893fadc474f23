//! A copy of the working tree, to be spoilt.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};

use super::Fault;
use crate::shell::{command, output, root, target_folder};

/// The copy. It is kept from run to run, as are its builds: a file is written only where it differs.
pub(super) struct Copy {
    /// Its root.
    pub(super) tree: PathBuf,
    /// What is built from it.
    pub(super) target: PathBuf,
    /// What its tests say, by fault.
    pub(super) logs: PathBuf,
}

impl Copy {
    /// Everything that git knows of or would add, as it is now.
    pub(super) fn new() -> Result<Copy> {
        let folder = target_folder()?.join("mutate");
        let copy = Copy { tree: folder.join("tree"), target: folder.join("target"), logs: folder.join("logs") };
        fs::create_dir_all(&copy.tree)?;
        fs::create_dir_all(&copy.logs)?;
        let listed = output(command("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
        let listed = String::from_utf8(listed).context("git lists a file whose name is not text")?;
        let files: BTreeSet<&str> = listed.split_terminator('\0').filter(|file| root().join(file).is_file()).collect();
        for file in &files {
            copy.bring(file).with_context(|| format!("cannot copy {file}"))?;
        }
        copy.remove_others(&copy.tree, &files)?;
        Ok(copy)
    }

    fn bring(&self, file: &str) -> Result<()> {
        let (from, to) = (root().join(file), self.tree.join(file));
        let content = fs::read(&from)?;
        if fs::read(&to).is_ok_and(|there| there == content) {
            return Ok(());
        }
        fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        fs::write(&to, content)?;
        fs::set_permissions(&to, fs::metadata(&from)?.permissions())?;
        Ok(())
    }

    /// Removes what is not in the working tree any more, but for what was built there.
    fn remove_others(&self, folder: &Path, files: &BTreeSet<&str>) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(&self.tree)?.to_string_lossy().into_owned();
            match path.is_dir() {
                true if name == "target" => {}
                true => self.remove_others(&path, files)?,
                false if files.contains(name.as_str()) => {}
                false => fs::remove_file(&path)?,
            }
        }
        Ok(())
    }

    /// Puts a fault into the copy.
    pub(super) fn put(&self, fault: &Fault) -> Result<Applied> {
        let file = self.tree.join(fault.file);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", fault.file))?;
        let since = fault.in_kernel().then(|| fs::metadata(&file)?.modified()).transpose()?;
        fs::write(&file, fault.applied(&text)?)?;
        Ok(Applied { file, text, since })
    }
}

/// A fault that is in the copy.
pub(super) struct Applied {
    file: PathBuf,
    text: String,
    /// When the file was last modified, unless something was built from the fault.
    since: Option<SystemTime>,
}

impl Applied {
    /// Takes it out again.
    pub(super) fn undo(self) -> Result<()> {
        fs::write(&self.file, self.text)?;
        if let Some(since) = self.since {
            File::options().write(true).open(&self.file)?.set_modified(since)?;
        }
        Ok(())
    }
}
