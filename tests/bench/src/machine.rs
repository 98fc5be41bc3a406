//! The machine that was measured on.

use std::fs;
use std::thread::available_parallelism;

use crate::Result;

/// What a reader must know to compare with their own.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Processors this process may use.
    pub cores: usize,
    /// The processor's own name.
    pub processor: String,
    /// Memory in GiB.
    pub memory_gib: u64,
    /// The kernel's release.
    pub kernel: String,
}

/// Looks at `/proc`.
pub fn look() -> Result<Machine> {
    let processor = field("/proc/cpuinfo", "model name")?.unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory = field("/proc/meminfo", "MemTotal")?.unwrap_or_default();
    let memory_kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
    Ok(Machine {
        cores: available_parallelism()?.get(),
        processor,
        memory_gib: memory_kib.div_ceil(1 << 20),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
    })
}

/// Processes that wanted to run, on average over the last minute.
pub fn load_average() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

fn field(file: &str, name: &str) -> Result<Option<String>> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find(|line| line.starts_with(name));
    Ok(line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()))
}
