//! Refuses new observations while there is still room for those that were accepted.
//!
//! A write that fails for want of space leaves RocksDB in a state that only a restart resolves. So appends end earlier,
//! while what is free still holds what is in memory and must be flushed, what a compaction writes before it frees what it
//! has read, and a reserve: for what waits in the queue, and for what arrives until the next look at the disk. Reads go on, and so do appends once there is space
//! again, without a restart. Should others eat up the reserve too, the log is poisoned as by any failed write.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::database::Database;
use crate::error::StorageError;

/// How often the file system is asked at most.
const LOOK_EVERY_MS: u64 = 100;

/// The largest part of the file system that the reserve may claim: one in so many.
const SHARE_MIN: u64 = 8;

/// Changes of the registry may use the reserve of observations down to one part in so many: they are small and few, and a
/// rollback and the end of a job are among them.
const REGISTRY_RESERVE_DIVISOR: u64 = 2;

/// Write buffers that one compaction rewrites: the four that start it, and what arrives meanwhile.
const COMPACTION_BUFFERS: usize = 6;

/// Watches the space on the file system of the data directory.
pub(crate) struct SpaceGuard {
    dir: PathBuf,
    database: Arc<Database>,
    reserve_max: u64,
    /// The most that a compaction is expected to write before it frees what it has read.
    compaction_bytes_max: u64,
    since: Instant,
    looked_at_ms: AtomicU64,
    is_full: AtomicBool,
    /// As of the last look.
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

    /// Whether there is room for more. Costs one load while there is: [`Self::look`] is the committer's to call.
    ///
    /// # Errors
    /// [`StorageError::StorageFull`].
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        if !self.is_full.load(Ordering::Relaxed) {
            return Ok(());
        }
        // Nobody commits while nothing is accepted, so whoever asks must look.
        self.look();
        if !self.is_full.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (free, needed) = (self.free.load(Ordering::Relaxed), self.needed.load(Ordering::Relaxed));
        Err(StorageError::StorageFull { free, needed })
    }

    /// Whether there is room for a change of the registry, which may use a part of the reserve.
    ///
    /// # Errors
    /// [`StorageError::StorageFull`].
    pub(crate) fn check_registry(&self) -> Result<(), StorageError> {
        self.look();
        let needed = self.needed.load(Ordering::Relaxed) / REGISTRY_RESERVE_DIVISOR;
        let free = self.free.load(Ordering::Relaxed);
        if free < needed { Err(StorageError::StorageFull { free, needed }) } else { Ok(()) }
    }

    /// Asks the file system, if that was not done just now.
    pub(crate) fn look(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last = self.looked_at_ms.load(Ordering::Relaxed);
        let is_due = now >= last.saturating_add(LOOK_EVERY_MS);
        if is_due && self.looked_at_ms.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.measure();
        }
    }

    fn measure(&self) {
        let Ok(disk) = rustix::fs::statvfs(&self.dir) else { return };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let total = disk.f_blocks.saturating_mul(disk.f_frsize);
        // A compaction cannot rewrite more than there is, so that a small store leaves a small disk usable.
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
