//! The machine of a measurement; figures are only meaningful together with it.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

use celeris_kernel as kernel;

/// The machine as the operating system describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// CPU model.
    pub cpu: String,
    /// Number of cores available to this process.
    pub cores: usize,
    /// Instruction set of the rank-one kernel.
    pub instruction_set: String,
    /// Operating system.
    pub os: String,
    /// Memory in bytes; 0 if unknown.
    pub memory_bytes: u64,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: model,
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
            instruction_set: kernel::name().to_owned(),
            os: format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned(),
            memory_bytes: kibibytes("/proc/meminfo", "MemTotal").unwrap_or(0),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let Self { cpu, cores, instruction_set, os, memory_bytes } = self;
        let memory = bytesize::ByteSize(*memory_bytes);
        write!(formatter, "{cpu}, {cores} cores, {instruction_set}, {os}, {memory} of memory")
    }
}

/// The first `name: value` of a file.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

/// Reads a field of `/proc` in kibibytes; returns bytes.
pub fn kibibytes(file: &str, name: &str) -> Option<u64> {
    let value = field(file, name)?;
    let number: u64 = value.strip_suffix("kB")?.trim().parse().ok()?;
    Some(number * 1024)
}
