//! Widths and numbers of rows.

/// Widths with tuned programs.
pub use cake_kernels::rmsnorm::FORWARD_WIDTHS as TUNED;

/// Widths with programs of the gated norm.
pub const GATED: [u32; 4] = [64, 128, 256, 512];

/// Widths that only the programs for any width serve, from a single element to the rows of the widest models.
pub const ANY: [u32; 12] = [1, 2, 7, 8, 100, 769, 1000, 1152, 5376, 53248, 65536, 131072];

/// Widths around a unit, a warp, and every power of two that a group of threads may be: tails, and rows that start at
/// odd addresses.
pub const NARROW: [u32; 19] = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 129];

/// Widths next to tuned ones, those of models without tuned programs, and one that is prime.
pub const UNTUNED: [u32; 16] =
    [255, 257, 513, 541, 768, 769, 1000, 1152, 1200, 2049, 2304, 2520, 4104, 5376, 8200, 16392];

/// Widths beyond the registers of a CTA.
pub const WIDE: [u32; 7] = [20480, 32768, 53248, 65536, 65537, 131072, 262144];

/// Numbers of rows: none, one, and one less and one more than every tile that a schedule may use.
pub const ROWS: [u64; 16] = [0, 1, 2, 7, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1024, 4096, 16231];
