//! A least-recently-used cache with a budget in bytes, in shards so that its locks are rarely
//! waited for.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use hashlink::LinkedHashMap;
use hashlink::linked_hash_map::RawEntryMut;
use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::Mutex;

/// Enough that 64 clients rarely contend for a shard; a power of two.
const SHARDS: usize = 64;

/// Maximum number of non-evictable entries skipped before an eviction gives up.
const PASSES_MAX: usize = 32;

/// A cached value.
pub(crate) trait Held: Clone {
    /// Its size in bytes, including itself.
    fn bytes(&self) -> usize;

    /// Whether it may be dropped now. Called under the shard's lock, so no other thread can obtain
    /// the value meanwhile.
    fn evictable(&self) -> bool {
        true
    }
}

/// Estimated overhead of an entry: links, hash table slot and allocator.
const ENTRY_OVERHEAD_BYTES: usize = 96;

struct Entry<V> {
    value: V,
    bytes: usize,
}

struct Shard<K, V> {
    entries: LinkedHashMap<K, Entry<V>, RandomState>,
    bytes: usize,
}

impl<K: Hash + Eq, V: Clone> Shard<K, V> {
    /// The value under `key` with this hash; marks it as most recently used.
    fn find(&mut self, hash: u64, key: &K) -> Option<V> {
        match self.entries.raw_entry_mut().from_key_hashed_nocheck(hash, key) {
            RawEntryMut::Occupied(mut entry) => {
                entry.to_back();
                Some(entry.get().value.clone())
            }
            RawEntryMut::Vacant(_) => None,
        }
    }
}

/// A sharded LRU cache. Values must be cheap to clone (`Arc`s or small values).
pub(crate) struct BoundedCache<K, V> {
    shards: Arc<[Mutex<Shard<K, V>>]>,
    shard_bytes_max: usize,
    hasher: RandomState,
    hits: Counter,
    misses: Counter,
    evictions: Counter,
    bytes: Gauge,
    saved: Counter,
    /// Running mean of the nanoseconds that a miss took to load: the estimate of what a hit saves;
    /// 0 if unknown.
    mean_saved_ns: AtomicU64,
}

/// Divisor of the budget of a full cache: the part that a preparation may displace.
const SPARE_SHARE: usize = 4;

/// The most recently used entries of a cache.
pub(crate) struct Hottest<K, V> {
    /// Those that fit, most recently used first, by rank within their shard.
    pub(crate) entries: Vec<(K, V)>,
    /// Total number of matching entries.
    pub(crate) of: usize,
}

/// Divisor of a new measurement in the running mean.
const MEAN_OVER: u64 = 16;

impl<K: Hash + Eq + Clone, V: Held> BoundedCache<K, V> {
    /// Creates a cache that holds at most `bytes_max` bytes and reports its metrics under `name`.
    pub(crate) fn new(name: &'static str, bytes_max: usize) -> Self {
        gauge!("celeris_cache_budget_bytes", "cache" => name).set(bytes_max as f64);
        Self {
            hits: counter!("celeris_cache_hits_total", "cache" => name),
            misses: counter!("celeris_cache_misses_total", "cache" => name),
            evictions: counter!("celeris_cache_evictions_total", "cache" => name),
            bytes: gauge!("celeris_cache_bytes", "cache" => name),
            saved: counter!("celeris_cache_saved_nanoseconds_total", "cache" => name),
            ..Self::unreported(bytes_max)
        }
    }

