//! Restores.

pub mod share;
