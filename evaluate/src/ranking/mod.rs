//! `--protocol ranking`: finds the last item of every user among all items.
//!
//! Feedback is implicit: every rating means that the user took the item, with more confidence for
//! higher ratings. The version is trained on all but the last items; users learn from their earlier
//! items; and the ten best items that they have not taken are searched as `recommend` does with
//! `greedy`. The baselines are the library `implicit` with as many factors, trained on the same
//! data, and popularity.
//!
//! Users' weights decay with the half-life, of four candidates, whose lists rank each user's
//! second-to-last item best. It is a model setting that requires no training. The lists of weights
//! without decay are reported as well.
//!
//! The start of a training is random, and lists vary more with it than between trainers. Each
//! trainer is therefore run three times, and the mean is reported. Our trainer chooses its
//! regularization on a tenth of its training data; the library does not, so the same is done for
//! it.

mod peer;

use std::collections::HashMap;
use std::fmt;
use std::time::Instant;

use anyhow::ensure;
use celeris_datasets::{Dataset, Rating as NamedRating};
use celeris_model::{HalfLife, Learning, Loss, ModelError, Timestamp, UserId};
use celeris_retrain::{Rating, Ratings, RetrainError, Trained};
use celeris_retrieval::Matrix;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use self::peer::{Factors, Peer};
use super::{EvaluateSettings, Numbered, by_user};
use crate::lists::{Taken, mean, ndcg, recall, weights};
use crate::peers::trainers::PeerSettings;
use crate::progress::Part;

/// Length of a list.
const K: usize = 10;

/// Candidate half-lives, in seconds: none, thirty days, a day, an hour.
const HALF_LIVES: [Option<f64>; 4] = [None, Some(30.0 * 86_400.0), Some(86_400.0), Some(3_600.0)];

/// Number of trainings of each trainer, with consecutive seeds.
const TRAININGS: u64 = 3;

/// Candidate regularizations of the library: its default and the candidates of our trainer. The one
/// with the highest recall on a tenth of the pairs is chosen.
const PEER_REGULARIZATIONS: [f64; 6] = [0.01, 0.5, 2.0, 8.0, 32.0, 128.0];
const HELD_OUT_ONE_IN: usize = 10;

/// The default of the library.
const PEER_ITERATIONS: usize = 15;

/// The report of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankingReport {
    /// `"ranking"`.
    pub protocol: &'static str,
    /// The name of the data set.
    pub dataset: String,
    /// The length of feature and weight vectors, and the number of factors of the library.
    pub dim: usize,
    /// The seed of the trainers.
    pub seed: u64,
    /// Number of users whose last item is searched.
    pub users: usize,
    /// Number of training pairs.
    pub train_pairs: usize,
    /// Number of last items without training pairs, which no list can contain.
    pub unseen_items: usize,
    /// The served lists.
    pub ours: Lists,
    /// The chosen half-life of users' weights, in seconds; null for no decay.
    pub half_life_seconds: Option<f64>,
    /// The served lists without decay.
    pub ours_without_forgetting: Lists,
    /// The lists of the library `implicit`; null if it is not installed.
    pub implicit: Option<Lists>,
    /// The regularization chosen for the library.
    pub implicit_regularization: Option<f64>,
    /// Lists by popularity: the most taken items, without those of the user.
    pub popularity: Lists,
    /// The regularization chosen by the first training.
    pub regularization: f64,
    /// Time for tuning and training of the first training, in seconds.
    pub train_seconds: f64,
}

/// Quality of lists of ten, averaged over the trainings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lists {
    /// The share of lists that contain the item.
    pub recall_at_10: f64,
    /// The mean of `1 / log2(1 + rank)` of the item, or 0 if the list does not contain it.
    pub ndcg_at_10: f64,
    /// Standard errors of both figures over users.
    pub std_errors: [f64; 2],
}

impl Lists {
    /// Computes the quality of the lists for the users of `tested`, each with one item; for each
    /// training, one list per user.
    fn of(trainings: &[Vec<Vec<u32>>], tested: &[Rating]) -> Self {
        let of_users = |figure: fn(&[u32], &[u32], usize) -> f64| -> (f64, f64) {
            let of_user = |(user, rating): (usize, &Rating)| {
                let figures = trainings.iter().map(|lists| figure(&lists[user], &[rating.item], K));
                figures.sum::<f64>() / trainings.len() as f64
            };
            mean(&tested.iter().enumerate().map(of_user).collect::<Vec<f64>>())
        };
        let ((recall, recall_error), (ndcg, ndcg_error)) = (of_users(recall), of_users(ndcg));
        Self { recall_at_10: recall, ndcg_at_10: ndcg, std_errors: [recall_error, ndcg_error] }
    }
}

