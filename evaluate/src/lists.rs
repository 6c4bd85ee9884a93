//! Lists of the best items of a user, as `recommend` makes them with `greedy`, and their quality.

use std::collections::HashSet;

use celeris_model::preference::Takings;
use celeris_model::{Learning, ModelError, Timestamp, UserModel};
use celeris_retrain::{Rating, Trained};
use celeris_retrieval::{CandidateSet, Matrix, Table};

use crate::examples;

/// What users have taken; users and items by number, and the number of an item is its row.
#[derive(Clone, Copy)]
pub(crate) struct Taken<'a> {
    /// How often each item was taken; items that were never taken are not listed.
    pub(crate) counts: &'a [u32],
    /// Ratings by user.
    pub(crate) by_user: &'a [Vec<Rating>],
}

impl Taken<'_> {
    /// The items that the user may be shown: those that others have taken and the user has not.
    fn allowed(&self, user: u32) -> CandidateSet {
        let mut allowed = CandidateSet::none();
        for (row, _) in (0..).zip(self.counts).filter(|(_, count)| **count > 0) {
            allowed.insert(row);
        }
        for taken in &self.by_user[user as usize] {
            allowed.remove(taken.item);
        }
        allowed
    }

    /// The table of all items with these offsets and features.
    pub(crate) fn ranked<'m>(&'m self, matrix: Matrix<'m>) -> Ranked<'m> {
        Ranked { taken: self, matrix, table: Table::build(matrix, (0..).take(self.counts.len()).collect()) }
    }

    /// The items with the highest scores that the user may be shown, best first; at most `k`.
    pub(crate) fn best(&self, user: u32, scores: &[f32], k: usize) -> Vec<u32> {
        let taken: HashSet<u32> = self.by_user[user as usize].iter().map(|row| row.item).collect();
        let shown = |item: &u32| self.counts[*item as usize] > 0 && !taken.contains(item);
        let mut items: Vec<u32> = (0..).take(scores.len()).filter(shown).collect();
        let order =
            |one: &u32, other: &u32| scores[*other as usize].total_cmp(&scores[*one as usize]).then(one.cmp(other));
        if k < items.len() {
            items.select_nth_unstable_by(k, order);
            items.truncate(k);
        }
        items.sort_unstable_by(order);
        items
    }

    /// The most taken items of each of these users, best first.
    pub(crate) fn popular(&self, users: impl Iterator<Item = u32>, k: usize) -> Vec<Vec<u32>> {
        let offsets: Vec<f32> = self.counts.iter().map(|count| *count as f32).collect();
        let features = vec![1.0; offsets.len()];
        let ranked = self.ranked(Matrix::new(1, &features, &offsets));
        users.map(|user| ranked.best(user, &[0.0], k)).collect()
    }
}

/// The items under one version.
pub(crate) struct Ranked<'a> {
    taken: &'a Taken<'a>,
    matrix: Matrix<'a>,
    table: Table,
}

impl Ranked<'_> {
    /// The items with the highest scores, best first; at most `k`.
    pub(crate) fn best(&self, user: u32, weights: &[f32], k: usize) -> Vec<u32> {
        let hits = self.table.search(self.matrix, weights, k, &self.taken.allowed(user));
        hits.into_iter().map(|hit| hit.row).collect()
    }
}

/// The weights of a user with this history under implicit loss. `times` are those of the history,
/// or empty if nothing decays.
pub(crate) fn weights(
    trained: &Trained,
    learning: &Learning,
    history: &[Rating],
    times: &[Timestamp],
) -> Result<Vec<f32>, ModelError> {
    let mut examples = examples(trained, history);
    let mut takings = Takings::default();
    for (row, (example, rating)) in examples.iter_mut().zip(history).enumerate() {
        example.timestamp = times.get(row).copied().unwrap_or_default();
        example.taken_before = takings.next(rating.item, rating.label, example.timestamp);
    }
    let user = UserModel::rebuild(learning, examples.as_slice(), examples.len() as u64)?;
    Ok(user.weights().iter().map(|weight| *weight as f32).collect())
}

/// The share of the relevant items that are in the list, of at most `k`: 1 if the list cannot hold
/// more of them. `relevant` is not empty and holds an item once.
pub(crate) fn recall(list: &[u32], relevant: &[u32], k: usize) -> f64 {
    let found = list.iter().take(k).filter(|item| relevant.contains(item)).count();
    found as f64 / relevant.len().min(k) as f64
}

/// The normalised discounted cumulative gain of the list: the sum of `1 / log2(1 + place)` over
/// relevant items, with places from 1, as a share of that of the best list of `k`. `relevant` is as
/// for [`recall`].
pub(crate) fn ndcg(list: &[u32], relevant: &[u32], k: usize) -> f64 {
    let gain = |place: usize| 1.0 / (place as f64 + 2.0).log2();
    let found = list.iter().take(k).enumerate().filter(|(_, item)| relevant.contains(item));
    let best: f64 = (0..relevant.len().min(k)).map(gain).sum();
    found.map(|(place, _)| gain(place)).sum::<f64>() / best
}

/// The mean and its standard error.
pub(crate) fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / count / (count - 1.0).max(1.0)).sqrt())
}
