//! The one error type of the workspace.

use crate::{Arch, Dtype, Place};

/// `Result` with Cake's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call was refused or failed. Arguments are named as in the call; every variant carries what was expected and
/// what was found. When a call is refused, nothing was launched and nothing was written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are named by what they hold
pub enum Error {
    /// A pointer to at least one element is null.
    #[error("{argument}: null pointer, expected the address of {bytes} bytes")]
    NullPointer { argument: &'static str, bytes: u64 },
    /// A pointer is not a multiple of what its use needs.
    #[error("{argument}: address {address:#x} is not a multiple of {expected} bytes")]
    Misaligned { argument: &'static str, expected: u64, address: u64 },
    /// A view reaches beyond its buffer.
    #[error("{argument}: shape {shape:?} with strides {strides:?} needs {needed} bytes, the buffer holds {held}")]
    Extent { argument: &'static str, shape: Vec<u64>, strides: Vec<u64>, needed: u128, held: u64 },
    /// Addresses that wrap.
    #[error("{argument}: {bytes} bytes at address {address:#x} reach beyond the last address")]
    AddressRange { argument: &'static str, address: u64, bytes: u64 },
    /// A stride too few or too many.
    #[error("{argument}: {actual} strides, expected {expected}, one for each dimension")]
    Strides { argument: &'static str, expected: usize, actual: usize },
    /// A negative stride, which no program follows.
    #[error("{argument}: stride {actual} of dimension {dimension} is negative, expected 0 or more")]
    NegativeStride { argument: &'static str, dimension: usize, actual: i64 },
    /// Wrong element type.
    #[error("{argument}: dtype {actual}, expected {expected}")]
    Dtype { argument: &'static str, expected: &'static str, actual: Dtype },
    /// Too few or too many dimensions.
    #[error("{argument}: {actual} dimensions, expected {expected}")]
    Rank { argument: &'static str, expected: &'static str, actual: usize },
    /// Wrong sizes.
    #[error("{argument}: shape {actual:?}, expected {expected:?}")]
    Shape { argument: &'static str, expected: Vec<u64>, actual: Vec<u64> },
    /// A size outside what the operator serves.
    #[error("{argument}: {actual}, expected {expected}")]
    Size { argument: &'static str, expected: &'static str, actual: u64 },
    /// A scalar outside its domain.
    #[error("{argument}: {actual}, expected {expected}")]
    Value { argument: &'static str, expected: &'static str, actual: f64 },
    /// An argument that the plan needs is absent.
    #[error("{argument}: absent, expected because {because}")]
    Missing { argument: &'static str, because: &'static str },
    /// An argument that the plan has no use for is present.
    #[error("{argument}: present, expected absent because {because}")]
    Unexpected { argument: &'static str, because: &'static str },
    /// Memory of another device, or of the host.
    #[error("{argument}: lives on {actual}, expected {expected}")]
    Place { argument: &'static str, expected: Place, actual: Place },
    /// Two elements of one output share memory.
    #[error("{argument}: elements of an output overlap: shape {shape:?} with strides {strides:?}")]
    SelfOverlap { argument: &'static str, shape: Vec<u64>, strides: Vec<u64> },
    /// An output shares memory with another argument and the pair is not listed as allowed.
    #[error(
        "{output} (bytes {:#x}..{:#x}) overlaps {other} (bytes {:#x}..{:#x}), expected disjoint memory{hint}",
        output_range.0, output_range.1, other_range.0, other_range.1
    )]
    Overlap {
        output: &'static str,
        output_range: (u64, u64),
        other: &'static str,
        other_range: (u64, u64),
        hint: &'static str,
    },
    /// A workspace that is too small.
    #[error("workspace: {held} bytes, expected at least {needed}")]
    WorkspaceShort { needed: u64, held: u64 },
    /// A workspace or stream that belongs elsewhere.
    #[error("{argument}: belongs to {actual}, expected {expected}")]
    Foreign { argument: &'static str, expected: String, actual: String },
    /// No NVIDIA driver library on this machine.
    #[error("libcuda not found: no NVIDIA driver is installed or visible here; the host path needs none")]
    DriverMissing,
    /// The driver is older than the embedded images.
    #[error("the NVIDIA driver serves CUDA {}.{}, expected {}.{} or newer", actual / 1000, actual % 1000 / 10, expected / 1000, expected % 1000 / 10)]
    DriverTooOld { expected: i32, actual: i32 },
    /// The driver is there but sees no such GPU.
    #[error("cuda:{ordinal}: no such device, {present} present")]
    NoDevice { ordinal: u32, present: u32 },
    /// A GPU that no image serves.
    #[error("cuda:{ordinal} ({name}) has compute capability {major}.{minor}, expected one of {}", Arch::capabilities())]
    UnsupportedDevice { ordinal: u32, name: String, major: i32, minor: i32 },
    /// First use of a device inside a graph capture, where loading an image is not possible.
    #[error("{op}: the plan is not loaded on cuda:{ordinal} and the stream is capturing a graph: call warm_up() first")]
    WarmUpNeeded { op: &'static str, ordinal: u32 },
    /// An embedded image that cannot be used.
    #[error("image of {op} for {arch}: {detail}")]
    Image { op: &'static str, arch: Arch, detail: String },
    /// A program name that the plan does not know, or that cannot serve the call.
    #[error("program {name}: {detail}")]
    Program { name: String, detail: String },
    /// The driver refused a call.
    #[error("{call}: {code} ({detail})")]
    Cuda { call: &'static str, code: u32, detail: String },
}
