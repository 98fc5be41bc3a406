//! What the kernel knows of this process: CPU, memory, bytes written, and what it holds of its files.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use rustix::time::{ClockId, clock_gettime};

use super::files_below;
use crate::Result;

/// User and system time of all threads, those that ended too.
pub fn cpu() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// User and system time of the calling thread.
pub fn cpu_of_this_thread() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Bytes given to the kernel to write and bytes that it read from the disk, since the process began.
#[derive(Debug, Clone, Copy)]
pub struct Io {
    pub written: u64,
    pub read_from_disk: u64,
}

/// See [`Io`].
pub fn io() -> Result<Io> {
    let text = fs::read_to_string("/proc/self/io")?;
    Ok(Io { written: number(&text, "wchar:")?, read_from_disk: number(&text, "read_bytes:")? })
}

/// The most memory that was resident since [`forget_peak`], in bytes.
pub fn peak_bytes() -> Result<u64> {
    Ok(number(&fs::read_to_string("/proc/self/status")?, "VmHWM:")? * 1024)
}

/// What is resident now counts as the peak.
pub fn forget_peak() -> Result<()> {
    Ok(fs::write("/proc/self/clear_refs", "5")?)
}

/// Makes all files of a directory durable and lets the kernel forget what it holds of them, but for what is mapped.
pub fn forget_pages(directory: &Path) -> Result<()> {
    for file in files_below(directory)? {
        let file = File::open(file)?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Bytes that the files of a directory take.
pub fn bytes_below(directory: &Path) -> Result<u64> {
    files_below(directory)?.iter().map(|file| Ok(fs::metadata(file)?.len())).sum()
}

fn number(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    Ok(number.ok_or_else(|| format!("/proc says nothing of {name}"))?)
}
