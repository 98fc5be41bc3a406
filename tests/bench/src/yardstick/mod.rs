//! What this machine gives to a program that does the least possible: everything else is measured against these.

pub mod echo;
pub mod log;
pub mod memory;
