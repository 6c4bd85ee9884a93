//! What the caller passes to the supervisor, and what the supervisor reports.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::SandboxError;

/// Command of the caller's binary that calls [`crate::supervise`]; its option `--plan` is the path
/// of a [`Plan`].
pub const SUPERVISE: &str = "supervise-confined";

/// Command of the caller's binary that calls [`crate::become_program`], with the options `--plan`
/// and `--parent`, the process id of the supervisor.
pub const BECOME: &str = "become-confined";

/// Limits of all processes of a program together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Resident memory, in bytes.
    pub memory_bytes: u64,
    /// Seconds from the start.
    pub seconds: u64,
    /// Seconds without output and without a change in the output folder.
    pub heartbeat_seconds: u64,
    /// Number of processes and threads together.
    pub processes: u64,
    /// Bytes written into the folder of the run.
    pub disk_bytes: u64,
}

/// Command and limits of a confined program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The program and its arguments.
    pub command: Vec<String>,
    pub limits: Limits,
    /// The folder of the run, whose growth is limited.
    pub folder: PathBuf,
    /// Path of the file for the [`Ending`].
    pub report: PathBuf,
}

impl Plan {
    /// Reads a plan from its file.
    ///
    /// # Errors
    /// `Io` or `Plan`.
    pub(crate) fn read(path: &Path) -> Result<Self, SandboxError> {
        let text = fs::read(path).map_err(SandboxError::io(path))?;
        serde_json::from_slice(&text).map_err(|source| SandboxError::Plan { path: path.to_owned(), source })
    }
}

/// How a program ended, as reported by its supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Exited {
        code: i32,
        /// Peak memory of its processes together, in bytes.
        memory_peak: u64,
    },
    /// Killed by a signal that the supervisor did not send.
    Signalled {
        signal: i32,
        /// Peak memory of its processes together, in bytes.
        memory_peak: u64,
    },
    /// Killed by the kernel because one of its files reached the disk limit.
    FileTooLarge,
    /// Killed because its processes exceeded the memory limit.
    TooMuchMemory {
        /// Memory in use, in bytes.
        held: u64,
    },
    /// Killed because there were too many processes and threads.
    TooManyProcesses {
        /// Number of processes and threads.
        running: u64,
    },
    /// Killed because too much was written into the folder of the run.
    TooMuchDisk {
        /// Bytes written.
        written: u64,
    },
    /// Killed because the folder of the run contained more than [`crate::FILES_MAX`] files.
    TooManyFiles,
    /// Killed because little space is left on the disk of the folder.
    DiskNearlyFull {
        /// Free bytes.
        free: u64,
    },
    /// Stopped by the caller, or because the caller exited.
    Stopped,
}

impl Ending {
    /// Writes the report. The finished file is renamed into place, so that readers never see a
    /// partial one.
    pub(crate) fn write(self, report: &Path) -> Result<(), SandboxError> {
        let unfinished = report.with_extension("tmp");
        let text = serde_json::to_vec(&self).expect("numbers and names always serialise");
        fs::write(&unfinished, text).map_err(SandboxError::io(&unfinished))?;
        fs::rename(&unfinished, report).map_err(SandboxError::io(report))
    }

    /// The ending that a supervisor has written, if any.
    pub(crate) fn read(report: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(report).ok()?).ok()
    }
}
