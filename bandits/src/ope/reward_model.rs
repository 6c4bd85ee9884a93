//! The reward model: a ridge regression of rewards on features, fitted on the log itself.
//!
//! One regression for each position, since the same item earns less further down; and
//! *cross-fitted* (Chernozhukov et al. 2018): rounds are split into folds, and the prediction for a
//! round comes from the other folds, so that no round is predicted from its own reward.

use celeris_model::linear::cholesky;
use nalgebra::{Cholesky, DVector, Dyn};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::error::BanditError;

/// Ridge of the constant, which is otherwise not regularized, so that a position without rows in
/// some folds is solvable.
const CONSTANT_JITTER: f64 = 1e-9;

/// Features of shown items and of the target policy's choices; the regression adds the constant.
pub trait RewardFeatures {
    /// Number of features.
    fn dim(&self) -> usize;

    /// Writes the features of the item shown in slot `slot` into `shown`, and the mean of the
    /// features over the target policy's choices for the slot into `target`; both have length `dim`
    /// and are initially 0.
    ///
    /// The regression is linear, so its prediction for the mean features is the mean of its
    /// predictions.
    fn write(&self, slot: usize, shown: &mut [f64], target: &mut [f64]);
}

/// One slot as training data of the regression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RewardRow {
    /// Index of its round; all slots of a round are in one fold.
    pub round: usize,
    /// Its position, from 0; each position has its own regression.
    pub position: usize,
    pub reward: f64,
    /// The importance weight of the slots above it, by which estimators weight the model's term; 1
    /// for the first slot. Where a round stands for several, times their number; so is the next field.
    pub weight_above: f64,
    /// The weight by which SWITCH-DR corrects the model's prediction: the importance weight, or 0
    /// above the threshold ([`super::OpeSettings::kept`]).
    pub kept_weight: f64,
}

/// A cross-fitted model's output for one slot; see [`super::LoggedSlot`] for each field.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Expectation {
    /// Prediction for the shown item.
    pub expected: f64,
    /// Mean prediction for the target policy's choices.
    pub expected_target: f64,
    /// Derivative of the mean of `expected_target` by this slot's reward.
    pub leverage: f64,
    /// Derivative of that mean minus the kept weights' share of `expected`.
    pub leverage_switched: f64,
}

/// Settings of the reward model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RewardModel {
    /// Number of folds; at least 2.
    pub folds: usize,
    /// Penalty of the squared coefficients, without the constant's, relative to the squared errors;
    /// above 0.
    pub regularization: f64,
    /// Seed of the split into folds.
    pub seed: u64,
}

impl Default for RewardModel {
    /// Five folds; regularization as in scikit-learn's `Ridge`.
    fn default() -> Self {
        Self { folds: 5, regularization: 1.0, seed: 1 }
    }
}

impl RewardModel {
    /// Fits the regressions and returns their predictions for every row.
    ///
    /// Takes O(rows dim^2 + positions folds (folds dim^2 + dim^3)).
    ///
    /// The caller guarantees finite rewards and features.
    ///
    /// # Errors
    /// [`BanditError::OutOfRange`] for fewer than two folds, no regularization, or features so
    /// large that the normal equations cannot be solved.
    pub fn cross_fit(
        &self,
        rows: &[RewardRow],
        features: &impl RewardFeatures,
    ) -> Result<Vec<Expectation>, BanditError> {
        if self.folds < 2 {
            let value = self.folds as f64;
            return Err(BanditError::OutOfRange { parameter: "folds", range: "at least 2", value });
        }
        if !(self.regularization > 0.0 && self.regularization.is_finite()) {
            let value = self.regularization;
            return Err(BanditError::OutOfRange { parameter: "regularization", range: "above 0", value });
        }
        let folds = self.deal(rows);
        let positions = rows.iter().map(|row| row.position + 1).max().unwrap_or(0);
        let mut design = Design::new(features);
        let mut parts = vec![Part::new(features.dim() + 1); positions * self.folds];
        for (slot, row) in rows.iter().enumerate() {
            design.read(features, slot);
            parts[row.position * self.folds + folds[row.round]].add(row, &design);
        }
        let fitted = parts.chunks_exact(self.folds).map(|parts| self.fit(parts)).collect::<Result<Vec<_>, _>>()?;
        let expectation = |(slot, row): (usize, &RewardRow)| {
            design.read(features, slot);
            let (fits, fold) = (&fitted[row.position], folds[row.round]);
            let others = || fits.iter().enumerate().filter(|(other, _)| *other != fold);
            Expectation {
                expected: fits[fold].weights.dot(&design.shown),
                expected_target: fits[fold].weights.dot(&design.target),
                leverage: others().map(|(_, fit)| fit.pull.dot(&design.shown)).sum(),
                leverage_switched: others().map(|(_, fit)| fit.pull_switched.dot(&design.shown)).sum(),
            }
        };
        Ok(rows.iter().enumerate().map(expectation).collect())
    }

