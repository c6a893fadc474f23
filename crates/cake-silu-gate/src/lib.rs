//! SiLU-gated RMSNorm for training, `y = rmsnorm(x) * w * silu(z)`. Nothing is served yet.
//!
//! This crate will hold the gated operator under the file names of `cake-rmsnorm`: `args.rs`, `forward.rs`,
//! `backward.rs`, `host.rs`, and route tables in `routes/`. Its kernels will live in `cake-kernels`, its formulas, with the
//! polynomial that specifies the gate's exponential, in `docs/`.
