//! Materialisation of sub-plans: results of stages that several plans share are kept (PRETZEL, section 4.3).

use std::sync::Arc;

use hashlink::LruCache;
use parking_lot::Mutex;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

use crate::graph::Fingerprint;
use crate::values::Slot;

/// Memory of an entry besides its input and its value, in bytes: key, handles, counts and links.
const ENTRY_BYTES: usize = 160;

/// Results by what computes them and by their input, within a budget; least recently used ones go first. Entries hold
/// their inputs, so that no result is ever taken for that of another input with the same hash.
#[derive(Debug)]
pub struct SubPlans {
    bytes_max: usize,
    kept: Mutex<Kept>,
}

/// A kept result.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// Columns of n-grams, in the order of the text.
    Hits(Arc<[u32]>),
    /// The value of a stage.
    Value(Arc<Slot>),
}

#[derive(Debug)]
struct Entry {
    input: Box<[u8]>,
    result: Outcome,
}

#[derive(Debug)]
struct Kept {
    by_key: LruCache<(Fingerprint, u128), Entry>,
    bytes: usize,
    found: u64,
    computed: u64,
}

/// What was kept so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SubPlanFacts {
    pub entries: usize,
    pub bytes: usize,
    pub found: u64,
    pub computed: u64,
}

impl SubPlans {
    /// Keeps results of at most this many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let kept = Kept { by_key: LruCache::new_unbounded(), bytes: 0, found: 0, computed: 0 };
        Self { bytes_max, kept: Mutex::new(kept) }
    }

    #[must_use]
    pub fn facts(&self) -> SubPlanFacts {
        let kept = self.kept.lock();
        SubPlanFacts { entries: kept.by_key.len(), bytes: kept.bytes, found: kept.found, computed: kept.computed }
    }

    /// The result for an input, if it is kept.
    pub(crate) fn get(&self, of: Fingerprint, input: &[u8]) -> Option<Outcome> {
        let key = (of, xxh3_128(input));
        let mut kept = self.kept.lock();
        let found = kept.by_key.get(&key).filter(|entry| *entry.input == *input).map(|entry| entry.result.clone());
        match found {
            Some(_) => kept.found += 1,
            None => kept.computed += 1,
        }
        found
    }

    /// Keeps a result. Two threads may have computed the same one at the same time: no lock is held meanwhile.
    pub(crate) fn insert(&self, of: Fingerprint, input: &[u8], result: Outcome) {
        let entry = Entry { input: input.into(), result };
        let key = (of, xxh3_128(input));
        let mut kept = self.kept.lock();
        kept.bytes += entry.bytes();
        if let Some(before) = kept.by_key.insert(key, entry) {
            kept.bytes -= before.bytes();
        }
        while kept.bytes > self.bytes_max {
            let Some((_, gone)) = kept.by_key.remove_lru() else { break };
            kept.bytes -= gone.bytes();
        }
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        let result = match &self.result {
            Outcome::Hits(hits) => size_of_val(&**hits),
            Outcome::Value(value) => value.bytes(),
        };
        ENTRY_BYTES + self.input.len() + result
    }
}
