//! Where an item's features come from, and when they freeze.
//!
//! A trained item has its row in the version's table. Any other item has, in this order: the features frozen for it
//! under this version, the features that a caller gave it, those that the version's map makes of its attributes, the
//! version's stand-in for the unknown. They freeze before a user's state learns from them, so that the state stays a
//! function of the log: an observation freezes those of its item under the versions that serve, in the same atomic write,
//! and a state that is built or catches up under any version freezes those of its history, whose write the reply waits for.
//! Until then a new vector, or other attributes, take effect at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use celeris_features::{ColdItem, ItemFeatures};
use celeris_model::{FeatureOrigin, ItemId, ModelId, StreamName, VersionId};
use celeris_storage::{CommitPosition, FrozenFeatures, Storage};
use parking_lot::{Mutex, MutexGuard};
use xxhash_rust::xxh3::xxh3_64;

use crate::cache::{BoundedCache, Held};
use crate::error::PredictorError;
use crate::version::ServingVersion;

/// Locks and revision counters that items share by hash. More of them make false sharing rarer, and cost 8 bytes each.
const STRIPES: usize = 1024;

/// The features of one item under one version.
pub(crate) enum Resolved<'v> {
    /// A row of the version's table.
    Trained(ItemFeatures<'v>),
    /// An item that came after training, or that nobody has told us of.
    Later(Arc<LaterItem>),
}

/// What a version knows of an item outside its table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LaterItem {
    pub(crate) offset: f32,
    pub(crate) features: Box<[f32]>,
    /// Whether anybody has told us of the item, by features or attributes.
    pub(crate) known: bool,
    /// Where its features come from, also once they are frozen.
    pub(crate) origin: FeatureOrigin,
    /// The item's revision, read before the features were.
    revision: u64,
    /// Where the write is that froze them, which is durable at that position; `None` where no user's state has learnt
    /// from these features.
    frozen: Option<CommitPosition>,
}

impl Resolved<'_> {
    pub(crate) fn offset(&self) -> f32 {
        match self {
            Self::Trained(row) => row.offset,
            Self::Later(item) => item.offset,
        }
    }

    pub(crate) fn features(&self) -> &[f32] {
        match self {
            Self::Trained(row) => row.features,
            Self::Later(item) => &item.features,
        }
    }

    pub(crate) fn known(&self) -> bool {
        match self {
            Self::Trained(_) => true,
            Self::Later(item) => item.known,
        }
    }

    /// Where the write is that froze these features: the table's own are durable from the start.
    pub(crate) fn frozen(&self) -> Option<CommitPosition> {
        match self {
            Self::Trained(_) => Some(CommitPosition::START),
            Self::Later(item) => item.frozen,
        }
    }

    /// The item's revision as of which the features were read; `None` of a row of the table, which never changes.
    pub(crate) fn revision(&self) -> Option<u64> {
        match self {
            Self::Trained(_) => None,
            Self::Later(item) => Some(item.revision),
        }
    }

    pub(crate) fn origin(&self) -> FeatureOrigin {
        match self {
            Self::Trained(_) => FeatureOrigin::Trained,
            Self::Later(item) => item.origin,
        }
    }
}

impl LaterItem {
    fn frozen_at(&self, position: CommitPosition) -> Self {
        Self { frozen: Some(position), ..self.clone() }
    }
}

impl Held for Arc<LaterItem> {
    fn bytes(&self) -> usize {
        size_of::<LaterItem>() + size_of_val(&*self.features)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FeatureKey {
    model: ModelId,
    version: VersionId,
    item: ItemId,
    revision: u64,
}

/// When features given for an item take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effective {
    /// With the next answer.
    Now,
    /// With the next version, since the active one has learnt from others.
    NextVersion,
}

type FreezeKey = (ModelId, VersionId, ItemId);

/// Features whose freezing is in the log's queue, and some that the store can tell of by now.
type Freezing = HashMap<FreezeKey, Arc<LaterItem>>;

/// Resolves features, through a bounded cache for items outside the table.
pub(crate) struct FeatureSource {
    storage: Storage,
    cache: BoundedCache<FeatureKey, Arc<LaterItem>>,
    /// Raised by every change to an item of the stripe; part of the cache key, so a change invalidates by construction.
    revisions: Arc<[AtomicU64]>,
    /// Held while features are frozen, until that is queued, and while what is stored of an item changes, until that is
    /// synced: the two exclude one another. Taken before `freezing`.
    changing: Arc<[Mutex<()>]>,
    /// Held for moments, so that readers never wait for a sync.
    freezing: Arc<[Mutex<Freezing>]>,
}

/// The features of one item being frozen, for every model that learns from one observation: nothing else freezes or changes
/// features of the item until this is dropped.
pub(crate) struct Freeze<'s> {
    _changing: MutexGuard<'s, ()>,
    guard: MutexGuard<'s, Freezing>,
    items: Vec<(FreezeKey, Arc<LaterItem>)>,
}

