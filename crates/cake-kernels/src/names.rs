//! The operators and targets that have images. The build script reads this file too, so it uses nothing of the crate.

#![allow(dead_code, unreachable_pub)] // the crate, its builder and the build script use a part of it each

/// Every operator with an image. Its kernels are listed in `src/<op>.rs`, its sources are `cuda/<op>/`.
pub const OPS: &[&str] = &["probe", "rmsnorm", "silu_gate"];

/// The NVRTC target of every architecture, in the order of `cake_core::Arch::ALL`.
pub(crate) const TARGETS: [&str; 8] = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_107a", "sm_120"];

/// The target whose image that of `target` is compressed against, since most of their code is the same.
pub(crate) fn sibling(target: &str) -> Option<&'static str> {
    match target {
        "sm_89" => Some("sm_86"),
        "sm_103a" => Some("sm_100a"),
        _ => None,
    }
}

/// The file below `images/` for one operator and target.
pub(crate) fn image_file(op: &str, target: &str) -> String {
    format!("{op}_{target}.cubin.zst")
}
