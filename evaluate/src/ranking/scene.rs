//! The lists of each method, for the users whose last item is searched.

use std::collections::HashMap;

use celeris_model::{HalfLife, Learning, Loss, ModelError, Timestamp, UserId};
use celeris_retrain::{Rating, Trained};
use celeris_retrieval::Matrix;

use super::K;
use super::ease::Ease;
use super::peer::Factors;
use crate::Numbered;
use crate::lists::{Taken, weights};

/// The ranking task: taken items and searched items.
pub(super) struct Scene<'a> {
    /// Histories are the oldest first if `times` are given.
    pub(super) taken: Taken<'a>,
    /// The timestamps of the histories; only needed for lists of a version.
    pub(super) times: &'a [Vec<Timestamp>],
    /// The searched rating of each evaluated user.
    pub(super) tested: &'a [Rating],
}

impl Scene<'_> {
    /// The lists by the user states under the version, with weights that decay by `half_life`.
    pub(super) fn of_version(
        &self,
        trained: &Trained,
        half_life: Option<HalfLife>,
    ) -> Result<Vec<Vec<u32>>, ModelError> {
        let learning = Learning::new(trained.prior.clone(), Loss::Implicit, half_life);
        let matrix = Matrix::new(trained.dim, &trained.item_features, &trained.item_offsets);
        let ranked = self.taken.ranked(matrix);
        let list = |tested: &Rating| {
            let user = tested.user as usize;
            let weights = weights(trained, &learning, &self.taken.by_user[user], &self.times[user])?;
            Ok(ranked.best(tested.user, &weights, K))
        };
        self.tested.iter().map(list).collect()
    }

    /// The lists by user and item factors of `length` entries; that of a user without factors is
    /// empty.
    pub(super) fn of_factors(&self, factors: &Factors, numbered: &Numbered, length: usize) -> Vec<Vec<u32>> {
        let items = self.taken.counts.len();
        let mut features = vec![0.0; items * length];
        for (item, number) in &numbered.items {
            if let Some((_, row)) = factors.items.get(item.as_str()) {
                features[*number as usize * length..][..length].copy_from_slice(row);
            }
        }
        let offsets = vec![0.0; items];
        let ranked = self.taken.ranked(Matrix::new(length, &features, &offsets));
        let users: HashMap<u32, &UserId> = numbered.users.iter().map(|(user, number)| (*number, user)).collect();
        let list = |tested: &Rating| match factors.users.get(users[&tested.user].as_str()) {
            Some((_, weights)) => ranked.best(tested.user, weights, K),
            None => Vec::new(),
        };
        self.tested.iter().map(list).collect()
    }

    /// The lists by EASE.
    pub(super) fn of_ease(&self, ease: &Ease) -> Vec<Vec<u32>> {
        let mut lists: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut list = |tested: &Rating| {
            let made = || self.taken.best(tested.user, &ease.scores(tested.user), K);
            lists.entry(tested.user).or_insert_with(made).clone()
        };
        self.tested.iter().map(&mut list).collect()
    }

    /// The lists of the most taken items.
    pub(super) fn of_popularity(&self) -> Vec<Vec<u32>> {
        self.taken.popular(self.tested.iter().map(|tested| tested.user), K)
    }
}
