//! Counters of decisions.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of decisions since the store was opened. `accepted`, `queue_full` and `over_rate` add
/// up to the decisions offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecisionCounters {
    /// Enqueued.
    pub accepted: u64,
    /// Rejected because the queue was full or closed.
    pub queue_full: u64,
    /// Rejected because the byte rate was exceeded.
    pub over_rate: u64,
    /// Accepted but lost by a failed write.
    pub failed: u64,
    /// Bytes of keys and values written.
    pub bytes: u64,
    /// Deleted because they were older than the retention time.
    pub expired: u64,
}

impl DecisionCounters {
    /// Number of lost decisions, for any reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.queue_full + self.over_rate + self.failed
    }
}

#[derive(Default)]
pub(super) struct Counters {
    accepted: AtomicU64,
    queue_full: AtomicU64,
    over_rate: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    expired: AtomicU64,
}

impl Counters {
    pub(super) fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refuse_full(&self) {
        self.queue_full.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refuse_over_rate(&self) {
        self.over_rate.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn fail(&self, decisions: u64) {
        self.failed.fetch_add(decisions, Ordering::Relaxed);
    }

    pub(super) fn write(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn expire(&self, decisions: u64) {
        self.expired.fetch_add(decisions, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> DecisionCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DecisionCounters {
            accepted: read(&self.accepted),
            queue_full: read(&self.queue_full),
            over_rate: read(&self.over_rate),
            failed: read(&self.failed),
            bytes: read(&self.bytes),
            expired: read(&self.expired),
        }
    }
}