/// Runs the protocol.
///
/// # Errors
/// If no user has two ratings, or a trainer fails.
pub fn evaluate_ranking(dataset: &Dataset, settings: &EvaluateSettings) -> anyhow::Result<RankingReport> {
    let (mut known, last) = leave_last_out(&dataset.ratings);
    known.sort_by_key(|rating| rating.timestamp);
    ensure!(!last.is_empty(), "no user has two ratings, of which the last could be left out");
    let mut numbered = Numbered::default();
    let pairs = numbered.number(&known);
    let tested = numbered.number(&last);
    let seen = by_user(numbered.users.len(), &pairs);
    let ratings = Ratings::new(numbered.users.len(), numbered.items.len(), pairs.clone())?;
    let times = times(&known, &numbered);
    let counts = ratings.observed();
    let scene = Scene { taken: Taken { counts: &counts, by_user: &seen }, times: &times, tested: &tested };
    let half_life = chosen_half_life(&known, &numbered, settings)?;

    settings.stage("training", Some(TRAININGS as usize));
    let (mut ours, mut without_forgetting, mut first) = (Vec::new(), Vec::new(), None);
    for seed in (settings.seed..).take(TRAININGS as usize) {
        let started = Instant::now();
        let trained = trained(&numbered, &pairs, seed, settings, settings.part(ours.len(), TRAININGS as usize))?;
        first.get_or_insert((trained.metrics.regularization, started.elapsed().as_secs_f64()));
        ours.push(scene.of_version(&trained, half_life)?);
        without_forgetting.push(scene.of_version(&trained, None)?);
    }
    let (regularization, train_seconds) = first.expect("there is more than one training");
    let peer = of_peer(&known, &scene, &numbered, settings)?;
    Ok(RankingReport {
        protocol: "ranking",
        dataset: dataset.name.clone(),
        dim: settings.dim,
        seed: settings.seed,
        users: tested.len(),
        train_pairs: pairs.len(),
        unseen_items: tested.iter().filter(|rating| counts[rating.item as usize] == 0).count(),
        ours: Lists::of(&ours, &tested),
        half_life_seconds: half_life.map(HalfLife::seconds),
        ours_without_forgetting: Lists::of(&without_forgetting, &tested),
        implicit: peer.map(|(_, lists)| lists),
        implicit_regularization: peer.map(|(regularization, _)| regularization),
        popularity: Lists::of(&[scene.of_popularity()], &tested),
        regularization,
        train_seconds,
    })
}

/// Splits off the latest rating of each user who has at least two; of ratings with the same
/// timestamp, the last in the file is the latest.
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

fn trained(
    numbered: &Numbered,
    pairs: &[Rating],
    seed: u64,
    settings: &EvaluateSettings,
    part: Part,
) -> Result<Trained, RetrainError> {
    numbered.train(pairs, &EvaluateSettings { seed, loss: Loss::Implicit, ..*settings }, part)
}

/// The timestamps of the ratings, by user.
fn times(ratings: &[NamedRating], numbered: &Numbered) -> Vec<Vec<Timestamp>> {
    let mut times = vec![Vec::new(); numbered.users.len()];
    for rating in ratings {
        times[numbered.users[&rating.user] as usize].push(rating.timestamp);
    }
    times
}

/// The half-life with the highest NDCG for the last item of each user in `known`, under a version
/// trained on the rest.
fn chosen_half_life(
    known: &[NamedRating],
    numbered: &Numbered,
    settings: &EvaluateSettings,
) -> anyhow::Result<Option<HalfLife>> {
    let (earlier, last) = leave_last_out(known);
    let (pairs, tested) = (numbered.numbers(&earlier), numbered.numbers(&last));
    let ratings = Ratings::new(numbered.users.len(), numbered.items.len(), pairs.clone())?;
    let (seen, times) = (by_user(numbered.users.len(), &pairs), times(&earlier, numbered));
    let scene = Scene { taken: Taken { counts: &ratings.observed(), by_user: &seen }, times: &times, tested: &tested };
    let version = trained(numbered, &pairs, settings.seed, settings, settings.stage("choosing the half-life", None))?;
    let mut best = (f64::NEG_INFINITY, None);
    for seconds in HALF_LIVES {
        let half_life = seconds.map(HalfLife::from_seconds).transpose()?;
        let found = Lists::of(&[scene.of_version(&version, half_life)?], &tested).ndcg_at_10;
        if found > best.0 {
            best = (found, half_life);
        }
    }
    Ok(best.1)
}

