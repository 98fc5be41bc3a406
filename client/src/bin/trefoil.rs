//! x
#[path = "../cli/mod.rs"]
mod cli;
fn main() {}
