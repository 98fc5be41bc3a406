//! The binary `trefoil`: see `cli`.

use std::process::ExitCode;

#[path = "../cli/mod.rs"]
mod cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
