//! How much of a disk is free.

use std::io;
use std::path::Path;

/// Bytes of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    /// Those that may be taken.
    pub(crate) free: u64,
    /// All of them.
    pub(crate) whole: u64,
}

impl DiskSpace {
    /// Of the file system that `path` is on.
    ///
    /// # Errors
    /// Where it cannot be asked.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let disk = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok(Self { free: bytes(disk.f_bavail), whole: bytes(disk.f_blocks) })
    }
}
