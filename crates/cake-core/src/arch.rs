//! GPU families: the closed list of architectures that have images and routes.

use std::fmt;

/// A family of NVIDIA GPUs with its own image, routes and evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// A100.
    Sm80,
    /// RTX 30, A40.
    Sm86,
    /// RTX 40, L4, L40.
    Sm89,
    /// H100, H200.
    Sm90,
    /// B200.
    Sm100,
    /// B300.
    Sm103,
    /// R200.
    Sm107,
    /// RTX 50, RTX PRO Blackwell.
    Sm120,
}

impl Arch {
    /// Every architecture, oldest first.
    pub const ALL: [Arch; 8] =
        [Arch::Sm80, Arch::Sm86, Arch::Sm89, Arch::Sm90, Arch::Sm100, Arch::Sm103, Arch::Sm107, Arch::Sm120];

    /// The architecture of a compute capability, if there is one.
    pub fn of_capability(major: i32, minor: i32) -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.capability() == (major, minor))
    }

    /// Compute capability (major, minor).
    pub const fn capability(self) -> (i32, i32) {
        match self {
            Arch::Sm80 => (8, 0),
            Arch::Sm86 => (8, 6),
            Arch::Sm89 => (8, 9),
            Arch::Sm90 => (9, 0),
            Arch::Sm100 => (10, 0),
            Arch::Sm103 => (10, 3),
            Arch::Sm107 => (10, 7),
            Arch::Sm120 => (12, 0),
        }
    }

    /// The target that images are compiled for, as NVRTC spells it. The `a` targets run on exactly that capability.
    pub const fn target(self) -> &'static str {
        match self {
            Arch::Sm80 => "sm_80",
            Arch::Sm86 => "sm_86",
            Arch::Sm89 => "sm_89",
            Arch::Sm90 => "sm_90a",
            Arch::Sm100 => "sm_100a",
            Arch::Sm103 => "sm_103a",
            Arch::Sm107 => "sm_107a",
            Arch::Sm120 => "sm_120",
        }
    }

    /// The architecture that [`Arch::target`] names, for command lines: `sm_90a`, or `sm_90` for short.
    pub fn from_target(name: &str) -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.target() == name || arch.target().trim_end_matches('a') == name)
    }

    pub(crate) fn capabilities() -> String {
        Arch::ALL.map(|arch| format!("{}.{}", arch.capability().0, arch.capability().1)).join(", ")
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.target())
    }
}
