//! One node as a child process.

use std::fs::{self, OpenOptions};
use std::future::Future;
use std::path::Path;
use std::process::Stdio;

use tokio::process::{ChildStdin, Command};

use super::shape::Place;
use super::{DevError, io_error};

/// What a node finds in its environment beside that of the parent.
#[cfg(feature = "dev-s3")]
const VARIABLES: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", super::bucket::ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", super::bucket::SECRET_KEY)];
#[cfg(not(feature = "dev-s3"))]
const VARIABLES: [(&str, &str); 0] = [];

/// Lines of a log that are shown when its node did not start.
const TAIL_LINES: usize = 10;

/// A running node. Dropping it tells the node to stop.
pub(super) struct Child {
    /// Where it stands.
    pub place: Place,
    /// Its process.
    pub pid: u32,
    /// The command that starts this node again.
    pub again: String,
    /// Closed, it tells the node to stop.
    _input: Option<ChildStdin>,
}

/// How a node ended.
pub(super) struct Ended {
    /// Which.
    pub number: u32,
    /// For people.
    pub status: String,
    /// With exit code 0.
    pub clean: bool,
}

/// Starts a node; the future is done when it has ended.
pub(super) fn start(program: &Path, place: Place) -> Result<(Child, impl Future<Output = Ended> + use<>), DevError> {
    let log_file = place.log();
    let open = || OpenOptions::new().create(true).append(true).open(&log_file);
    let (log, log_too) = open().and_then(|log| Ok((open()?, log))).map_err(io_error("open", &log_file))?;
    let settings = place.settings();
    let mut child = Command::new(program)
        .arg("serve")
        .arg("--config")
        .arg(&settings)
        .arg("--until-input-ends")
        .envs(VARIABLES.iter().copied())
        .stdin(Stdio::piped())
        .stdout(log)
        .stderr(log_too)
        .process_group(0)
        .spawn()
        .map_err(io_error("start", program))?;
    let variables: String = VARIABLES.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    let again = format!("{variables}{} serve --config {}", quoted(program), quoted(&settings));
    let number = place.number;
    let started = Child { place, pid: child.id().unwrap_or(0), again, _input: child.stdin.take() };
    let end = async move {
        match child.wait().await {
            Ok(status) => Ended { number, status: status.to_string(), clean: status.success() },
            Err(error) => Ended { number, status: error.to_string(), clean: false },
        }
    };
    Ok((started, end))
}

/// The last lines of a log.
pub(super) fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%,:".contains(c);
    if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
