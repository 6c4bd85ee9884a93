//! Cache of computed scores: bounded, and keyed by everything that a score depends on.

use celeris_model::{Estimate, ItemId, UserEpoch, UserId};

use crate::cache::{BoundedCache, Held};

/// All inputs of a score. They include the version, the user's epoch and the item's revision, so a
/// cached score is never stale.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PredictionKey {
    /// [`ServingVersion::serial`].
    pub(crate) version: u64,
    pub(crate) user: UserId,
    pub(crate) epoch: UserEpoch,
    /// The revision of the user's attributes.
    pub(crate) profile: u64,
    /// [`Subject::losses`](crate::users::Subject).
    pub(crate) losses: u32,
    pub(crate) item: ItemId,
    pub(crate) revision: u64,
}

/// The fields of a scored item, so that an answer needs no other look-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CachedPrediction {
    pub(crate) estimate: Estimate,
    /// Whether the item is known.
    pub(crate) known: bool,
}

impl Held for CachedPrediction {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

pub(crate) type PredictionCache = BoundedCache<PredictionKey, CachedPrediction>;

/// Cached predictions, to be prepared under another version.
pub(crate) struct CachedPredictions {
    /// The items of each user and epoch.
    pub(crate) by_user: Vec<(UserId, UserEpoch, Vec<ItemId>)>,
    /// The total number of cached predictions under the version.
    pub(crate) of: usize,
}
