//! GPU families: the closed list of architectures that have images and routes.

use std::fmt;

/// The list from which [`Arch`] is made.
macro_rules! architectures {
    ($($(#[$boards:meta])* $name:ident = $capability:expr, $target:literal;)*) => {
        /// A family of NVIDIA GPUs with its own image, routes and evidence.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Arch {
            $($(#[$boards])* $name,)*
        }

        impl Arch {
            /// Every architecture, oldest first.
            pub const ALL: [Arch; [$(Arch::$name),*].len()] = [$(Arch::$name),*];

            /// Compute capability (major, minor).
            pub const fn capability(self) -> (i32, i32) {
                match self {
                    $(Arch::$name => $capability,)*
                }
            }

            /// The target that images are compiled for, as NVRTC spells it. The `a` targets run on exactly that capability.
            pub const fn target(self) -> &'static str {
                match self {
                    $(Arch::$name => $target,)*
                }
            }
        }
    };
}

architectures! {
    /// A100.
    Sm80 = (8, 0), "sm_80";
    /// RTX 30, A40.
    Sm86 = (8, 6), "sm_86";
    /// RTX 40, L4, L40.
    Sm89 = (8, 9), "sm_89";
    /// H100, H200.
    Sm90 = (9, 0), "sm_90a";
    /// B200.
    Sm100 = (10, 0), "sm_100a";
    /// B300.
    Sm103 = (10, 3), "sm_103a";
    /// R200.
    Sm107 = (10, 7), "sm_107a";
    /// RTX 50, RTX PRO Blackwell.
    Sm120 = (12, 0), "sm_120";
}

impl Arch {
    /// The architecture of a compute capability, if there is one.
    pub fn of_capability(major: i32, minor: i32) -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.capability() == (major, minor))
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
