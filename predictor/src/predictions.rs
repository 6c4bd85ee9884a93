//! Scores that were computed before: bounded, and keyed by everything that a score depends on.

use celeris_model::{Estimate, ItemId, UserEpoch, UserId};

use crate::cache::{BoundedCache, Held};

/// What a score is a function of. The version, the user's epoch and the item's revision are part of it, so nothing in
/// the cache can be stale.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PredictionKey {
    /// [`ServingVersion::serial`].
    pub(crate) version: u64,
    pub(crate) user: UserId,
    pub(crate) epoch: UserEpoch,
    pub(crate) item: ItemId,
    pub(crate) revision: u64,
}

/// All that a reply says of an item, so that it need not be looked up elsewhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CachedPrediction {
    pub(crate) estimate: Estimate,
    /// Whether anything is known of the item.
    pub(crate) known: bool,
}

impl Held for CachedPrediction {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

/// The prediction cache.
pub(crate) type PredictionCache = BoundedCache<PredictionKey, CachedPrediction>;
