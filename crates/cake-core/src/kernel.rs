//! Compiled entry points, as data.

use std::fmt;

use crate::{Arch, Dtype};

/// Which half of training a kernel serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Forward, `fwd`.
    Forward,
    /// Backward, `bwd`.
    Backward,
}

/// One compiled entry point. Its `Display` is the symbol in the image, in a profiler and in every report:
/// `{op}_{pass}[_<form>]_{h<width>|any}_{schedule}[_<knob>][_w32|_w0]`, and its source is `cuda/{op}/{pass}_{schedule}.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Operator, `rmsnorm`.
    pub op: &'static str,
    /// Forward or backward.
    pub pass: Pass,
    /// Which of the operator's forms, a name in its namespace `forms`; empty for the plain one.
    pub form: &'static str,
    /// Row width fixed at compile time; `None` is a kernel for any width.
    pub width: Option<u32>,
    /// Name of the schedule and of its source file.
    pub schedule: &'static str,
    /// Distinguishes two geometries of one schedule at one width; empty otherwise.
    pub knob: &'static str,
    /// Weight dtype; `None` without a weight.
    pub weight: Option<Dtype>,
    /// Threads that share a row, a power of two.
    pub group: u32,
    /// Rows that a CTA works on at a time, each by a group of its own.
    pub rows: u32,
    /// Rows that a group takes in between two barriers; 0 for a schedule without this choice.
    pub step: u32,
    /// CTAs per SM that the compiler must leave registers for; 0 leaves it free.
    pub min_ctas: u32,
    /// Oldest architecture that has the instructions it uses.
    pub since: Arch,
    /// Whether every tensor must allow loads of 16 bytes; otherwise any alignment and stride is served.
    pub vectors: bool,
    /// Whether its CTAs wait for each other, so that all must run at once: the launch sees to it, with as many CTAs as fit.
    pub cooperative: bool,
}

impl Kernel {
    /// Threads of a CTA.
    pub const fn threads(&self) -> u32 {
        self.group * self.rows
    }

    /// Whether `arch` can run the kernel.
    pub const fn runs_on(&self, arch: Arch) -> bool {
        arch as u8 >= self.since as u8
    }

    /// Whether `arch` can run the kernel and it fits rows of `width` elements.
    pub fn serves(&self, width: u32, arch: Arch) -> bool {
        self.runs_on(arch) && self.width.is_none_or(|own| own == width)
    }

    /// Path of the schedule's source below `cuda/`.
    pub fn source(&self) -> String {
        format!("{}/{}_{}.cuh", self.op, self.pass, self.schedule)
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pass::Forward => "fwd",
            Pass::Backward => "bwd",
        })
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.op, self.pass)?;
        if !self.form.is_empty() {
            write!(f, "_{}", self.form)?;
        }
        match self.width {
            Some(width) => write!(f, "_h{width}_{}", self.schedule)?,
            None => write!(f, "_any_{}", self.schedule)?,
        }
        if !self.knob.is_empty() {
            write!(f, "_{}", self.knob)?;
        }
        match self.weight {
            Some(Dtype::F32) => f.write_str("_w32"),
            Some(_) => Ok(()),
            None => f.write_str("_w0"),
        }
    }
}
