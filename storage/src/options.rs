//! Options of the store.

use std::time::Duration;

/// Limits of the store's queues and memory, and its schedules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageOptions {
    /// Maximum number of queued records; further appends fail with
    /// [`crate::StorageError::Overloaded`].
    pub queue_records_max: usize,
    /// Maximum size of queued records, in bytes.
    pub queue_bytes_max: usize,
    /// Maximum number of records per write and sync.
    pub commit_records_max: usize,
    /// Maximum size of the records per write and sync, in bytes (one record is always taken).
    pub commit_bytes_max: usize,
    /// Number of records that a sync gathers if their callers have more to append
    /// ([`crate::AckMode::Gather`]). With a sync as soon as the disk allows, a fast stream would
    /// have about 40 records per sync; a sync costs the same for 2,000, and inserts are faster the
    /// longer a sorted run is.
    pub gather_records: usize,
    /// Maximum time to gather.
    pub gather_wait: Duration,
    /// Maximum number of decisions queued for the background writer; further ones are dropped and
    /// counted.
    pub decision_queue_max: usize,
    /// Rate limit of decisions in bytes per second, keys included, with bursts of one second's
    /// worth; the excess is dropped and counted.
    pub decision_bytes_per_second: u64,
    /// Retention time of decisions: older ones accept no rewards, and are deleted by
    /// [`crate::Decisions::expire`].
    pub decision_retention: Duration,
    /// Size of the cache of blocks, indexes and filters.
    pub block_cache_bytes: usize,
    /// Size of the memtables; decisions use half of it in addition.
    pub write_buffer_bytes: usize,
    /// How long the bytes of an erased user may stay on disk before the background thread removes
    /// them, so that several erasures share the work; 60 times as long for retracted observations.
    /// Closing the store also removes an erased user's bytes.
    pub scrub_delay: Duration,
    /// Delay of the verification after opening, so that it does not slow the start of a node.
    pub verification_delay: Duration,
    /// Time between the end of a verification pass over the whole store and the start of the next.
    pub verification_interval: Duration,
    /// Rate limit of the verification, in bytes of keys and values per second.
    pub verification_bytes_per_second: u64,
    /// Space on the data directory's file system that appends leave free, in addition to the space
    /// needed for data in memory: at most an eighth of the file system, so `queue_bytes_max` and
    /// `write_buffer_bytes` should be smaller than that on a small one. With less, appends fail
    /// with [`crate::StorageError::StorageFull`].
    pub disk_reserve_bytes: u64,
    /// Size of the write-ahead log from which the oldest writes are flushed. Bounds the recovery
    /// time.
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
