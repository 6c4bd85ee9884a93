//! Users who were erased lately, whose decisions may still be on their way.

use celeris_model::{Decision, ModelId, UserEpoch, UserId};
use hashlink::LruCache;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

/// How many are remembered: a ranking that began before an erasure takes seconds at most.
const REMEMBERED_MAX: usize = 65_536;

/// By model and hash of the user, the epoch of the erasure.
pub(super) struct ErasedUsers(Mutex<LruCache<(ModelId, u64), UserEpoch>>);

impl Default for ErasedUsers {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(REMEMBERED_MAX)))
    }
}

impl ErasedUsers {
    pub(super) fn add(&self, model: ModelId, user: &UserId, erased: UserEpoch) {
        let mut users = self.0.lock();
        let latest = users.get(&(model, hash(user))).copied().unwrap_or_default().max(erased);
        users.insert((model, hash(user)), latest);
    }

    /// Whether the decision reflects events of a user who was erased since.
    pub(super) fn holds(&self, decision: &Decision) -> bool {
        let mut users = self.0.lock();
        users.get(&(decision.model_id, hash(&decision.user))).is_some_and(|erased| decision.user_epoch < *erased)
    }
}

fn hash(user: &UserId) -> u64 {
    xxh3_64(user.as_str().as_bytes())
}
