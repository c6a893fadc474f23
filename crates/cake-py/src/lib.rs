//! cake-py
