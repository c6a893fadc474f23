//! cake-verify
