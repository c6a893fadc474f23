//! `cargo ci images`, from inside the package: compiles the images and writes them, or with `--check` compares them.

use std::path::Path;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--check"] => true,
        _ => bail!("usage: cake-images [--check]"),
    };
    cake_kernels::build::run(Path::new(env!("CARGO_MANIFEST_DIR")), check)
}