    /// The fold of every round: random, with sizes as equal as possible.
    fn deal(&self, rows: &[RewardRow]) -> Vec<usize> {
        let rounds = rows.iter().map(|row| row.round + 1).max().unwrap_or(0);
        let mut folds: Vec<usize> = (0..rounds).map(|round| round % self.folds).collect();
        folds.shuffle(&mut ChaCha8Rng::seed_from_u64(self.seed));
        folds
    }

    /// The regression of one position for every fold, each fitted on the other folds.
    fn fit(&self, parts: &[Part]) -> Result<Vec<Fit>, BanditError> {
        let dim = parts[0].moment.len();
        let fit = |(fold, part): (usize, &Part)| {
            // Summed for each fold separately: subtracting a fold from the total would leave
            // rounding errors.
            let mut others = Part::new(dim);
            parts.iter().enumerate().filter(|(other, _)| *other != fold).for_each(|(_, other)| others.combine(other));
            for index in 0..dim {
                others.gram[index * dim + index] += if index + 1 < dim { self.regularization } else { CONSTANT_JITTER };
            }
            let factor: Cholesky<f64, Dyn> = cholesky(&others.gram, dim).ok_or(BanditError::OutOfRange {
                parameter: "the features of the reward model",
                range: "of moderate size",
                value: others.gram.iter().copied().fold(0.0, f64::max),
            })?;
            let switched = &part.target - &part.kept;
            Ok(Fit {
                weights: factor.solve(&others.moment),
                pull: factor.solve(&part.target),
                pull_switched: factor.solve(&switched),
            })
        };
        parts.iter().enumerate().map(fit).collect()
    }
}

/// The regression that predicts one fold.
struct Fit {
    weights: DVector<f64>,
    /// `A^-1 sum target` over the fold: a row of the other folds changes the sum of the predictions
    /// for the fold's target choices by `pull . shown` for each unit of its residual.
    pull: DVector<f64>,
    /// The same for the part that the fold's kept weights do not correct.
    pull_switched: DVector<f64>,
}

/// The sums of one position and fold.
#[derive(Clone)]
struct Part {
    /// Row-major `dim x dim`: `sum x x^T`.
    gram: Vec<f64>,
    /// `sum x reward`.
    moment: DVector<f64>,
    /// The sum of the target features, weighted by the weight of the slots above.
    target: DVector<f64>,
    /// The sum of the shown items' features, weighted by the kept weight.
    kept: DVector<f64>,
}

impl Part {
    fn new(dim: usize) -> Self {
        let zeros = || DVector::zeros(dim);
        Self { gram: vec![0.0; dim * dim], moment: zeros(), target: zeros(), kept: zeros() }
    }

    fn add(&mut self, row: &RewardRow, design: &Design) {
        for (entries, scale) in self.gram.chunks_exact_mut(design.shown.len()).zip(design.shown.iter()) {
            // Most features are indicators and 0.
            if *scale != 0.0 {
                for (sum, entry) in entries.iter_mut().zip(design.shown.iter()) {
                    *sum += scale * entry;
                }
            }
        }
        self.moment.axpy(row.reward, &design.shown, 1.0);
        self.target.axpy(row.weight_above, &design.target, 1.0);
        self.kept.axpy(row.kept_weight, &design.shown, 1.0);
    }

    /// Adds the sums that the regression needs.
    fn combine(&mut self, other: &Self) {
        for (sum, entry) in self.gram.iter_mut().zip(&other.gram) {
            *sum += entry;
        }
        self.moment += &other.moment;
    }
}

/// The features of one slot, with the constant last.
struct Design {
    shown: DVector<f64>,
    target: DVector<f64>,
}

impl Design {
    fn new(features: &impl RewardFeatures) -> Self {
        let one = || DVector::from_fn(features.dim() + 1, |index, _| if index == features.dim() { 1.0 } else { 0.0 });
        Self { shown: one(), target: one() }
    }

    fn read(&mut self, features: &impl RewardFeatures, slot: usize) {
        let dim = features.dim();
        let (shown, target) = (&mut self.shown.as_mut_slice()[..dim], &mut self.target.as_mut_slice()[..dim]);
        shown.fill(0.0);
        target.fill(0.0);
        features.write(slot, shown, target);
    }
}