fn record((model, version, item): &FreezeKey, features: &LaterItem) -> FrozenFeatures {
    FrozenFeatures {
        model: *model,
        version: *version,
        item: item.clone(),
        offset: features.offset,
        features: features.features.to_vec(),
        origin: features.origin,
    }
}

impl Freeze<'_> {
    /// What the observation must carry to the log.
    pub(crate) fn records(&self) -> Vec<FrozenFeatures> {
        self.items.iter().map(|(key, features)| record(key, features)).collect()
    }

    /// The observation is in the queue at `position`.
    pub(crate) fn enqueued(mut self, position: CommitPosition) {
        for (key, features) in self.items.drain(..) {
            self.guard.insert(key, Arc::new(features.frozen_at(position)));
        }
    }
}

impl FeatureSource {
    pub(crate) fn new(storage: Storage, bytes_max: usize) -> Self {
        Self {
            storage,
            cache: BoundedCache::new("features", bytes_max),
            revisions: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(),
            changing: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            freezing: (0..STRIPES).map(|_| Mutex::new(HashMap::new())).collect(),
        }
    }

    /// The same source for whoever prepares it; see [`BoundedCache::unasked`].
    pub(crate) fn unasked(&self) -> Self {
        Self {
            storage: self.storage.clone(),
            cache: self.cache.unasked(),
            revisions: Arc::clone(&self.revisions),
            changing: Arc::clone(&self.changing),
            freezing: Arc::clone(&self.freezing),
        }
    }

    /// The items outside `version`'s table that are asked for, the hottest first, as many as may be prepared; and how
    /// many there are in all.
    pub(crate) fn hottest(&self, version: &ServingVersion) -> (Vec<ItemId>, usize) {
        let of_version = |key: &FeatureKey, item: &Arc<LaterItem>| {
            let wanted = key.version == version.id && key.model == version.model_id;
            wanted.then(|| item.bytes() + size_of::<FeatureKey>())
        };
        let hottest = self.cache.hottest(of_version);
        (hottest.entries.into_iter().map(|(key, _)| key.item).collect(), hottest.of)
    }

    /// The features of an item outside `version`'s table as they are now, past the cache.
    pub(crate) fn read(
        &self,
        version: &ServingVersion,
        stream: &StreamName,
        item: &ItemId,
    ) -> Result<Arc<LaterItem>, PredictorError> {
        let freezing = self.freezing[stripe(item)].lock();
        self.look_up(&freezing, version, stream, item)
    }

    /// Counts the changes of an item, and of the few that share its stripe.
    pub(crate) fn revision(&self, item: &ItemId) -> u64 {
        self.revisions[stripe(item)].load(Ordering::Acquire)
    }

