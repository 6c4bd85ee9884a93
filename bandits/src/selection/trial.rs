//! Simulated queries to evaluate strategies: models of known accuracy, one of which fails and
//! recovers, and users for whom different models are best.

use std::collections::HashMap;
use std::ops::Range;

use celeris_model::{Estimate, LabelRange, Loss};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use crate::selection::blocks::HalfLifeRecords;
use crate::selection::loss::{LossScale, Objective};
use crate::selection::state::{Layout, Place, State};
use crate::selection::strategy::{Labels, Lot, Outcome, Selected, Strategy};

/// One query with its immediate feedback.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// Index of the user.
    pub user: usize,
    /// The label, from one to five stars.
    pub label: f32,
    /// Each model's prediction.
    pub predictions: Vec<f32>,
}

/// One to five stars.
const STARS: Range<f32> = 1.0..5.0;

fn query(rng: &mut ChaCha8Rng, user: usize, noises: impl Iterator<Item = f32>) -> Query {
    let label = rng.random_range(STARS);
    let mut expected =
        |noise: f32| (label + noise * rng.sample::<f32, _>(StandardNormal)).clamp(STARS.start, STARS.end);
    Query { user, label, predictions: noises.map(&mut expected).collect() }
}

/// Clipper's figure 8: five models, of which the best is severely degraded for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// Number of queries.
    pub queries: usize,
    /// The queries during which the best model is degraded.
    pub degraded: Range<usize>,
    /// Seed of all draws.
    pub seed: u64,
}

impl Failure {
    /// The standard deviation of each model's error, in stars; the last is the best.
    pub const NOISE: [f32; 5] = [1.3, 1.2, 1.1, 1.0, 0.4];

    /// The standard deviation of the best while it is degraded.
    pub const DEGRADED_NOISE: f32 = 4.0;

    /// As in the paper: 20,000 queries, degraded from the 5,000th and recovered after the 10,000th.
    #[must_use]
    pub fn of_the_paper(seed: u64) -> Self {
        Self { queries: 20_000, degraded: 5_000..10_000, seed }
    }

    #[must_use]
    pub fn queries(&self) -> Vec<Query> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let best = Self::NOISE.len() - 1;
        let noise = |at: usize, arm: usize| {
            let degraded = arm == best && self.degraded.contains(&at);
            if degraded { Self::DEGRADED_NOISE } else { Self::NOISE[arm] }
        };
        (0..self.queries).map(|at| query(&mut rng, 0, (0..=best).map(|arm| noise(at, arm)))).collect()
    }
}

/// Clipper's figure 10: users of several kinds, each served well by its own model.
#[derive(Debug, Clone, PartialEq)]
pub struct Dialects {
    /// Number of users, with kinds in turn.
    pub users: usize,
    /// Number of queries for each user.
    pub queries_each: usize,
    /// Number of kinds of users, and of models.
    pub kinds: usize,
    /// Seed of all draws.
    pub seed: u64,
}

impl Dialects {
    /// The queries, of users drawn uniformly.
    #[must_use]
    pub fn queries(&self) -> Vec<Query> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let ask = |_| {
            let user = rng.random_range(0..self.users);
            let own = user % self.kinds;
            query(&mut rng, user, (0..self.kinds).map(|arm| if arm == own { 0.4 } else { 1.2 }))
        };
        (0..self.users * self.queries_each).map(ask).collect()
    }
}

/// The set of users that share sums in a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// All users share one state.
    Together,
    /// One state for each user.
    ByUser,
}

/// A trial of a strategy, which measures the distance of its answers from the labels.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    pub strategy: &'a dyn Strategy,
    /// Half-life of its sums, if they fade.
    pub half_life: Option<HalfLifeRecords>,
    /// Which users share sums.
    pub kept: Kept,
    /// Seed of its draws.
    pub seed: u64,
}

/// The result of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// Distance of the answer from the label, in stars.
    pub error: f64,
    /// The probability or weight of every arm.
    pub weights: Vec<f64>,
    /// The share of the arms that agreed, if they answered together.
    pub confidence: Option<f32>,
}

impl Trial<'_> {
    /// Answers the queries one after another, each after learning from those before.
    #[must_use]
    pub fn run(&self, queries: &[Query]) -> Vec<Answered> {
        let arms = queries.first().map_or(0, |query| query.predictions.len());
        let layout = Layout { arms, groups: 1, lanes: 1, half_life: self.half_life };
        let mut states: HashMap<usize, State> = HashMap::new();
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut answer = |query: &Query| {
            let key = if self.kept == Kept::ByUser { query.user } else { 0 };
            self.answer(states.entry(key).or_insert_with(|| State::new(layout)), query, &mut rng)
        };
        queries.iter().map(&mut answer).collect()
    }

    fn answer(&self, state: &mut State, query: &Query, rng: &mut ChaCha8Rng) -> Answered {
        let range = LabelRange::new(STARS.start, STARS.end).expect("one is less than five");
        let scale = LossScale { objective: Objective::Error, range };
        let losses: Vec<Option<f64>> =
            query.predictions.iter().map(|predicted| scale.loss(Some(*predicted), query.label)).collect();
        let faded = state.faded(0);
        let weights = self.strategy.weights(&faded);
        let (answered, confidence, sums) = match self.strategy.select(&faded, Lot::drawn(rng, 0.0)) {
            Selected::One { arm, propensity } => {
                let loss = losses[arm].unwrap_or(1.0);
                (query.predictions[arm], None, self.strategy.observe(Outcome::Served { arm, propensity, loss }))
            }
            Selected::All(weights) => {
                let estimate = |score: &f32| Estimate { score: *score, std_error: 0.0, label_std: 0.0 };
                let estimates: Vec<Estimate> = query.predictions.iter().map(estimate).collect();
                let combined = self.strategy.combine(&weights, &estimates, Labels { loss: Loss::Squared, range });
                let sums = self.strategy.observe(Outcome::Every(&losses));
                (combined.estimate.score, Some(combined.confidence), sums)
            }
        };
        let position = state.clock(0) + 1;
        state.advance(&[position]);
        state.add(Place { lane: 0, position, group: 0 }, &sums);
        Answered { error: f64::from((answered - query.label).abs()), weights, confidence }
    }
}

/// The cumulative mean error of one model that answers alone.
#[must_use]
pub fn alone(queries: &[Query], arm: usize) -> Vec<f64> {
    cumulative_mean(queries.iter().map(|query| f64::from((query.predictions[arm] - query.label).abs())))
}

/// The mean of all errors up to each.
pub fn cumulative_mean(errors: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    (1_u32..)
        .zip(errors)
        .map(|(count, error)| {
            sum += error;
            sum / f64::from(count)
        })
        .collect()
}
