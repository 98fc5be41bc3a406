//! The binary `trefoild`: a node, or a cluster of nodes for developers.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use trefoil_server::dev::{self, DevOptions};
use trefoil_server::serve::{self, StopWhen};

// Faster than the system's for many small allocations on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A node of Trefoil, a replicated wide-column store.
#[derive(Parser)]
#[command(name = "trefoild", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one node until SIGTERM or ctrl-C, which it answers with exit code 0 once everything is in files.
    Serve {
        /// The settings; docs/operations.md shows all of them.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Stop, too, when standard input ends: for whoever starts nodes as children.
        #[arg(long, hide = true)]
        until_input_ends: bool,
    },
    /// Runs a cluster on this machine, for developers: each node is a child process. Ctrl-C stops it; the next start goes
    /// on with its data.
    #[command(
        after_help = "EXAMPLES:\n  trefoild dev --demo\n  trefoild dev --dir /tmp/six --nodes-per-zone 2 --port 9500"
    )]
    Dev(DevOptions),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Serve { config, until_input_ends } => {
            let stop_when = if until_input_ends { StopWhen::InputEnds } else { StopWhen::Signalled };
            serve::serve(&config, stop_when).map_err(|error| error.to_string())
        }
        Command::Dev(options) => dev::run(&options).map_err(|error| error.to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "the one line that says why there is no node")]
fn say(error: &str) {
    eprintln!("trefoild: {error}");
}
