//! Client-given ids that are in the queue and cannot be read yet.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use parking_lot::{Mutex, MutexGuard};

use super::progress::Placed;
use super::queue::Encoded;
use crate::layout::hashing::IdHash;

/// Enough that a few dozen concurrent appends rarely contend.
const SHARDS: usize = 64;

/// By id: the record, and its position. Bounded by the queue.
pub(super) type Shard = HashMap<IdHash, (Encoded, Placed), BuildHasherDefault<IdentityHasher>>;

/// An identity hasher: ids are hashed already, with a key unknown to clients.
#[derive(Default)]
pub(super) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
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

/// A shard's lock is held from the look-up of an id to its insertion, which makes the check for
/// duplicates atomic.
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
        self.shards[usize::from(id.observation_bytes()[0]) % SHARDS].lock()
    }

    /// Removes an id that can be read from now on.
    pub(super) fn committed(&self, id: IdHash) {
        self.lock(id).remove(&id);
    }
}