/// The regularization and lists of the library; `None` if it is not installed.
fn of_peer(
    known: &[NamedRating],
    scene: &Scene,
    numbered: &Numbered,
    settings: &EvaluateSettings,
) -> anyhow::Result<Option<(f64, Lists)>> {
    let Some(peer) = Peer::find()? else { return Ok(None) };
    settings.stage("training the library implicit", None);
    let factors = |known: &[NamedRating], regularization, seed| {
        let peer_settings = PeerSettings { factors: settings.dim, iterations: PEER_ITERATIONS, regularization, seed };
        peer.train(known, peer_settings).map_err(|failure| anyhow::anyhow!("{failure:?}"))
    };
    let regularization = chosen_for_peer(known, numbered, settings, |known, regularization| {
        factors(known, regularization, settings.seed)
    })?;
    let mut trainings = Vec::new();
    for seed in (settings.seed..).take(TRAININGS as usize) {
        trainings.push(scene.of_factors(&factors(known, regularization, seed)?, numbered, settings.dim));
    }
    Ok(Some((regularization, Lists::of(&trainings, scene.tested))))
}

/// The regularization with the highest recall on a random tenth of `known`, with factors trained on
/// the rest.
fn chosen_for_peer(
    known: &[NamedRating],
    numbered: &Numbered,
    settings: &EvaluateSettings,
    factors: impl Fn(&[NamedRating], f64) -> anyhow::Result<Factors>,
) -> anyhow::Result<f64> {
    let mut rest = known.to_vec();
    rest.shuffle(&mut ChaCha8Rng::seed_from_u64(settings.seed));
    let tested = rest.split_off(rest.len() - rest.len() / HELD_OUT_ONE_IN);
    let users = numbered.users.len();
    let (known, tested) = (numbered.numbers(&rest), numbered.numbers(&tested));
    let counts = Ratings::new(users, numbered.items.len(), known.clone())?.observed();
    let taken = Taken { counts: &counts, by_user: &by_user(users, &known) };
    let scene = Scene { taken, times: &[], tested: &tested };
    let mut best = (f64::NEG_INFINITY, PEER_REGULARIZATIONS[0]);
    for regularization in PEER_REGULARIZATIONS {
        let lists = Lists::of(&[scene.of_factors(&factors(&rest, regularization)?, numbered, settings.dim)], &tested);
        if lists.recall_at_10 > best.0 {
            best = (lists.recall_at_10, regularization);
        }
    }
    Ok(best.1)
}

/// The ranking task: taken items and searched items.
struct Scene<'a> {
    /// Histories are the oldest first if `times` are given.
    taken: Taken<'a>,
    /// The timestamps of the histories; only needed for lists of a version.
    times: &'a [Vec<Timestamp>],
    /// The searched rating of each evaluated user.
    tested: &'a [Rating],
}

impl Scene<'_> {
    /// The lists by the user states under the version, with weights that decay by `half_life`.
    fn of_version(&self, trained: &Trained, half_life: Option<HalfLife>) -> Result<Vec<Vec<u32>>, ModelError> {
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
    fn of_factors(&self, factors: &Factors, numbered: &Numbered, length: usize) -> Vec<Vec<u32>> {
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

    /// The lists of the most taken items.
    fn of_popularity(&self) -> Vec<Vec<u32>> {
        self.taken.popular(self.tested.iter().map(|tested| tested.user), K)
    }
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
        let fades = self.half_life_seconds.map_or("never fades".to_owned(), |seconds| format!("half-life {seconds} s"));
        writeln!(out, "  ours          {}   ({fades})", self.ours)?;
        writeln!(out, "  never fading  {}", self.ours_without_forgetting)?;
        if let (Some(lists), Some(regularization)) = (&self.implicit, self.implicit_regularization) {
            writeln!(out, "  implicit      {lists}   (regularization {regularization})")?;
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
