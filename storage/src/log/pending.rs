//! The client-given ids that are in the queue but cannot be read yet.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use parking_lot::{Mutex, MutexGuard};

use super::progress::Placed;
use super::queue::Encoded;
use crate::hashing::IdHash;

/// Enough that two of a few dozen concurrent appends seldom meet.
const SHARDS: usize = 64;

/// By id: the record, and where it will be. Bounded by the queue.
pub(super) type Shard = HashMap<IdHash, (Encoded, Placed), BuildHasherDefault<Hashed>>;

/// Takes a hash for what it is: spread already, by a key that no client knows.
#[derive(Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, hash: u128) {
        self.0 = (hash >> u64::BITS) as u64 ^ hash as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

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
    pub(super) fn lock(&self, id: IdHash) -> MutexGuard<'_, Shard> {
        self.shards[usize::from(id.bytes()[0]) % SHARDS].lock()
    }

    /// Forgets an id that can be read from now on.
    pub(super) fn committed(&self, id: IdHash) {
        self.lock(id).remove(&id);
    }
}
