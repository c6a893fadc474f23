//! cake-rmsnorm
