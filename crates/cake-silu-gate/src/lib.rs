//! cake-silu-gate
