//! Where an item's features come from, and when they are frozen.
//!
//! A trained item has its row in the version's table. Any other item has the first that exists of:
//! the features frozen for it under this version; the features supplied by a caller; the output of
//! the version's attribute map; the version's cold-item features. Computed parts are added to each
//! ([`computed`]), and what they need to know of the item is frozen with its features. Features are frozen before a
//! user's state learns from them, so that the state stays a function of the log: an observation
//! freezes its item's features under the serving versions in the same atomic write, and a state
//! that is built or catches up under any version freezes those of its history, and the reply waits
//! for that write. Until features are frozen, new features or attributes take effect at once.

mod computed;
mod resolved;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use celeris_features::ColdItem;
use celeris_model::{FeatureOrigin, ItemId, ModelId, Shard, StreamName, UserId, VersionId};
use celeris_storage::{FrozenFeatures, Storage, StorageError, Ticket};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

use crate::cache::{BoundedCache, Held};
use crate::error::PredictorError;
use crate::version::ServingVersion;

use computed::DescribedItem;
pub(crate) use computed::{InContext, MissingVariance, in_context, missing_parts, one_in_context};
pub(crate) use resolved::{LaterItem, Resolved};

/// The users for whom features of an item are resolved and frozen: those of one shard of a stream.
/// Each shard freezes features of its own, in its log, so that the states of its users depend on
/// that log alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FeatureScope<'a> {
    pub(crate) stream: &'a StreamName,
    pub(crate) shard: Shard,
}

impl<'a> FeatureScope<'a> {
    /// The features of the first shard, which stand for those of all shards where no user is
    /// concerned: in listings and in the index of the catalog.
    pub(crate) fn of_catalog(stream: &'a StreamName) -> Self {
        Self { stream, shard: Shard::default() }
    }
}

/// Locks and revision counters that items share by hash. More stripes make false sharing rarer, at
/// 8 bytes each.
const STRIPES: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FeatureKey {
    model: ModelId,
    version: VersionId,
    shard: Shard,
    item: ItemId,
    revision: u64,
}

/// When features supplied for an item take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effective {
    /// In the next answer.
    Now,
    /// With the next version, since states under the active one have learnt from other features.
    NextVersion,
}

type FreezeKey = (ModelId, VersionId, Shard, ItemId);

/// Features whose freezing is in the log's queue, and some whose freezing is durable by now.
type Freezing = HashMap<FreezeKey, Arc<LaterItem>>;

/// Resolves features, through a bounded cache for items outside the table.
pub(crate) struct FeatureStore {
    storage: Storage,
    cache: BoundedCache<FeatureKey, Arc<LaterItem>>,
    /// Incremented by every change to an item of the stripe; part of the cache key, so that a
    /// change invalidates the entry.
    revisions: Arc<[AtomicU64]>,
    /// Held while features are frozen, until the write is queued, and while the stored item
    /// changes, until that is synced, so that the two exclude each other. Taken before `freezing`.
    changing: Arc<[Mutex<()>]>,
    /// Held briefly, so that readers never wait for a sync.
    freezing: Arc<[Mutex<Freezing>]>,
}

/// Freezes the features of one item for every model that learns from one observation. While it
/// exists, no other thread freezes or changes features of the item.
pub(crate) struct Freeze<'s> {
    _changing: MutexGuard<'s, ()>,
    guard: MutexGuard<'s, Freezing>,
    items: Vec<(FreezeKey, Arc<LaterItem>)>,
}

fn record((model, version, _, item): &FreezeKey, features: &LaterItem) -> FrozenFeatures {
    FrozenFeatures {
        model: *model,
        version: *version,
        item: item.clone(),
        offset: features.offset,
        features: features.features.to_vec(),
        origin: features.origin,
        attributes: features.described.as_ref().and_then(|described| described.attributes.clone()),
    }
}

