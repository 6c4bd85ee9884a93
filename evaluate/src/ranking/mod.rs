//! `--protocol ranking`: finds the last item of every user among all items.
//!
//! Feedback is implicit: every rating means that the user took the item, with more confidence for
//! higher ratings. The version is trained on all but the last items; users learn from their earlier
//! items; and the twenty best items that they have not taken are searched as `recommend` does with
//! `greedy`. The baselines are EASE (`ease`), the library `implicit`, both trained on the same data,
//! and popularity.
//!
//! Users' weights decay with the half-life, of four candidates, whose lists rank each user's
//! second-to-last item best. It is a model setting that requires no training. The lists of weights
//! without decay are reported as well.
//!
//! The start of a training is random, and lists vary more with it than between trainers. Each
//! trainer is therefore run three times, and the mean is reported; EASE has no chance in it. Our
//! trainer chooses its regularization on a tenth of its training data; the same is done for EASE, and
//! for the library with its number of factors (`baselines`).

mod baselines;
mod ease;
mod peer;
mod report;
mod scene;

use std::collections::HashMap;
use std::time::Instant;

use anyhow::ensure;
use celeris_datasets::{Dataset, Rating as NamedRating};
use celeris_model::{HalfLife, Loss, Timestamp, UserId};
use celeris_retrain::{Rating, Ratings, RetrainError, Trained};

use self::baselines::Known;
pub use self::report::{Lists, RankingReport};
use self::scene::Scene;
use super::{EvaluateSettings, Numbered, by_user};
use crate::lists::Taken;
use crate::progress::Part;

/// Length of a list.
const K: usize = 20;

/// Candidate half-lives, in seconds: none, thirty days, a day, an hour.
const HALF_LIVES: [Option<f64>; 4] = [None, Some(30.0 * 86_400.0), Some(86_400.0), Some(3_600.0)];

/// Number of trainings of each trainer, with consecutive seeds.
const TRAININGS: u64 = 3;

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
    let baselines = Known { rows: &known, numbered: &numbered, settings };
    let (ease, peer) = (baselines.ease(&scene)?, baselines.implicit(&scene)?);
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
        implicit_factors: peer.map(|(setting, _)| setting.factors),
        implicit_regularization: peer.map(|(setting, _)| setting.regularization),
        ease: ease.map(|(_, lists)| lists),
        ease_lambda: ease.map(|(lambda, _)| lambda),
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

#[cfg(test)]
mod tests;
