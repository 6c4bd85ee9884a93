//! The client-given ids that are in the queue but cannot be read yet.

use std::collections::HashMap;

use celeris_model::Record;
use crc32c::crc32c;
use parking_lot::{Mutex, MutexGuard};

use super::progress::Ticket;

/// Enough that two of a few dozen concurrent appends seldom meet.
const SHARDS: usize = 64;

/// By key of the id's index entry. Bounded by the queue.
pub(super) type Shard = HashMap<Vec<u8>, (Record, Ticket)>;

/// A lock per shard is held from the look-up of an id to its entry, which makes "is it new?" atomic.
pub(super) struct PendingIds {
    shards: [Mutex<Shard>; SHARDS],
}

impl Default for PendingIds {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl PendingIds {
    pub(super) fn lock(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        self.shards[crc32c(key) as usize % SHARDS].lock()
    }

    /// Forgets an id that can be read from now on.
    pub(super) fn committed(&self, key: &[u8]) {
        self.lock(key).remove(key);
    }
}
