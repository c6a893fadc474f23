//! Holds the embedded images to their sources: a build stops when `images.lock` was not made from them.
//!
//! `CAKE_IMAGES_STALE=1` lets a build go on with the images that are there, or with empty ones; `cargo ci images` needs
//! that to build the tool that makes new ones.

#[path = "src/names.rs"]
mod names;
#[path = "src/build/sources.rs"]
mod sources;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    for path in ["build.rs", "src/names.rs", "src/build", "cuda", "images", "images.lock"] {
        println!("cargo::rerun-if-changed={path}");
    }
    for op in names::OPS {
        println!("cargo::rerun-if-changed=src/{op}.rs");
    }

    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let mut images = root.join("images");
    let missing: Vec<String> = files().filter(|file| !images.join(file).is_file()).collect();
    let stale = match missing.is_empty() {
        true => stale(&root)?,
        false => Some(format!("{} of the images are missing, {} first", missing.len(), missing[0])),
    };
    if let Some(stale) = stale {
        // Asked only here, so that `cargo ci images` leaves a build with matching images as it is.
        println!("cargo::rerun-if-env-changed=CAKE_IMAGES_STALE");
        if env::var("CAKE_IMAGES_STALE").is_ok_and(|value| value == "1") {
            println!("cargo::warning={stale}; going on because of CAKE_IMAGES_STALE=1");
        } else {
            println!("cargo::error={stale}: run `cargo ci images` to compile them again");
        }
        if !missing.is_empty() {
            images = PathBuf::from(env::var("OUT_DIR")?).join("empty");
            fs::create_dir_all(&images)?;
            for file in files() {
                fs::write(images.join(file), [])?;
            }
        }
    }
    println!("cargo::rustc-env=CAKE_IMAGES={}", images.display());
    Ok(())
}

/// The name of every image.
fn files() -> impl Iterator<Item = String> {
    names::OPS.iter().flat_map(|op| names::TARGETS.map(|target| names::image_file(op, target)))
}

/// Why the images do not match the sources, if they do not.
fn stale(root: &Path) -> Result<Option<String>, Box<dyn Error>> {
    let actual = sources::digest(root)?;
    let lock = fs::read_to_string(root.join("images.lock")).unwrap_or_default();
    let locked = lock.lines().find_map(|line| line.strip_prefix("sources "));
    Ok((locked != Some(&actual)).then(|| {
        let locked = locked.unwrap_or("nothing");
        format!("the images were compiled from other sources (these are {actual:.12}, images.lock says {locked:.12})")
    }))
}
