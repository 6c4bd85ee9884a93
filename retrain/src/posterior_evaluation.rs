//! Accuracy of the served posteriors on held-out ratings.

use celeris_model::{Estimate, Example, Learning, ModelError, Prior, Timestamp, UserModel};
use rayon::prelude::*;

use crate::learn::Learnt;
use crate::ratings::{Entry, Rating, Ratings, Rows};

/// Ratings per partial sum; fixed, so that sums do not depend on the number of threads.
const CHUNK_RATINGS: usize = 1 << 15;

/// Maximum number of evaluated users: two thousand are enough to tell settings apart.
const USERS_MAX: usize = 2048;

/// Sums over held-out ratings.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Errors {
    count: f64,
    weight: f64,
    /// Weighted squared errors of the scores, clipped to the range of the labels.
    squares: f64,
    /// Squared errors of the unclipped scores, each divided by its variance in units of the noise
    /// variance.
    relative_squares: f64,
}

impl Errors {
    pub(crate) fn rmse(&self) -> f64 {
        (self.squares / self.weight).sqrt()
    }

    /// The `sigma^2` under which the label intervals match the errors.
    pub(crate) fn noise_variance(&self) -> f64 {
        self.relative_squares / self.count
    }

    pub(crate) fn sum(all: &[Self]) -> Self {
        all.iter().fold(Self::default(), |sum, errors| sum.plus(*errors))
    }

    /// By how much the squared errors of these users are larger than in `others`, in sum and as standard error of the sum.
    pub(crate) fn excess(these: &[Self], others: &[Self]) -> (f64, f64) {
        let differences: Vec<f64> = these.iter().zip(others).map(|(one, other)| one.squares - other.squares).collect();
        let (sum, count) = (differences.iter().sum::<f64>(), differences.len() as f64);
        let spread: f64 = differences.iter().map(|difference| (difference - sum / count).powi(2)).sum();
        (sum, spread.sqrt())
    }

    /// Adds the prediction of `example`, whose score counts as limited to `range`.
    pub(crate) fn add(&mut self, learning: &Learning, estimate: &Estimate, example: &Example, range: (f32, f32)) {
        let variance = f64::from(estimate.std_error).powi(2) / learning.noise_variance();
        let cut = estimate.score.clamp(range.0, range.1);
        let weight = f64::from(example.weight);
        self.count += 1.0;
        self.weight += weight;
        self.squares += weight * f64::from(example.label - cut).powi(2);
        self.relative_squares += f64::from(example.label - estimate.score).powi(2) / (1.0 / weight + variance);
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            weight: self.weight + other.weight,
            squares: self.squares + other.squares,
            relative_squares: self.relative_squares + other.relative_squares,
        }
    }
}

/// The users who are evaluated: evenly spaced ones if there are more than [`USERS_MAX`].
pub(crate) fn evaluated<T>(users: Vec<T>) -> Vec<T> {
    let stride = users.len().div_ceil(USERS_MAX).max(1);
    users.into_iter().step_by(stride).collect()
}

/// Known ratings and held-out ratings.
pub(crate) struct HeldOut {
    label_range: (f32, f32),
    known: Rows,
    asked: Rows,
    users: Vec<usize>,
}

impl HeldOut {
    pub(crate) fn new(known: &Ratings, asked: &Ratings) -> Self {
        let rows = Rows::by_user(asked);
        let users: Vec<usize> = (0..asked.users()).filter(|user| !rows.row(*user).is_empty()).collect();
        Self { label_range: known.label_range(), known: Rows::by_user(known), asked: rows, users: evaluated(users) }
    }

    /// The errors of the posteriors under `prior` that have absorbed the known ratings.
    ///
    /// # Errors
    /// [`ModelError`] if a posterior cannot be computed.
    pub(crate) fn errors(&self, learnt: &Learnt, prior: &Prior) -> Result<Errors, ModelError> {
        Ok(Errors::sum(&self.errors_by_user(learnt, prior)?))
    }

    /// [`HeldOut::errors`] of each evaluated user, in the same order for every fit.
    ///
    /// # Errors
    /// As [`HeldOut::errors`].
    pub(crate) fn errors_by_user(&self, learnt: &Learnt, prior: &Prior) -> Result<Vec<Errors>, ModelError> {
        let learning = Learning::from(prior.clone());
        let pulls = learnt.pulls(prior);
        self.users.par_iter().map(|user| self.user_errors(*user, (learnt, &pulls), &learning)).collect()
    }

    fn user_errors(
        &self,
        user: usize,
        (learnt, pulls): (&Learnt, &[f32]),
        learning: &Learning,
    ) -> Result<Errors, ModelError> {
        let history: Vec<Example> = self.known.row(user).iter().map(|entry| learnt.example(entry, pulls)).collect();
        let model = UserModel::rebuild(learning, history.as_slice(), history.len() as u64)?;
        let mut errors = Errors::default();
        for entry in self.asked.row(user) {
            let example = learnt.example(entry, &[]);
            let estimate = learnt.estimate(&model, learning, entry);
            errors.add(learning, &estimate, &example, self.label_range);
        }
        Ok(errors)
    }
}

impl Learnt {
    /// The rating as an example; `pulls` are those of all items, or empty.
    pub(crate) fn example<'a>(&'a self, entry: &Entry, pulls: &'a [f32]) -> Example<'a> {
        let item = entry.other as usize;
        Example {
            features: &self.features[item * self.dim..][..self.dim],
            label: entry.label,
            offset: self.offsets[item],
            weight: entry.weight,
            timestamp: Timestamp::default(),
            taken_before: None,
            choice: pulls.get(item * self.dim..(item + 1) * self.dim).unwrap_or_default(),
        }
    }

    /// The estimate of a served user state for the item of `entry`, as a node gives it.
    pub(crate) fn estimate(&self, model: &UserModel, learning: &Learning, entry: &Entry) -> Estimate {
        let item = entry.other as usize;
        let estimate = model.estimate(learning, self.offsets[item], &self.features[item * self.dim..][..self.dim]);
        let variance = self.variances.get(item).copied().unwrap_or_default();
        learning.widened(estimate, f64::from(variance))
    }

    /// The weighted RMSE of the trainer's own weights, with scores clipped to `range`.
    pub(crate) fn own_rmse(&self, ratings: &[Rating], range: (f32, f32)) -> f64 {
        let sums: Vec<(f64, f64)> = ratings
            .par_chunks(CHUNK_RATINGS)
            .map(|ratings| {
                ratings.iter().fold((0.0, 0.0), |(squares, total), rating| {
                    let score = self.score(rating).clamp(f64::from(range.0), f64::from(range.1));
                    let (weight, error) = (f64::from(rating.weight), f64::from(rating.label) - score);
                    (squares + weight * error * error, total + weight)
                })
            })
            .collect();
        let (squares, total) = sums.iter().fold((0.0, 0.0), |sum, chunk| (sum.0 + chunk.0, sum.1 + chunk.1));
        (squares / total).sqrt()
    }
}
