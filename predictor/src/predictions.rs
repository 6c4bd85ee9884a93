//! Scores that were computed before: bounded, and keyed by everything that a score depends on.

use celeris_model::{Estimate, ItemId, ModelName, UserEpoch, UserId, VersionId};

use crate::cache::{BoundedCache, Held};

/// What a score is a function of. The version, the user's epoch and the item's revision are part of it, so nothing in
/// the cache can be stale.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PredictionKey {
    pub(crate) model: ModelName,
    pub(crate) version: VersionId,
    pub(crate) user: UserId,
    pub(crate) epoch: UserEpoch,
    pub(crate) item: ItemId,
    pub(crate) revision: u64,
}

/// A score, and whether anything was known of its item.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CachedScore {
    pub(crate) estimate: Estimate,
    pub(crate) known: bool,
}

impl Held for CachedScore {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

/// The prediction cache.
pub(crate) type PredictionCache = BoundedCache<PredictionKey, CachedScore>;
