//! How a process is told to stop.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Takes over SIGTERM and SIGINT (ctrl-C) and tells when one comes.
pub struct StopSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl StopSignals {
    /// From now on these signals do not end the process by themselves.
    pub fn take_over() -> io::Result<StopSignals> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(StopSignals { terminate, interrupt })
    }

    /// Waits for the next signal and answers its name.
    pub async fn next_signal(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