    /// The features of `item` under `version`.
    pub(crate) fn resolve<'v>(
        &self,
        version: &'v ServingVersion,
        stream: &StreamName,
        item: &ItemId,
    ) -> Result<Resolved<'v>, PredictorError> {
        if let Some(row) = version.theta.get(item) {
            return Ok(Resolved::Trained(row));
        }
        let key = self.key(version, item);
        if let Some(found) = self.cache.get(&key) {
            return Ok(Resolved::Later(found));
        }
        let started = Instant::now();
        let freezing = self.freezing[stripe(item)].lock();
        let found = self.look_up(&freezing, version, stream, item)?;
        drop(freezing);
        self.cache.record_load(started.elapsed());
        self.cache.insert(key, found.clone());
        Ok(Resolved::Later(found))
    }

    fn key(&self, version: &ServingVersion, item: &ItemId) -> FeatureKey {
        FeatureKey { model: version.model_id, version: version.id, item: item.clone(), revision: self.revision(item) }
    }

    /// The features of `item` for a user's state that is about to learn from them under `version`: from now on they are
    /// frozen. An answer from the state must wait until [`Resolved::frozen`] is durable.
    ///
    /// The caller guarantees that it holds no [`Freeze`].
    pub(crate) fn resolve_frozen<'v>(
        &self,
        version: &'v ServingVersion,
        stream: &StreamName,
        item: &ItemId,
    ) -> Result<Resolved<'v>, PredictorError> {
        let found = self.resolve(version, stream, item)?;
        if found.frozen().is_some() {
            return Ok(found);
        }
        let _changing = self.changing[stripe(item)].lock();
        let mut freezing = self.freezing(item);
        let mut found = self.look_up(&freezing, version, stream, item)?;
        if found.frozen.is_none() {
            let key = (version.model_id, version.id, item.clone());
            let position = self.storage.freeze(&record(&key, &found))?;
            found = Arc::new(found.frozen_at(position));
            freezing.insert(key, Arc::clone(&found));
        }
        self.cache.insert(self.key(version, item), Arc::clone(&found));
        Ok(Resolved::Later(found))
    }

    /// What is being frozen of the item's stripe, without what the store can tell of by now.
    fn freezing(&self, item: &ItemId) -> MutexGuard<'_, Freezing> {
        let mut freezing = self.freezing[stripe(item)].lock();
        freezing.retain(|_, features| features.frozen.is_some_and(|position| !self.storage.is_durable(position)));
        freezing
    }

    fn look_up(
        &self,
        freezing: &Freezing,
        version: &ServingVersion,
        stream: &StreamName,
        item: &ItemId,
    ) -> Result<Arc<LaterItem>, PredictorError> {
        let revision = self.revision(item);
        let given = self.storage.item_features(version.model_id, item)?;
        let described = self.storage.item(stream, item)?;
        let known = given.is_some() || described.is_some();
        let later = |offset, features, origin| LaterItem { offset, features, known, origin, revision, frozen: None };
        if let Some(queued) = freezing.get(&(version.model_id, version.id, item.clone())) {
            // Features are frozen for good, but whether the item is known may have changed since.
            return Ok(Arc::new(LaterItem { known, revision, ..LaterItem::clone(queued) }));
        }
        if let Some(frozen) = self.storage.frozen(version.model_id, version.id, item)? {
            let found = later(frozen.offset, frozen.features.into(), frozen.origin);
            return Ok(Arc::new(found.frozen_at(CommitPosition::START)));
        }
        let stand_in = version.theta.cold_item();
        if let Some(given) = given.filter(|given| given.features.len() == version.dim()) {
            return Ok(Arc::new(later(stand_in.offset, given.features.into(), FeatureOrigin::Given)));
        }
        let attributes = described.map(|item| item.attributes).filter(|attributes| !attributes.is_empty());
        if let (Some(map), Some(attributes)) = (&version.cold_map, attributes) {
            let ColdItem { offset, features } = map.map(&attributes);
            return Ok(Arc::new(later(offset, features.into(), FeatureOrigin::Attributes)));
        }
        Ok(Arc::new(later(stand_in.offset, stand_in.features.into(), FeatureOrigin::StandIn)))
    }

    /// The features of `item`, which has the rows `slots`, for an observation that every one of `versions` is about to
    /// learn from: where they are not frozen yet, they are now, and the observation carries them.
    pub(crate) fn freeze<'s, 'v>(
        &'s self,
        versions: &'v [Arc<ServingVersion>],
        slots: &[Option<u32>],
        stream: &StreamName,
        item: &ItemId,
    ) -> Result<(Vec<Resolved<'v>>, Option<Freeze<'s>>), PredictorError> {
        let row = |(version, slot): (&'v Arc<ServingVersion>, &Option<u32>)| {
            slot.map(|slot| Resolved::Trained(version.theta.row(slot as usize)))
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
            let key = (version.model_id, version.id, item.clone());
            let found = self.look_up(&guard, version, stream, item)?;
            if found.frozen.is_none() {
                items.push((key, Arc::clone(&found)));
            }
            resolved.push(Resolved::Later(found));
        }
        let freeze = if items.is_empty() { None } else { Some(Freeze { _changing: changing, guard, items }) };
        Ok((resolved, freeze))
    }

    /// Changes what is stored of `items`. Nothing else freezes or changes features of one of them until `write` has
    /// returned.
    pub(crate) fn change<'i, T, E>(
        &self,
        items: impl IntoIterator<Item = &'i ItemId>,
        write: impl FnOnce(&Changing<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut stripes: Vec<usize> = items.into_iter().map(stripe).collect();
        // In one order, so that two changes never wait for one another.
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

/// Items that are being changed.
pub(crate) struct Changing<'s> {
    source: &'s FeatureSource,
}

impl Changing<'_> {
    /// When features that are given to one of the items now take effect under `version`.
    pub(crate) fn effective(&self, version: &ServingVersion, item: &ItemId) -> Result<Effective, PredictorError> {
        let key = (version.model_id, version.id, item.clone());
        let frozen = version.theta.get(item).is_some()
            || self.source.freezing[stripe(item)].lock().contains_key(&key)
            || self.source.storage.frozen(version.model_id, version.id, item)?.is_some();
        Ok(if frozen { Effective::NextVersion } else { Effective::Now })
    }
}

fn stripe(item: &ItemId) -> usize {
    xxh3_64(item.as_str().as_bytes()) as usize % STRIPES
}
