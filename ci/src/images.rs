//! `cargo ci images`.

use anyhow::Result;

use crate::{shell, tools};

/// Compiles the images with the builder inside cake-kernels, which may embed outdated ones while it makes new ones.
pub(crate) fn run(check: bool) -> Result<()> {
    tools::nvrtc()?;
    let mut cargo =
        shell::cargo("run --quiet --profile test --package cake-kernels --features build --bin cake-images --");
    if check {
        cargo.arg("--check");
    }
    shell::run(cargo.env("CAKE_IMAGES_STALE", "1"))
}
