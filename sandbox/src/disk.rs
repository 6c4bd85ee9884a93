//! Disk usage of a folder.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Maximum number of files and folders; a folder with more is too large, regardless of their
/// contents.
pub const FILES_MAX: u64 = 100_000;

/// Bytes of a block in `stat`.
const BLOCK_BYTES: u64 = 512;

/// Free bytes that a run must leave on the disk, capped at a part of the disk.
const KEPT_FREE: u64 = 512 << 20;
const KEPT_FREE_ONE_IN: u64 = 4;

/// Disk usage in bytes, and number of files and folders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

/// Usage below a folder, without following links. Files created or deleted meanwhile may be counted
/// or not.
pub(crate) fn usage(folder: &Path) -> Usage {
    let (mut usage, mut open) = (Usage::default(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            let Ok(data) = entry.metadata() else { continue };
            usage.files += 1;
            if usage.files > FILES_MAX {
                return usage;
            }
            usage.bytes = usage.bytes.saturating_add(data.blocks().saturating_mul(BLOCK_BYTES));
            if data.is_dir() {
                open.push(entry.path());
            }
        }
    }
    usage
}

/// Free bytes of the disk of a folder, if fewer than a run must leave.
pub(crate) fn nearly_full(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    let [free, total] = [disk.f_bavail, disk.f_blocks].map(|blocks| blocks.saturating_mul(disk.f_frsize));
    (free < KEPT_FREE.min(total / KEPT_FREE_ONE_IN)).then_some(free)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn nested_files_count_and_link_targets_do_not() {
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("large"), vec![1; 4 << 20]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("link")).unwrap();
        let usage = usage(folder.path());
        assert_eq!(usage.files, 4, "two folders, a file and a link");
        assert!((1 << 20..2 << 20).contains(&usage.bytes), "{usage:?}");
    }
}
