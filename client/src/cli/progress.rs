//! How far long work has come: a bar on a terminal, a summary at the end, the memory it took.

use std::time::Duration;

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use serde_json::json;

use super::output;

/// A bar on the standard error; nothing where that is no terminal.
#[derive(Debug, Clone)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Counts rows whose number is not known beforehand.
    pub fn rows() -> Progress {
        Progress::new(ProgressBar::new_spinner(), "{spinner} {human_pos} rows, {per_sec}, {elapsed}")
    }

    /// Counts the bytes of a file.
    pub fn of_file(bytes: u64) -> Progress {
        Progress::new(ProgressBar::new(bytes), "{wide_bar} {percent}% of {binary_total_bytes}, {msg}, {eta} left")
    }

    /// Counts vnodes.
    pub fn vnodes() -> Progress {
        Progress::new(ProgressBar::new(0), "{wide_bar} {pos}/{len} vnodes, {eta} left")
    }

    /// Counts steps of work.
    pub fn steps() -> Progress {
        Progress::new(ProgressBar::new(0), "{wide_bar} {pos}/{len} steps, {eta} left")
    }

    /// Counts objects of a bucket.
    #[cfg(feature = "backup")]
    pub fn objects() -> Progress {
        Progress::new(ProgressBar::new(0), "{wide_bar} {pos}/{len} objects, {eta} left")
    }

    /// So many of all objects are done.
    #[cfg(feature = "backup")]
    pub fn objects_done(&self, done: u64, all: u64) {
        self.bar.set_length(all);
        self.bar.set_position(done);
    }

    fn new(bar: ProgressBar, template: &str) -> Progress {
        // The templates are ours; a wrong one would leave the default.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar }
    }

    /// More rows are done.
    pub fn rows_done(&self, rows: u64) {
        self.bar.inc(rows);
    }

    /// So much of the file is read, and so many rows are done.
    pub fn at(&self, bytes: u64, rows: u64) {
        self.bar.set_position(bytes);
        let per_second = rate(rows, self.bar.elapsed());
        self.bar.set_message(format!("{} rows, {}/s", HumanCount(rows), HumanCount(per_second)));
    }

    /// So many of all vnodes are done.
    pub fn vnodes_done(&self, done: u32, all: u32) {
        self.bar.set_length(u64::from(all));
        self.bar.set_position(u64::from(done));
    }

    /// So many of all steps are done.
    pub fn steps_done(&self, done: u64, all: u64) {
        self.bar.set_length(all);
        self.bar.set_position(done);
    }

    /// Prints results above the bar.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Prints a line above the bar.
    pub fn note(&self, text: &str) {
        self.bar.suspend(|| output::note(text));
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// What was done, at the end of it.
#[derive(Debug, Clone, Copy)]
pub struct Summary {
    /// Rows read or written.
    pub rows: u64,
    /// Bytes of text read or written.
    pub bytes: u64,
    /// From beginning to end.
    pub elapsed: Duration,
}

impl Summary {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} rows, {} in {} ({} rows/s)",
            HumanCount(self.rows),
            output::bytes(self.bytes),
            if self.elapsed < Duration::from_secs(10) {
                format!("{:.1} s", self.elapsed.as_secs_f64())
            } else {
                HumanDuration(self.elapsed).to_string()
            },
            HumanCount(rate(self.rows, self.elapsed)),
        );
        if let Some(peak) = peak_memory_bytes() {
            text += &format!(", peak memory {}", output::bytes(peak));
        }
        text
    }

    /// For programs.
    pub fn json(&self) -> serde_json::Value {
        json!({
            "rows": self.rows,
            "bytes": self.bytes,
            "elapsed_ms": self.elapsed.as_millis() as u64,
            "rows_per_s": rate(self.rows, self.elapsed),
            "peak_memory_bytes": peak_memory_bytes(),
        })
    }
}

fn rate(rows: u64, elapsed: Duration) -> u64 {
    (rows as f64 / elapsed.as_secs_f64().max(0.001)) as u64
}

/// The most memory this process has held so far, where the system tells.
fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}
