//! Prediction loss per user: running aggregates of a bounded set of users (Velox §2.4).
//!
//! Once the set is full, one in `ADMITS_ONE_IN` observations of untracked users adds its user to
//! the set (sample and hold; Estan and Varghese, "New directions in traffic measurement and
//! accounting", SIGCOMM 2002) and evicts the least recently active user. Frequent users are
//! therefore tracked long enough to be compared, however many other users there are.

use celeris_model::UserId;
use hashlink::LinkedHashMap;

use super::windows::{MeanLoss, Running};

/// Maximum number of users tracked per model.
pub const USERS_MAX: usize = 4096;

/// Once the set is full, one in this many observations of untracked users adds its user.
const ADMITS_ONE_IN: u32 = 16;

/// Users with fewer observations are not compared: the first predictions for any user are poor.
pub const USER_OBSERVATIONS_MIN: u64 = 5;

/// Number of users with the largest losses that are reported.
const WORST_MAX: usize = 10;

/// Running mean of one user.
#[derive(Debug, Clone, PartialEq)]
pub struct UserLoss {
    pub user: UserId,
    /// Mean and count since the user was last added to the set.
    pub loss: MeanLoss,
}

/// Distribution of the users' mean losses.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UsersLoss {
    /// Number of tracked users.
    pub tracked: usize,
    /// Number of tracked users with at least [`USER_OBSERVATIONS_MIN`] observations; the other
    /// fields describe these users.
    pub compared: usize,
    /// Median of their mean losses.
    pub median: Option<f64>,
    /// Ninth decile of their mean losses.
    pub ninth_decile: Option<f64>,
    /// Users with the largest mean losses, largest first.
    pub worst: Vec<UserLoss>,
}

/// Aggregates by user, most recently active last.
#[derive(Default)]
pub(crate) struct Users {
    by_user: LinkedHashMap<UserId, Running>,
    /// Number of observations of untracked users since one was last added.
    passed_over: u32,
}

impl Users {
    pub(crate) fn add(&mut self, user: &UserId, loss: f64) {
        if let Some(running) = self.by_user.to_back(user) {
            running.add(loss);
            return;
        }
        if self.by_user.len() == USERS_MAX {
            self.passed_over += 1;
            if self.passed_over < ADMITS_ONE_IN {
                return;
            }
            self.passed_over = 0;
            self.by_user.pop_front();
        }
        let mut running = Running::default();
        running.add(loss);
        self.by_user.insert(user.clone(), running);
    }

    pub(crate) fn get(&self, user: &UserId) -> Option<MeanLoss> {
        self.by_user.get(user).and_then(|running| running.mean())
    }

    pub(crate) fn forget(&mut self, user: &UserId) {
        self.by_user.remove(user);
    }

    pub(crate) fn summary(&self) -> UsersLoss {
        let compared = self.by_user.iter().filter(|(_, running)| running.count >= USER_OBSERVATIONS_MIN);
        let mut users: Vec<(&UserId, MeanLoss)> =
            compared.filter_map(|(user, running)| Some((user, running.mean()?))).collect();
        users.sort_by(|(a, left), (b, right)| right.mean.total_cmp(&left.mean).then_with(|| a.cmp(b)));
        // Sorted in descending order, so the ninth decile is a tenth of the way down.
        let at = |share: f64| users.get((users.len() as f64 * share) as usize).map(|(_, loss)| loss.mean);
        UsersLoss {
            tracked: self.by_user.len(),
            compared: users.len(),
            median: at(0.5),
            ninth_decile: at(0.1),
            worst: users
                .iter()
                .take(WORST_MAX)
                .map(|(user, loss)| UserLoss { user: UserId::clone(user), loss: *loss })
                .collect(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn user(number: usize) -> UserId {
        UserId::new(number.to_string()).unwrap()
    }

    #[test]
    fn the_users_with_the_largest_losses_are_reported_and_frequent_users_stay() {
        let mut users = Users::default();
        for number in 1..=100 {
            for _ in 0..USER_OBSERVATIONS_MIN {
                users.add(&user(number), number as f64);
            }
        }
        users.add(&user(1000), 1e6); // A new user is not compared.
        let summary = users.summary();
        assert_eq!((summary.tracked, summary.compared), (101, 100));
        assert_eq!(summary.worst.first().unwrap().user, user(100));
        assert_eq!((summary.median, summary.ninth_decile), (Some(50.0), Some(90.0)));
        assert_eq!(users.get(&user(7)), Some(MeanLoss { mean: 7.0, count: USER_OBSERVATIONS_MIN }));

        users.forget(&user(100));
        assert!(users.summary().worst.iter().all(|worst| worst.user != user(100)), "erased users are not reported");
        for number in 2000..2000 + USERS_MAX * 20 {
            users.add(&user(number), 1.0);
            users.add(&user(50), 50.0);
        }
        assert_eq!(users.summary().tracked, USERS_MAX);
        assert!(users.get(&user(7)).is_none(), "inactive users are evicted");
        assert!(users.get(&user(50)).is_some(), "active users stay");

        // More users than the capacity, all active in turn: some are tracked long enough to be
        // compared.
        let mut crowded = Users::default();
        for round in 0..40 * USERS_MAX * 2 {
            crowded.add(&user(round % (USERS_MAX * 2)), 1.0);
        }
        assert!(crowded.summary().compared > USERS_MAX / 2, "{}", crowded.summary().compared);
    }
}
