//! `--protocol ranking`: the last item of every user, found again among all.
//!
//! Feedback is implicit: every rating says that the user took the item, a higher one more surely. The version is trained
//! on all but the last; users learn from what they took before; and the best ten of all items that they have not taken are
//! found as `recommend` finds them for `greedy`. Beside it the same by the factors of the library `implicit`, trained on
//! the same and as long, and by popularity.

mod peer;

use std::collections::HashMap;
use std::fmt;
use std::time::Instant;

use anyhow::ensure;
use celeris_datasets::{Dataset, Rating as NamedRating};
use celeris_model::{Learning, Loss, ModelError, UserId, UserModel};
use celeris_retrain::{Pinned, Rating, Ratings, Silent, TrainSettings, Trained, train};
use celeris_retrieval::{Allowed, Matrix, Table};
use serde::Serialize;

use self::peer::{Factors, Peer};
use super::{EvaluateSettings, Numbered, by_user, examples};
use crate::bench::train::peers::Asked;

/// Slots of a list.
const K: usize = 10;

/// Ridges that the library is given, of which the best on the test itself counts: its users would tune it too.
const PEER_REGULARIZATIONS: [f64; 5] = [0.01, 1.0, 4.0, 16.0, 64.0];

/// The library's own default.
const PEER_ITERATIONS: usize = 15;

/// What the protocol found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankingReport {
    /// `"ranking"`.
    pub protocol: &'static str,
    /// The data set's name.
    pub dataset: String,
    /// The length of features and weights; the library gets as many factors.
    pub dim: usize,
    /// The seed of the trainers.
    pub seed: u64,
    /// Users whose last item is looked for.
    pub users: usize,
    /// Pairs trained on.
    pub train_pairs: usize,
    /// Last items that nobody else took before: no list can have them.
    pub unseen_items: usize,
    /// The lists of what is served.
    pub ours: Lists,
    /// The lists of the library `implicit`; null where it is not installed.
    pub implicit: Option<Lists>,
    /// The regularization with which it was best.
    pub implicit_regularization: Option<f64>,
    /// The same lists for everybody: the most taken items, but for what the user has.
    pub popularity: Lists,
    /// The regularization that the trainer chose.
    pub regularization: f64,
    /// Time for tuning and training.
    pub train_seconds: f64,
}

/// How good lists of ten are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lists {
    /// The share of lists that have the item.
    pub recall_at_10: f64,
    /// The mean of `1 / log2(1 + place)` of the item, 0 where a list does not have it.
    pub ndcg_at_10: f64,
    /// Standard errors of the two over users.
    pub std_errors: [f64; 2],
}

impl Lists {
    /// Of the places at which the lists have their items, from 0.
    fn of(places: &[Option<usize>]) -> Self {
        let hit = |place: &Option<usize>| f64::from(u8::from(place.is_some()));
        let gain = |place: &Option<usize>| place.map_or(0.0, |place| 1.0 / (place as f64 + 2.0).log2());
        let (recall, recall_error) = mean(places.iter().map(hit));
        let (ndcg, ndcg_error) = mean(places.iter().map(gain));
        Self { recall_at_10: recall, ndcg_at_10: ndcg, std_errors: [recall_error, ndcg_error] }
    }
}

/// The mean and its standard error.
fn mean(values: impl ExactSizeIterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / count / (count - 1.0).max(1.0)).sqrt())
}

/// Runs the protocol.
///
/// # Errors
/// Where no user has two ratings, or a trainer fails.
pub fn evaluate_ranking(dataset: &Dataset, settings: &EvaluateSettings) -> anyhow::Result<RankingReport> {
    let (known, last) = leave_last_out(&dataset.ratings);
    ensure!(!last.is_empty(), "no user has two ratings, of which the last could be left out");
    let mut numbered = Numbered::default();
    let pairs = numbered.number(&known);
    let asked = numbered.number(&last);
    let seen = by_user(numbered.users.len(), &pairs);
    let ratings = Ratings::new(numbered.users.len(), numbered.items.len(), pairs.clone())?;
    let scene = Scene { taken: &ratings.observed(), seen: &seen, asked: &asked };

    let started = Instant::now();
    let of_trainer = TrainSettings { loss: Loss::Implicit, ..settings.of_trainer() };
    let trained = train(&ratings, &of_trainer, &Pinned::default(), &Silent)?;
    let train_seconds = started.elapsed().as_secs_f64();
    let peer = best_of_peer(&known, &scene, &numbered, settings)?;
    Ok(RankingReport {
        protocol: "ranking",
        dataset: dataset.name.clone(),
        dim: settings.dim,
        seed: settings.seed,
        users: asked.len(),
        train_pairs: pairs.len(),
        unseen_items: asked.iter().filter(|rating| scene.taken[rating.item as usize] == 0).count(),
        ours: Lists::of(&scene.of_version(&trained)?),
        implicit: peer.map(|(_, lists)| lists),
        implicit_regularization: peer.map(|(regularization, _)| regularization),
        popularity: Lists::of(&scene.of_popularity()),
        regularization: trained.metrics.regularization,
        train_seconds,
    })
}

/// All but the latest rating of each user, and these; of ratings of one time the last in the file is the latest. Users of
/// one rating are not asked about.
fn leave_last_out(ratings: &[NamedRating]) -> (Vec<NamedRating>, Vec<NamedRating>) {
    let mut latest: HashMap<&UserId, (usize, usize)> = HashMap::new();
    for (row, rating) in ratings.iter().enumerate() {
        let (last, count) = latest.entry(&rating.user).or_insert((row, 0));
        *count += 1;
        if rating.timestamp >= ratings[*last].timestamp {
            *last = row;
        }
    }
    let is_last = |row: usize| latest[&ratings[row].user].0 == row && latest[&ratings[row].user].1 > 1;
    let part = |last: bool| -> Vec<NamedRating> {
        ratings.iter().enumerate().filter(|(row, _)| is_last(*row) == last).map(|(_, rating)| rating.clone()).collect()
    };
    (part(false), part(true))
}