impl Freeze<'_> {
    /// The frozen features to be written with the observation.
    pub(crate) fn records(&self) -> Vec<FrozenFeatures> {
        self.items.iter().map(|(key, features)| record(key, features)).collect()
    }

    /// Call once the observation is in the queue.
    pub(crate) fn enqueued(mut self, ticket: &Ticket) {
        for (key, features) in self.items.drain(..) {
            self.guard.insert(key, Arc::new(features.frozen_with(ticket.clone())));
        }
    }
}

impl FeatureStore {
    pub(crate) fn new(storage: Storage, bytes_max: usize) -> Self {
        Self {
            storage,
            cache: BoundedCache::new("features", bytes_max),
            revisions: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(),
            changing: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            freezing: (0..STRIPES).map(|_| Mutex::new(HashMap::new())).collect(),
        }
    }

    /// The features that the states of a user learn from.
    pub(crate) fn scope_of<'a>(&self, stream: &'a StreamName, user: &UserId) -> FeatureScope<'a> {
        FeatureScope { stream, shard: self.storage.log().shard_of(user) }
    }

    /// The same source without cache statistics, for preparations; see [`BoundedCache::untracked`].
    pub(crate) fn untracked(&self) -> Self {
        Self {
            storage: self.storage.clone(),
            cache: self.cache.untracked(),
            revisions: Arc::clone(&self.revisions),
            changing: Arc::clone(&self.changing),
            freezing: Arc::clone(&self.freezing),
        }
    }

    /// The items outside `version`'s table in the cache, most recently used first, as many as may
    /// be prepared; and their total number.
    pub(crate) fn hottest(&self, version: &ServingVersion) -> (Vec<(Shard, ItemId)>, usize) {
        let of_version = |key: &FeatureKey, item: &Arc<LaterItem>| {
            let wanted = key.version == version.id && key.model == version.model_id;
            wanted.then(|| item.bytes() + size_of::<FeatureKey>())
        };
        let hottest = self.cache.hottest(of_version);
        (hottest.entries.into_iter().map(|(key, _)| (key.shard, key.item)).collect(), hottest.of)
    }

    /// The current features of an item outside `version`'s table, bypassing the cache.
    pub(crate) fn read(
        &self,
        version: &ServingVersion,
        scope: FeatureScope<'_>,
        item: &ItemId,
    ) -> Result<Arc<LaterItem>, PredictorError> {
        let freezing = self.freezing[stripe(item)].lock();
        self.look_up(&freezing, version, scope, item)
    }

    /// Counts the changes of an item, and of the others in its stripe.
    pub(crate) fn revision(&self, item: &ItemId) -> u64 {
        self.revisions[stripe(item)].load(Ordering::Acquire)
    }

    pub(crate) fn resolve<'v>(
        &self,
        version: &'v ServingVersion,
        scope: FeatureScope<'_>,
        item: &ItemId,
    ) -> Result<Resolved<'v>, PredictorError> {
        if let Some(slot) = version.theta.slot(item) {
            return Ok(Resolved::trained(version, slot));
        }
        let key = self.key(version, scope.shard, item);
        if let Some(found) = self.cache.get(&key) {
            return Ok(Resolved::Later(found));
        }
        let started = Instant::now();
        let freezing = self.freezing[stripe(item)].lock();
        let found = self.look_up(&freezing, version, scope, item)?;
        drop(freezing);
        self.cache.record_load(started.elapsed());
        self.cache.insert(key, found.clone());
        Ok(Resolved::Later(found))
    }

    fn key(&self, version: &ServingVersion, shard: Shard, item: &ItemId) -> FeatureKey {
        let revision = self.revision(item);
        FeatureKey { model: version.model_id, version: version.id, shard, item: item.clone(), revision }
    }

    /// The features of `item` for a user's state that is about to learn from them under `version`;
    /// freezes them, if this node owns the user's shard. An answer from the state must wait until
    /// [`Resolved::frozen`] is durable; if there is no such ticket, the state must not be kept.
    ///
    /// The caller guarantees that it holds no [`Freeze`].
    pub(crate) fn resolve_frozen<'v>(
        &self,
        version: &'v ServingVersion,
        scope: FeatureScope<'_>,
        item: &ItemId,
    ) -> Result<Resolved<'v>, PredictorError> {
        let found = self.resolve(version, scope, item)?;
        if found.frozen().is_some() {
            return Ok(found);
        }
        let _changing = self.changing[stripe(item)].lock();
        let mut freezing = self.freezing(item);
        let mut found = self.look_up(&freezing, version, scope, item)?;
        if found.frozen.is_none() {
            let key = (version.model_id, version.id, scope.shard, item.clone());
            let ticket = match self.storage.items().freeze(scope.shard, &record(&key, &found)) {
                // Another node owns the shard, and freezes them.
                Err(StorageError::NotOwner | StorageError::Fenced) => return Ok(Resolved::Later(found)),
                frozen => frozen?,
            };
            found = Arc::new(found.frozen_with(ticket));
            freezing.insert(key, Arc::clone(&found));
        }
        self.cache.insert(self.key(version, scope.shard, item), Arc::clone(&found));
        Ok(Resolved::Later(found))
    }

    /// The queued freezes of the item's stripe; those that are durable by now are removed.
    fn freezing(&self, item: &ItemId) -> MutexGuard<'_, Freezing> {
        let mut freezing = self.freezing[stripe(item)].lock();
        freezing.retain(|_, features| features.frozen.as_ref().is_some_and(|ticket| !ticket.is_durable()));
        freezing
    }

    fn look_up(
        &self,
        freezing: &Freezing,
        version: &ServingVersion,
        FeatureScope { stream, shard }: FeatureScope<'_>,
        item: &ItemId,
    ) -> Result<Arc<LaterItem>, PredictorError> {
        let revision = self.revision(item);
        let given = self.storage.items().given_features(version.model_id, item)?;
        let described = self.storage.items().get(stream, item)?;
        let known = given.is_some() || described.is_some();
        let described_by = |attributes: Option<&Map<String, Value>>| {
            version.parts.as_ref().map(|parts| Arc::new(DescribedItem::new(parts, attributes.cloned())))
        };
        let later = |offset, features, origin, described| LaterItem {
            offset,
            features,
            known,
            origin,
            described,
            revision,
            frozen: None,
        };
        if let Some(queued) = freezing.get(&(version.model_id, version.id, shard, item.clone())) {
            // Frozen features never change, but whether the item is known may have changed since.
            return Ok(Arc::new(LaterItem { known, revision, ..LaterItem::clone(queued) }));
        }
        if let Some(frozen) = self.storage.items().frozen((version.model_id, version.id), shard, item)? {
            let described = described_by(frozen.attributes.as_ref());
            let found = later(frozen.offset, frozen.features.into(), frozen.origin, described);
            return Ok(Arc::new(found.frozen_with(Ticket::DURABLE)));
        }
        let stand_in = version.theta.cold_item();
        let attributes = described.map(|item| item.attributes).filter(|attributes| !attributes.is_empty());
        let attributes = attributes.as_ref();
        let described = described_by(attributes);
        // What factors say of an item that they were fitted to.
        let effect = version.parts.as_ref().zip(described.as_ref());
        let effect = effect.map_or(0.0, |(parts, described)| parts.item_effect(&described.parts));
        if let Some(given) = given.filter(|given| given.features.len() == version.table_dim) {
            let features = version.widened(&given.features, attributes);
            return Ok(Arc::new(later(stand_in.offset + effect, features, FeatureOrigin::Given, described)));
        }
        let (offset, mut features, origin) = match (&version.cold_map, attributes) {
            (Some(map), Some(attributes)) => {
                let ColdItem { offset, features } = map.map(attributes);
                (offset, features.into_boxed_slice(), FeatureOrigin::Attributes)
            }
            _ => (stand_in.offset, stand_in.features.into(), FeatureOrigin::StandIn),
        };
        if let Some(parts) = &version.parts {
            parts.materialise(attributes, &mut features);
        }
        Ok(Arc::new(later(offset + effect, features, origin, described)))
    }

    /// The features of `item`, which has the rows `slots`, for an observation that all of
    /// `versions` are about to learn from. Features that are not frozen yet are returned as a
    /// [`Freeze`], to be written with the observation.
    pub(crate) fn freeze<'s, 'v>(
        &'s self,
        versions: &'v [Arc<ServingVersion>],
        slots: &[Option<u32>],
        scope: FeatureScope<'_>,
        item: &ItemId,
    ) -> Result<(Vec<Resolved<'v>>, Option<Freeze<'s>>), PredictorError> {
        let row = |(version, slot): (&'v Arc<ServingVersion>, &Option<u32>)| {
            slot.map(|slot| Resolved::trained(version, slot))
        };
        if let Some(rows) = versions.iter().zip(slots).map(row).collect() {
            return Ok((rows, None));
        }
        let changing = self.changing[stripe(item)].lock();
        let guard = self.freezing(item);
        let mut resolved = Vec::with_capacity(versions.len());
        let mut items = Vec::new();
        for (version, slot) in versions.iter().zip(slots) {
            if let Some(trained) = row((version, slot)) {
                resolved.push(trained);
                continue;
            }
            let key = (version.model_id, version.id, scope.shard, item.clone());
            let found = self.look_up(&guard, version, scope, item)?;
            if found.frozen.is_none() {
                items.push((key, Arc::clone(&found)));
            }
            resolved.push(Resolved::Later(found));
        }
        let freeze = if items.is_empty() { None } else { Some(Freeze { _changing: changing, guard, items }) };
        Ok((resolved, freeze))
    }

    /// Notes that the stored data of items was changed by another node.
    pub(crate) fn note_changes<'i>(&self, items: impl IntoIterator<Item = &'i ItemId>) {
        for item in items {
            self.revisions[stripe(item)].fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Forgets what is queued to be frozen for the users of a shard: another node owns it.
    pub(crate) fn forget_shard(&self, shard: Shard) {
        for (freezing, revision) in self.freezing.iter().zip(&*self.revisions) {
            freezing.lock().retain(|(_, _, of, _), _| *of != shard);
            revision.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Changes the stored data of `items`. No other thread freezes or changes features of these
    /// items until `write` has returned.
    pub(crate) fn change<'i, T, E>(
        &self,
        items: impl IntoIterator<Item = &'i ItemId>,
        write: impl FnOnce(&Changing<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut stripes: Vec<usize> = items.into_iter().map(stripe).collect();
        // In ascending order, so that two changes cannot deadlock.
        stripes.sort_unstable();
        stripes.dedup();
        let _held: Vec<MutexGuard<'_, ()>> = stripes.iter().map(|stripe| self.changing[*stripe].lock()).collect();
        let outcome = write(&Changing { source: self });
        for stripe in stripes {
            self.revisions[stripe].fetch_add(1, Ordering::AcqRel);
        }
        outcome
    }
}

/// Items whose stripes are locked for a change.
pub(crate) struct Changing<'s> {
    source: &'s FeatureStore,
}

impl Changing<'_> {
    /// When features supplied for one of the items now take effect under `version`, for the users of all
    /// shards.
    pub(crate) fn effective(&self, version: &ServingVersion, item: &ItemId) -> Result<Effective, PredictorError> {
        let of = (version.model_id, version.id);
        let is_frozen = |shard: Shard| {
            let key = (of.0, of.1, shard, item.clone());
            let queued = self.source.freezing[stripe(item)].lock().contains_key(&key);
            Ok::<_, PredictorError>(queued || self.source.storage.items().frozen(of, shard, item)?.is_some())
        };
        if version.theta.get(item).is_some() {
            return Ok(Effective::NextVersion);
        }
        for shard in self.source.storage.log().shards().all() {
            if is_frozen(shard)? {
                return Ok(Effective::NextVersion);
            }
        }
        Ok(Effective::Now)
    }
}

fn stripe(item: &ItemId) -> usize {
    xxh3_64(item.as_str().as_bytes()) as usize % STRIPES
}
