//! The bounds of the store's queues and memory.

use std::time::Duration;

/// How much the store may hold in memory and in its queues. Every bound has a sound default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageOptions {
    /// Records that may wait for the disk; an append beyond it is [`crate::StorageError::Overloaded`].
    pub queue_records_max: usize,
    /// Bytes of records that may wait for the disk.
    pub queue_bytes_max: usize,
    /// Records that share one write and sync at most.
    pub commit_records_max: usize,
    /// Bytes of records that share one write and sync at most (one record is always taken).
    pub commit_bytes_max: usize,
    /// Records that a sync gathers where whoever appends them has more to append. Synced one by one as the disk allows, a
    /// fast stream would take some 40 at a time; a sync costs the same for 2,000, and the longer a sorted run is, the
    /// nearer each of its keys goes to the one before.
    pub gather_records: usize,
    /// How long it gathers them at most.
    pub gather_wait: Duration,
    /// Decisions that may wait for the background writer; more are dropped and counted.
    pub decision_queue_max: usize,
    /// Bytes of decisions a second, keys included, with bursts of one second's worth; more are dropped and counted.
    pub decision_bytes_per_second: u64,
    /// How long decisions are kept: what is older does not join any more, and is deleted by whoever calls
    /// [`crate::Storage::expire_decisions`].
    pub decision_retention: Duration,
    /// Memory for blocks, indexes and filters that were read.
    pub block_cache_bytes: usize,
    /// Memory for writes that are not in sorted files yet; half of it in addition for decisions.
    pub write_buffer_bytes: usize,
    /// How long the bytes of an erased user may stay on the disk before the background thread begins to remove them, so
    /// that those of several go together; those of a retracted observation may stay 60 times as long. Closing the store
    /// removes an erased user's bytes too.
    pub scrub_delay: Duration,
    /// How long after opening the verification begins, so that it does not slow the start of a node.
    pub verification_delay: Duration,
    /// From the end of one pass over the whole store to the beginning of the next.
    pub verification_interval: Duration,
    /// Bytes of keys and values that the verification reads a second.
    pub verification_bytes_per_second: u64,
    /// Space on the data directory's file system that appends leave free, beside what memory holds for it: at most an
    /// eighth of the file system, so that `queue_bytes_max` and `write_buffer_bytes` should be smaller than that on a small
    /// one. With less, an append is [`crate::StorageError::StorageFull`].
    pub disk_reserve_bytes: u64,
    /// Write-ahead log on disk after which the oldest writes are moved to sorted files. Bounds the time of recovery.
    pub wal_bytes_max: u64,
}

impl Default for StorageOptions {
    fn default() -> Self {
        Self {
            queue_records_max: 65_536,
            queue_bytes_max: 64 << 20,
            commit_records_max: 4096,
            commit_bytes_max: 1 << 20,
            gather_records: 2048,
            gather_wait: Duration::from_millis(8),
            decision_queue_max: 8192,
            decision_bytes_per_second: 16 << 20,
            decision_retention: Duration::from_secs(30 * 24 * 3600),
            block_cache_bytes: 128 << 20,
            write_buffer_bytes: 64 << 20,
            scrub_delay: Duration::from_secs(60),
            verification_delay: Duration::from_secs(60),
            verification_interval: Duration::from_secs(7 * 24 * 3600),
            verification_bytes_per_second: 16 << 20,
            disk_reserve_bytes: 256 << 20,
            wal_bytes_max: 128 << 20,
        }
    }
}
