//! Rejects new observations while there is still space for the accepted ones.
//!
//! A write that fails for lack of space leaves RocksDB in a state that only a restart resolves. So
//! appends are rejected earlier, while the free space still suffices for flushing the data in
//! memory, for the output of a compaction before it deletes its input, and for a reserve: for
//! queued data, and for data that arrives until the next check of the disk. Reads continue, and
//! appends are accepted again once there is space, without a restart. If other programs use up the
//! reserve too, the log is poisoned as by any failed write.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::database::Database;
use crate::error::StorageError;

/// Space of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    pub free: u64,
    pub total: u64,
}

impl DiskSpace {
    /// Space of the file system that contains `path`.
    ///
    /// # Errors
    /// If `statvfs` fails.
    pub fn of(path: &Path) -> io::Result<Self> {
        let disk = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok(Self { free: bytes(disk.f_bavail), total: bytes(disk.f_blocks) })
    }
}

/// Minimum interval between queries of the file system, in milliseconds.
const LOOK_EVERY_MS: u64 = 100;

/// The reserve is at most one part in this many of the file system.
const SHARE_MIN: u64 = 8;

/// Changes of the registry may use the reserve down to one part in this many: they are small and
/// few, and include a rollback and the end of a job.
const REGISTRY_RESERVE_DIVISOR: u64 = 2;

/// Number of write buffers that one compaction rewrites: the four that trigger it, and those that
/// arrive meanwhile.
const COMPACTION_BUFFERS: usize = 6;

/// Monitors the free space on the file system of the data directory.
pub(crate) struct SpaceGuard {
    dir: PathBuf,
    database: Arc<Database>,
    reserve_max: u64,
    /// The expected maximum size of a compaction's output before its input is deleted.
    compaction_bytes_max: u64,
    since: Instant,
    looked_at_ms: AtomicU64,
    is_full: AtomicBool,
    /// As of the last query.
    free: AtomicU64,
    needed: AtomicU64,
}

impl SpaceGuard {
    pub(crate) fn new(dir: &Path, database: Arc<Database>, reserve_max: u64, write_buffer_bytes: usize) -> Self {
        let guard = Self {
            dir: dir.to_owned(),
            database,
            reserve_max,
            compaction_bytes_max: (COMPACTION_BUFFERS * write_buffer_bytes) as u64,
            since: Instant::now(),
            looked_at_ms: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            free: AtomicU64::new(u64::MAX),
            needed: AtomicU64::new(0),
        };
        guard.measure();
        guard
    }

    /// Checks that there is space for more. Costs one load if there is: the committer calls
    /// [`Self::look`].
    ///
    /// # Errors
    /// [`StorageError::StorageFull`].
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        if !self.is_full.load(Ordering::Relaxed) {
            return Ok(());
        }
        // Nothing is committed while nothing is accepted, so the caller must query the file system.
        self.look();
        if !self.is_full.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (free, needed) = (self.free.load(Ordering::Relaxed), self.needed.load(Ordering::Relaxed));
        Err(StorageError::StorageFull { free, needed })
    }

    /// Checks that there is space for a change of the registry, which may use a part of the
    /// reserve.
    ///
    /// # Errors
    /// [`StorageError::StorageFull`].
    pub(crate) fn check_registry(&self) -> Result<(), StorageError> {
        self.look();
        let needed = self.needed.load(Ordering::Relaxed) / REGISTRY_RESERVE_DIVISOR;
        let free = self.free.load(Ordering::Relaxed);
        if free < needed { Err(StorageError::StorageFull { free, needed }) } else { Ok(()) }
    }

    /// The free space below which observations are rejected, as of the last query.
    pub(crate) fn needed(&self) -> u64 {
        self.needed.load(Ordering::Relaxed)
    }

    /// Queries the file system, unless that was done recently.
    pub(crate) fn look(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last = self.looked_at_ms.load(Ordering::Relaxed);
        let is_due = now >= last.saturating_add(LOOK_EVERY_MS);
        if is_due && self.looked_at_ms.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.measure();
        }
    }

    fn measure(&self) {
        let Ok(DiskSpace { free, total }) = DiskSpace::of(&self.dir) else { return };
        // A compaction cannot rewrite more data than there is, so a small store can use a small
        // disk.
        let compaction = self.database.sorted_bytes().min(self.compaction_bytes_max);
        let needed = self.reserve_max.min(total / SHARE_MIN) + self.database.unflushed_bytes() + compaction;
        self.free.store(free, Ordering::Relaxed);
        self.needed.store(needed, Ordering::Relaxed);
        let is_full = free < needed;
        if self.is_full.swap(is_full, Ordering::Relaxed) != is_full {
            if is_full {
                tracing::warn!(free, needed, "the disk is nearly full: no more observations are accepted");
            } else {
                tracing::info!(free, needed, "there is space on the disk again");
            }
        }
    }
}