fn best_of_peer(
    known: &[NamedRating],
    scene: &Scene,
    numbered: &Numbered,
    settings: &EvaluateSettings,
) -> anyhow::Result<Option<(f64, Lists)>> {
    let Some(peer) = Peer::find(known)? else { return Ok(None) };
    let mut best: Option<(f64, Lists)> = None;
    for regularization in PEER_REGULARIZATIONS {
        let asked = Asked { factors: settings.dim, iterations: PEER_ITERATIONS, regularization };
        let factors = peer.train(asked).map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
        let lists = Lists::of(&scene.of_factors(&factors, numbered, settings.dim));
        if best.is_none_or(|(_, best)| lists.ndcg_at_10 > best.ndcg_at_10) {
            best = Some((regularization, lists));
        }
    }
    Ok(best)
}

/// Who has taken what, and what is looked for; users and items by number.
struct Scene<'a> {
    /// How often each item was taken; those that nobody took cannot be found.
    taken: &'a [u32],
    /// By user.
    seen: &'a [Vec<Rating>],
    /// One of each user who is asked about.
    asked: &'a [Rating],
}

impl Scene<'_> {
    /// What the user may be shown: an item's number is its row.
    fn allowed(&self, user: u32) -> Allowed {
        let mut allowed = Allowed::none();
        for (row, _) in (0..).zip(self.taken).filter(|(_, taken)| **taken > 0) {
            allowed.insert(row);
        }
        for seen in &self.seen[user as usize] {
            allowed.remove(seen.item);
        }
        allowed
    }

    /// At which place of the user's list the item is.
    fn place(&self, asked: &Rating, table: &Table, matrix: Matrix<'_>, weights: &[f32]) -> Option<usize> {
        let hits = table.search(matrix, weights, K, &self.allowed(asked.user));
        hits.iter().position(|hit| hit.row == asked.item)
    }

    /// The lists of users who have told the version what they have taken.
    fn of_version(&self, trained: &Trained) -> Result<Vec<Option<usize>>, ModelError> {
        let learning = Learning::new(trained.prior.clone(), Loss::Implicit, None);
        let matrix = Matrix::new(trained.dim, &trained.item_features, &trained.item_offsets);
        let table = Table::build(matrix, rows(self.taken.len()));
        let place = |asked: &Rating| {
            let history = examples(trained, &self.seen[asked.user as usize]);
            let user = UserModel::rebuild(&learning, history.as_slice(), history.len() as u64)?;
            let weights: Vec<f32> = user.weights().iter().map(|weight| *weight as f32).collect();
            Ok(self.place(asked, &table, matrix, &weights))
        };
        self.asked.iter().map(place).collect()
    }

    /// The lists by factors of both sides, of `length` entries; a user without any gets no list.
    fn of_factors(&self, factors: &Factors, numbered: &Numbered, length: usize) -> Vec<Option<usize>> {
        let mut features = vec![0.0; self.taken.len() * length];
        for (item, number) in &numbered.items {
            if let Some((_, row)) = factors.items.get(item.as_str()) {
                features[*number as usize * length..][..length].copy_from_slice(row);
            }
        }
        let offsets = vec![0.0; self.taken.len()];
        let matrix = Matrix::new(length, &features, &offsets);
        let table = Table::build(matrix, rows(self.taken.len()));
        let users: HashMap<u32, &UserId> = numbered.users.iter().map(|(user, number)| (*number, user)).collect();
        let place = |asked: &Rating| {
            let (_, weights) = factors.users.get(users[&asked.user].as_str())?;
            self.place(asked, &table, matrix, weights)
        };
        self.asked.iter().map(place).collect()
    }

    /// The lists of the most taken items.
    fn of_popularity(&self) -> Vec<Option<usize>> {
        let offsets: Vec<f32> = self.taken.iter().map(|taken| *taken as f32).collect();
        let features = vec![1.0; offsets.len()];
        let matrix = Matrix::new(1, &features, &offsets);
        let table = Table::build(matrix, rows(offsets.len()));
        self.asked.iter().map(|asked| self.place(asked, &table, matrix, &[0.0])).collect()
    }
}

fn rows(count: usize) -> Vec<u32> {
    (0..).take(count).collect()
}

impl fmt::Display for RankingReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { dataset, dim, seed, users, train_pairs, unseen_items, .. } = self;
        writeln!(out, "ranking of {dataset}, dim {dim}, seed {seed}")?;
        writeln!(
            out,
            "  {train_pairs} pairs to train on; the last items of {users} users to find, {unseen_items} of them unseen"
        )?;
        writeln!(out, "                recall@10         ndcg@10")?;
        writeln!(out, "  ours          {}", self.ours)?;
        if let (Some(lists), Some(regularization)) = (&self.implicit, self.implicit_regularization) {
            writeln!(out, "  implicit      {lists}   (best of its regularizations: {regularization})")?;
        }
        writeln!(out, "  popularity    {}", self.popularity)?;
        write!(out, "  the trainer chose regularization {} in {:.1} s", self.regularization, self.train_seconds)
    }
}

impl fmt::Display for Lists {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { recall_at_10, ndcg_at_10, std_errors: [recall_error, ndcg_error] } = self;
        write!(out, "{recall_at_10:.4} ± {recall_error:.4}   {ndcg_at_10:.4} ± {ndcg_error:.4}")
    }
}

#[cfg(test)]
mod tests;
