//! The digest of everything that decides the bytes of the images. The build script reads this file too.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use sha2::{Digest, Sha256};

use crate::names::OPS;

/// The SHA-256 of `bytes`, in hexadecimal.
pub(crate) fn sha256(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes everything");
        text
    })
}

/// The digest over the paths, sizes and contents of [`inputs`].
pub(crate) fn digest(root: &Path) -> io::Result<String> {
    let mut all = Vec::new();
    for (path, content) in inputs(root)? {
        all.extend_from_slice(format!("{path} {}\n", content.len()).as_bytes());
        all.extend_from_slice(&content);
    }
    Ok(sha256(all))
}

/// What the images are made from, by path below `root`, sorted: the CUDA sources, the kernel lists, the renderer.
fn inputs(root: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = below(root, &root.join("cuda"))?;
    for path in OPS.iter().map(|op| format!("src/{op}.rs")).chain(["src/build/unit.rs".into()]) {
        let content = fs::read(root.join(&path))?;
        found.push((path, content));
    }
    found.sort();
    Ok(found)
}

/// Every file below `folder`, by its path below `root` with `/` between the names.
pub(crate) fn below(root: &Path, folder: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![folder.into()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(root).expect("read_dir stays below its folder");
            let name: Vec<_> = name.iter().map(|part| part.to_string_lossy()).collect();
            found.push((name.join("/"), fs::read(&path)?));
        }
    }
    found.sort();
    Ok(found)
}