    /// Creates a cache without metrics.
    pub(crate) fn unreported(bytes_max: usize) -> Self {
        let hasher = RandomState::default();
        let shard = || Mutex::new(Shard { entries: LinkedHashMap::with_hasher(hasher.clone()), bytes: 0 });
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            shard_bytes_max: bytes_max / SHARDS,
            hits: Counter::noop(),
            misses: Counter::noop(),
            evictions: Counter::noop(),
            bytes: Gauge::noop(),
            saved: Counter::noop(),
            mean_saved_ns: AtomicU64::new(0),
            hasher,
        }
    }

    /// Records the time that a miss took, as a running mean of what a hit saves.
    pub(crate) fn record_load(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let mean = self.mean_saved_ns.load(Ordering::Relaxed);
        let mean = if mean == 0 { took } else { mean - mean / MEAN_OVER + took / MEAN_OVER };
        self.mean_saved_ns.store(mean, Ordering::Relaxed);
    }

    fn hit(&self, count: u64) {
        self.hits.increment(count);
        self.saved.increment(count * self.mean_saved_ns.load(Ordering::Relaxed));
    }

    /// The same cache for preparations: look-ups are not counted as hits or misses.
    pub(crate) fn untracked(&self) -> Self {
        Self {
            shards: Arc::clone(&self.shards),
            shard_bytes_max: self.shard_bytes_max,
            hasher: self.hasher.clone(),
            hits: Counter::noop(),
            misses: Counter::noop(),
            evictions: self.evictions.clone(),
            bytes: self.bytes.clone(),
            saved: Counter::noop(),
            mean_saved_ns: AtomicU64::new(0),
        }
    }

    /// The matching entries, most recently used first, until in each shard the sizes returned by
    /// `wanted` exceed [`BoundedCache::spare`]. Locks each shard while it is read.
    pub(crate) fn hottest(&self, wanted: impl Fn(&K, &V) -> Option<usize>) -> Hottest<K, V> {
        let mut ranked = Vec::new();
        let mut of = 0;
        for shard in &*self.shards {
            let shard = shard.lock();
            let mut room = self.spare(shard.bytes);
            for (rank, (key, entry)) in shard.entries.iter().rev().enumerate() {
                let Some(bytes) = wanted(key, &entry.value) else { continue };
                of += 1;
                if bytes <= room {
                    room -= bytes;
                    ranked.push((rank, key.clone(), entry.value.clone()));
                } else {
                    room = 0;
                }
            }
        }
        ranked.sort_by_key(|(rank, ..)| *rank);
        Hottest { entries: ranked.into_iter().map(|(_, key, value)| (key, value)).collect(), of }
    }

    /// Bytes that may be prepared in a shard that holds `held` bytes: its free bytes, or a quarter
    /// of its budget if that is more, for which the least recently used entries are evicted.
    fn spare(&self, held: usize) -> usize {
        self.shard_bytes_max.saturating_sub(held).max(self.shard_bytes_max / SPARE_SHARE)
    }

    /// Passes the entries that are `wanted` to `visit`, outside the shard's lock.
    pub(crate) fn visit(&self, wanted: impl Fn(&K) -> bool, mut visit: impl FnMut(&K, &V)) {
        for shard in &*self.shards {
            let entries: Vec<(K, V)> = {
                let shard = shard.lock();
                let wanted = shard.entries.iter().filter(|(key, _)| wanted(key));
                wanted.map(|(key, entry)| (key.clone(), entry.value.clone())).collect()
            };
            for (key, value) in entries {
                visit(&key, &value);
            }
        }
    }

    fn shard(&self, key: &K) -> &Mutex<Shard<K, V>> {
        self.shard_of(self.hasher.hash_one(key))
    }

    fn shard_of(&self, hash: u64) -> &Mutex<Shard<K, V>> {
        // The upper bits, since the hash map inside uses the lower ones.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// The value under `key`; neither marked as used nor counted.
    pub(crate) fn peek(&self, key: &K) -> Option<V> {
        self.shard(key).lock().entries.get(key).map(|entry| entry.value.clone())
    }

    /// The value under `key`; marks it as most recently used.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let hash = self.hasher.hash_one(key);
        let found = self.shard_of(hash).lock().find(hash, key);
        if found.is_some() {
            self.hit(1);
        } else {
            self.misses.increment(1);
        }
        found
    }

    /// The values under all keys, in their order; `None` if one is missing. Misses are not counted,
    /// since the caller then calls `get` for each key.
    pub(crate) fn get_all(&self, keys: impl ExactSizeIterator<Item = K>) -> Option<Vec<V>> {
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let hash = self.hasher.hash_one(&key);
            found.push(self.shard_of(hash).lock().find(hash, &key)?);
        }
        self.hit(found.len() as u64);
        Some(found)
    }

    /// The value under `key`, or the one made by `make`, which is inserted.
    pub(crate) fn get_or_insert_with(&self, key: &K, make: impl FnOnce() -> V) -> V {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard_of(hash).lock();
        if let Some(found) = shard.find(hash, key) {
            self.hit(1);
            return found;
        }
        self.misses.increment(1);
        let value = make();
        self.put(&mut shard, key.clone(), value.clone());
        value
    }

    pub(crate) fn insert(&self, key: K, value: V) {
        let mut shard = self.shard(&key).lock();
        self.put(&mut shard, key, value);
    }

    fn put(&self, shard: &mut Shard<K, V>, key: K, value: V) {
        let bytes = value.bytes() + size_of::<K>() + ENTRY_OVERHEAD_BYTES;
        if let Some(old) = shard.entries.insert(key, Entry { value, bytes }) {
            self.forget(shard, &old);
        }
        shard.bytes += bytes;
        self.bytes.increment(bytes as f64);
        self.evict(shard);
    }

    /// Updates the accounted size of the value under `key`, after it has grown or shrunk.
    pub(crate) fn update_weight(&self, key: &K) {
        let mut shard = self.shard(key).lock();
        let shard = &mut *shard;
        if let Some(entry) = shard.entries.get_mut(key) {
            let bytes = entry.value.bytes() + size_of::<K>() + ENTRY_OVERHEAD_BYTES;
            let before = std::mem::replace(&mut entry.bytes, bytes);
            shard.bytes = shard.bytes + bytes - before;
            self.bytes.increment(bytes as f64 - before as f64);
            self.evict(shard);
        }
    }

    /// Drops every evictable entry whose key is `unwanted`. Scans the whole cache.
    pub(crate) fn purge(&self, unwanted: impl Fn(&K) -> bool) {
        for shard in &*self.shards {
            let mut shard = shard.lock();
            let keys: Vec<K> = shard.entries.keys().filter(|key| unwanted(key)).cloned().collect();
            for key in keys {
                if let Some(entry) = shard.entries.get(&key)
                    && entry.value.evictable()
                    && let Some(entry) = shard.entries.remove(&key)
                {
                    self.forget(&mut shard, &entry);
                }
            }
        }
    }

    fn forget(&self, shard: &mut Shard<K, V>, entry: &Entry<V>) {
        shard.bytes -= entry.bytes;
        self.bytes.decrement(entry.bytes as f64);
    }

    fn evict(&self, shard: &mut Shard<K, V>) {
        let mut passes = 0;
        while shard.bytes > self.shard_bytes_max && passes < PASSES_MAX {
            let Some((key, entry)) = shard.entries.pop_front() else { return };
            if entry.value.evictable() {
                self.forget(shard, &entry);
                self.evictions.increment(1);
            } else {
                shard.entries.insert(key, entry);
                passes += 1;
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::*;

    impl Held for Arc<Vec<u8>> {
        fn bytes(&self) -> usize {
            self.len()
        }
        fn evictable(&self) -> bool {
            Arc::strong_count(self) == 1
        }
    }

    const BUDGET: usize = SHARDS * 2_000;

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(7),
            ..ProptestConfig::default()
        })]

        /// The cache returns only the value inserted last, and stays within its budget.
        #[test]
        fn values_are_never_stale_and_the_budget_holds(
            steps in prop::collection::vec((0_u16..400, 0_usize..900, any::<bool>()), 1..2_000)
        ) {
            let cache: BoundedCache<u16, Arc<Vec<u8>>> = BoundedCache::new("test", BUDGET);
            let mut oracle: HashMap<u16, usize> = HashMap::new();
            for (key, length, write) in steps {
                if write {
                    cache.insert(key, Arc::new(vec![0; length]));
                    oracle.insert(key, length);
                } else if let Some(found) = cache.get(&key) {
                    prop_assert_eq!(Some(&found.len()), oracle.get(&key));
                }
                prop_assert!(cache.bytes() <= BUDGET);
            }
        }
    }

    #[test]
    fn entries_in_use_are_not_evicted() {
        let cache: BoundedCache<u32, Arc<Vec<u8>>> = BoundedCache::new("test", BUDGET);
        let in_use = Arc::new(vec![0; 100]);
        cache.insert(0, in_use.clone());
        for key in 1..10_000 {
            cache.insert(key, Arc::new(vec![0; 100]));
        }
        assert!(Arc::ptr_eq(&cache.get(&0).unwrap(), &in_use));
    }

    #[test]
    fn all_keys_are_found_or_none() {
        let cache: BoundedCache<u32, Arc<Vec<u8>>> = BoundedCache::new("test", BUDGET);
        for key in 0..10 {
            cache.insert(key, Arc::new(vec![key as u8]));
        }
        let found = cache.get_all([7, 3, 7].into_iter()).unwrap();
        assert_eq!(found.iter().map(|value| value[0]).collect::<Vec<_>>(), [7, 3, 7]);
        assert_eq!(cache.get_all([7, 10, 3].into_iter()), None);
    }

    #[derive(Clone)]
    struct Growing(Arc<AtomicUsize>);

    impl Held for Growing {
        fn bytes(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn growth_is_accounted_for_when_it_is_reported() {
        let cache: BoundedCache<u32, Growing> = BoundedCache::new("test", BUDGET);
        let value = Growing(Arc::new(AtomicUsize::new(10)));
        cache.insert(1, value.clone());
        let before = cache.bytes();
        value.0.store(500, Ordering::Relaxed);
        cache.update_weight(&1);
        assert_eq!(cache.bytes(), before + 490);
    }
}
