//! The embedded images, and which kernels are in them.

use cake_core::{Arch, Image, Kernel};

pub use crate::names::OPS;
use crate::names::sibling;
use crate::{probe, rmsnorm, silu_gate};

/// The bytes of `images/<op>_<target>.cubin.zst`; build.rs says in which folder that is.
macro_rules! embedded {
    ($op:literal, $arch:expr) => {
        match $arch {
            Arch::Sm80 => embedded!(file $op, "sm_80"),
            Arch::Sm86 => embedded!(file $op, "sm_86"),
            Arch::Sm89 => embedded!(file $op, "sm_89"),
            Arch::Sm90 => embedded!(file $op, "sm_90a"),
            Arch::Sm100 => embedded!(file $op, "sm_100a"),
            Arch::Sm103 => embedded!(file $op, "sm_103a"),
            Arch::Sm107 => embedded!(file $op, "sm_107a"),
            Arch::Sm120 => embedded!(file $op, "sm_120"),
        }
    };
    (file $op:literal, $target:literal) => {
        include_bytes!(concat!(env!("CAKE_IMAGES"), "/", $op, "_", $target, ".cubin.zst")).as_slice()
    };
}

/// The image of `op`, one of [`OPS`], for `arch`.
pub fn image(op: &'static str, arch: Arch) -> Image {
    let sibling = sibling(arch.target()).and_then(|target| Arch::ALL.into_iter().find(|arch| arch.target() == target));
    Image { op, arch, compressed: compressed(op, arch), sibling: sibling.map(|sibling| compressed(op, sibling)) }
}

/// The list of operators with images, each with its kernels.
macro_rules! operators {
    ($($op:literal => $kernels:expr;)*) => {
        fn compressed(op: &str, arch: Arch) -> &'static [u8] {
            match op {
                $($op => embedded!($op, arch),)*
                _ => unknown(op),
            }
        }

        /// Every kernel of `op`, one of [`OPS`], for all architectures together.
        pub fn kernels(op: &str) -> Vec<&'static Kernel> {
            match op {
                $($op => $kernels,)*
                _ => unknown(op),
            }
        }

        const _: () = assert!(OPS.len() == [$($op),*].len(), "names.rs lists other operators than images.rs");
    };
}

operators! {
    "probe" => probe::KERNELS.to_vec();
    "rmsnorm" => {
        let forms = rmsnorm::FORWARD.iter().chain(rmsnorm::BACKWARD);
        forms.flat_map(|forms| forms.kernels()).chain(rmsnorm::JOIN.bf16).collect()
    };
    "silu_gate" => {
        silu_gate::FORWARD.iter().chain(silu_gate::BACKWARD).flat_map(|program| program.bf16).collect()
    };
}

#[cold]
fn unknown(op: &str) -> ! {
    panic!("no kernels are listed for {op:?}: expected one of {OPS:?}")
}

#[cfg(test)]
mod tests;
