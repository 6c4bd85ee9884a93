//! Recently erased users, of whom requests may still be in progress.

use std::hash::Hash;

use celeris_model::{UserEpoch, UserId};
use hashlink::LruCache;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

/// Maximum number of users: requests that began before an erasure end within seconds.
const REMEMBERED_MAX: usize = 65_536;

#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    erased: UserEpoch,
    /// Number of erasures that have begun and are not in the log yet.
    under_way: u32,
}

/// Erasures by owner, such as a stream, and hash of the user. At most 65,536 users; the least
/// recently used are evicted.
pub struct ErasedUsers<O>(Mutex<LruCache<(O, u64), Mark>>);

impl<O: Hash + Eq> Default for ErasedUsers<O> {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(REMEMBERED_MAX)))
    }
}

impl<O: Hash + Eq + Clone> ErasedUsers<O> {
    /// Begins an erasure: until its end, all epochs of the user are held.
    pub(crate) fn begin(&self, owner: &O, user: &UserId) {
        self.change(owner, user, |mark| mark.under_way += 1);
    }

    /// Ends an erasure, successful or not.
    pub(crate) fn end(&self, owner: &O, user: &UserId) {
        self.change(owner, user, |mark| mark.under_way = mark.under_way.saturating_sub(1));
    }

    /// Records that the user was erased by the event of this epoch.
    pub fn add(&self, owner: &O, user: &UserId, erased: UserEpoch) {
        self.change(owner, user, |mark| mark.erased = mark.erased.max(erased));
    }

    /// Whether data that reflects the user's events up to `epoch` belongs to a user who is being
    /// erased or has been erased since.
    pub fn holds(&self, owner: &O, user: &UserId, epoch: UserEpoch) -> bool {
        let mut users = self.0.lock();
        let mark = users.get(&(owner.clone(), hash(user))).copied().unwrap_or_default();
        mark.under_way > 0 || epoch < mark.erased
    }

    fn change(&self, owner: &O, user: &UserId, change: impl FnOnce(&mut Mark)) {
        let mut users = self.0.lock();
        let key = (owner.clone(), hash(user));
        let mut mark = users.get(&key).copied().unwrap_or_default();
        change(&mut mark);
        users.insert(key, mark);
    }
}

fn hash(user: &UserId) -> u64 {
    xxh3_64(user.as_str().as_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_held_during_an_erasure_and_up_to_its_epoch_afterwards() {
        let users = ErasedUsers::default();
        let (ann, bob) = (UserId::new("ann").unwrap(), UserId::new("bob").unwrap());
        assert!(!users.holds(&1, &ann, UserEpoch(0)));
        users.begin(&1, &ann);
        assert!(users.holds(&1, &ann, UserEpoch(9)));
        assert!(!users.holds(&2, &ann, UserEpoch(0)) && !users.holds(&1, &bob, UserEpoch(0)));
        // A second erasure fails meanwhile; the first one is still in progress.
        users.begin(&1, &ann);
        users.end(&1, &ann);
        assert!(users.holds(&1, &ann, UserEpoch(9)));
        users.add(&1, &ann, UserEpoch(5));
        users.end(&1, &ann);
        assert!(users.holds(&1, &ann, UserEpoch(4)) && !users.holds(&1, &ann, UserEpoch(5)));
        users.add(&1, &ann, UserEpoch(3));
        assert!(users.holds(&1, &ann, UserEpoch(4)), "an earlier erasure that is recorded later changes nothing");
    }
}
