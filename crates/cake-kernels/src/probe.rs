//! Small kernels that measure and exercise the board: an empty one, the grid barrier, and one that moves bytes.

use cake_core::{Arch, Kernel, Pass};

/// Operator name in kernel names and images.
pub const OP: &str = "probe";

/// Parameters of every probe, mirrored by `cuda/probe/args.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ForwardParams {
    /// Address of the barrier word.
    pub barrier: u64,
    /// Address of one 32-bit word for each CTA.
    pub cells: u64,
    /// Address of the 32-bit count of errors.
    pub errors: u64,
    /// Rounds of the barrier.
    pub rounds: u32,
    /// Units of 16 bytes to add.
    pub units: u32,
    /// Addresses of what is added.
    pub inputs: [u64; 3],
    /// Addresses of the sum.
    pub outputs: [u64; 2],
}

/// Does nothing.
pub static EMPTY: Kernel = probe("empty", 32, false);
/// Passes the grid barrier twice a round and checks what the other CTAs wrote; needs a cooperative launch.
pub static BARRIER: Kernel = probe("barrier", 128, true);
/// Adds two inputs without carries: the memory's rate when two streams are read and one is written.
pub static ADD: Kernel = probe("add", 256, false);
/// As [`ADD`], with three inputs.
pub static ADD_THREE: Kernel = Kernel { form: "r3", ..ADD };
/// As [`ADD`], with three inputs and two outputs.
pub static ADD_THREE_TWICE: Kernel = Kernel { form: "r3w2", ..ADD };

/// Every probe.
pub static KERNELS: &[&Kernel] = &[&EMPTY, &BARRIER, &ADD, &ADD_THREE, &ADD_THREE_TWICE];

const fn probe(schedule: &'static str, threads: u32, cooperative: bool) -> Kernel {
    Kernel {
        op: OP,
        pass: Pass::Forward,
        form: "",
        width: None,
        schedule,
        knob: "",
        weight: None,
        group: threads,
        rows: 1,
        step: 0,
        min_ctas: 0,
        since: Arch::Sm80,
        vectors: false,
        cooperative,
    }
}
