//! The canonical form of a user's state: the observation counts at which the state is solved from
//! scratch, and the solve itself.
//!
//! A state at `n` observations is the batched solve over the first `checkpoint(n)` of them, then
//! one rank-one step for each later one. Live, rebuilt and replayed states use the same
//! checkpoints, so they are equal bit for bit, and rounding never accumulates over more than half
//! of a history or [`CHECKPOINT_EVERY`] steps.
//!
//! With a half-life, every observation is a checkpoint. Under logistic loss the solve is Laplace's
//! approximation: one over the whole history up to [`CHECKPOINT_EVERY`] observations, then one for
//! each further block of this size with the approximation of the previous block as its prior.

use std::cell::Cell;

use super::choices::Choices;
use super::learning::{HalfLife, Learning, Likelihood, Loss};
use super::prior::Prior;
use super::recent_bias::RecentLabels;
use super::user_model::{Example, History};
use crate::error::ModelError;
use crate::linear::{inverse_of_squares, norm_inf};
use crate::time::Timestamp;
use celeris_kernel as kernel;

mod newton;

/// Interval between re-solves from this count on; below it, states are re-solved at every power of
/// two.
pub const CHECKPOINT_EVERY: u64 = 4096;

/// Whether the state is solved from scratch when it reaches `observations`.
#[must_use]
pub fn is_checkpoint(observations: u64) -> bool {
    observations.is_power_of_two() && observations <= CHECKPOINT_EVERY
        || observations > 0 && observations.is_multiple_of(CHECKPOINT_EVERY)
}

/// The last checkpoint at or before `observations`; 0 is the prior itself.
#[must_use]
pub fn last_checkpoint(observations: u64) -> u64 {
    if observations >= CHECKPOINT_EVERY {
        observations - observations % CHECKPOINT_EVERY
    } else {
        // The largest power of two that is not above a positive count.
        observations.checked_ilog2().map_or(0, |exponent| 1 << exponent)
    }
}

/// Examples added to the sums per batch; at the usual dimensions a batch fits the L1 cache.
const ROWS_AT_A_TIME: usize = 32;

/// Occurs only if the sums have overflowed.
const NOT_DEFINITE: ModelError = ModelError::NotPositiveDefinite { what: "the user's Gram matrix" };

/// Sums over a history in `f64`, in sequence order: the Gaussian that equals or approximates its
/// likelihood. Under squared and implicit loss these are the sufficient statistics; under logistic
/// loss Laplace's approximation, block by block.
///
/// With `delta = w - w0`, the log-likelihood is `moment·delta - delta^T gram delta / 2`.
///
/// Serialised, it is the snapshot with which a long history need not be read again:
/// [`crate::UserModel::resume`].
#[derive(Debug, Clone, PartialEq)]
pub struct GramSums {
    /// Lower triangle, row by row: `sum curvature x x^T`, where the curvature under squared loss is
    /// the weight.
    gram: Vec<f64>,
    /// `sum curvature x (target - x·w0)`.
    moment: Vec<f64>,
    /// The sum over the choice vectors, if any example had one.
    choices: Option<Choices>,
    /// The sums over the recent labels, if users have a recent bias.
    recent: Option<RecentLabels>,
    /// Number of observations in the sums.
    observations: u64,
    /// Timestamp of the latest observation, to which the sums have decayed. Set only with a
    /// half-life.
    latest: Option<Timestamp>,
}

/// A batched solution in double precision, with bounds of its condition.
pub(crate) struct Solution {
    pub(crate) weights: Vec<f64>,
    /// Row-major, exactly symmetric.
    pub(crate) gram_inverse: Vec<f64>,
    /// Upper bound of the largest eigenvalue of `A`.
    pub(crate) gram_norm: f64,
    /// Upper bound of the largest eigenvalue of `A^-1`.
    pub(crate) inverse_norm: f64,
}

impl GramSums {
    /// Number of observations in the sums: a prefix of the history.
    #[must_use]
    pub fn observations(&self) -> u64 {
        self.observations
    }

    /// Length of the features.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.moment.len()
    }

    /// Serialises the sums as little-endian 8-byte words: `dim`, observations, 1 or 0 for whether
    /// there is a latest time, that time in Unix milliseconds or 0, `dim` entries of the moment,
    /// `dim (dim + 1) / 2` of the Gram matrix; if there are choices, their number and the `dim` entries of their sum; and if
    /// users have a recent bias, the sum of the recent weights, that of the targets, and the `dim` sums of the features.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let latest = self.latest.map_or(0, |time| time.0.cast_unsigned());
        let head = [self.dim() as u64, self.observations, u64::from(self.latest.is_some()), latest];
        let choices = self.choices.iter().flat_map(Choices::numbers);
        let recent = self.recent.iter().flat_map(RecentLabels::numbers);
        let sums = self.moment.iter().chain(&self.gram).copied().chain(choices).chain(recent).map(f64::to_bits);
        head.into_iter().chain(sums).flat_map(u64::to_le_bytes).collect()
    }

    /// Parses the output of [`GramSums::to_bytes`]; `None` for malformed bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let (dim, observations, forgets, latest) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let sums: Vec<f64> = words.map(f64::from_bits).collect();
        let dim = usize::try_from(dim).ok().filter(|dim| *dim <= sums.len())?;
        let gram_end = dim + dim * (dim + 1) / 2;
        let added = sums.len().checked_sub(gram_end)?;
        // The lengths with choices, with recent labels, with both and without differ.
        let (choices, recent) = (dim + 1, dim + 2);
        let has_choices = added == choices || added == choices + recent;
        let choices_end = gram_end + if has_choices { choices } else { 0 };
        let whole = rest.is_empty() && forgets <= 1 && [choices_end, choices_end + recent].contains(&sums.len());
        let latest = (forgets == 1).then_some(Timestamp(latest.cast_signed()));
        whole.then(|| Self {
            moment: sums[..dim].to_vec(),
            gram: sums[dim..gram_end].to_vec(),
            choices: Choices::from_numbers(&sums[gram_end..choices_end]),
            recent: RecentLabels::from_numbers(&sums[choices_end..]),
            observations,
            latest,
        })
    }

    /// Size on the heap and inline.
    pub(crate) fn bytes(&self) -> usize {
        let choices = self.choices.as_ref().map_or(0, Choices::bytes);
        let recent = self.recent.as_ref().map_or(0, RecentLabels::bytes);
        size_of::<Self>() + size_of::<f64>() * (self.gram.capacity() + self.moment.capacity()) + choices + recent
    }

    /// Sums over no observations, for features of length `dim`.
    #[must_use]
    pub fn empty(dim: usize) -> Self {
        let (gram, moment) = (vec![0.0; dim * (dim + 1) / 2], vec![0.0; dim]);
        Self { gram, moment, choices: None, recent: None, observations: 0, latest: None }
    }

    /// The sum over the choice vectors, if any example had one.
    pub(crate) fn choices(&self) -> Option<&Choices> {
        self.choices.as_ref()
    }

    /// The sums over the recent labels, if users have a recent bias.
    pub(crate) fn recent(&self) -> Option<&RecentLabels> {
        self.recent.as_ref()
    }

    /// Adds the examples from the first one not yet in the sums up to, not including, `end`.
    ///
    /// Under logistic loss the examples of a block are approximated together, around the mode of
    /// the posterior given the prior, the sums and the block (Laplace's method). A block ends at
    /// every multiple of [`CHECKPOINT_EVERY`], so that the history before it need not be read
    /// again, and at `end`. With a half-life, every example is its own block, so that it decays
    /// with the sums.
    ///
    /// # Errors
    /// As [`GramSums::solve`].
    pub(crate) fn extend(
        &mut self,
        learning: &Learning,
        history: &(impl History + ?Sized),
        end: u64,
    ) -> Result<(), ModelError> {
        self.extend_with(learning, history, end, |_, _| ())
    }

    /// [`GramSums::extend`], calling `entered` for every block added, with the point `w - w0`
    /// around which its examples were approximated.
    ///
    /// # Errors
    /// As [`GramSums::solve`].
    pub(crate) fn extend_with<H: History + ?Sized>(
        &mut self,
        learning: &Learning,
        history: &H,
        end: u64,
        mut entered: impl FnMut(&Block<'_, H>, &[f64]),
    ) -> Result<(), ModelError> {
        while self.observations < end {
            let next = match (learning.loss(), learning.half_life()) {
                (_, Some(_)) => self.observations + 1,
                (Loss::Logistic, None) => end.min((self.observations / CHECKPOINT_EVERY + 1) * CHECKPOINT_EVERY),
                (Loss::Squared | Loss::Implicit, None) => end,
            };
            let retained = match learning.half_life() {
                Some(half_life) => self.fade(half_life, history.example(self.observations).timestamp),
                None => 1.0,
            };
            let block = Block { learning, history, start: self.observations, end: next, retained };
            let point = match learning.loss() {
                Loss::Squared | Loss::Implicit => {
                    // The curvature is constant, so any point gives the same result.
                    let origin = vec![0.0; learning.dim()];
                    block.add_around(&origin, self);
                    origin
                }
                Loss::Logistic => newton::add_around_mode(&block, self)?,
            };
            entered(&block, &point);
            for index in self.observations..next {
                let example = history.example(index);
                Choices::add_to(&mut self.choices, learning.choice(&example), retained);
                RecentLabels::add_to(&mut self.recent, learning, &example);
            }
            self.observations = next;
        }
        Ok(())
    }

    /// Decays the sums to `time`. Returns the remaining share of weight of an observation that is
    /// older than the sums.
    fn fade(&mut self, half_life: HalfLife, time: Timestamp) -> f64 {
        let latest = self.latest.unwrap_or(time);
        self.latest = Some(latest.max(time));
        let retained = half_life.retained(latest, time);
        if retained < 1.0 {
            self.gram.iter_mut().chain(&mut self.moment).for_each(|sum| *sum *= retained);
            self.choices.iter_mut().for_each(|choices| choices.fade(retained));
        }
        half_life.retained(time, latest)
    }

    /// `A = Lambda + gram`, row-major.
    fn precision(&self, prior: &Prior) -> Vec<f64> {
        let dim = prior.dim();
        let mut a = prior.precision().to_vec();
        let mut sums = self.gram.iter();
        for i in 0..dim {
            for (j, sum) in sums.by_ref().take(i + 1).enumerate() {
                a[i * dim + j] += sum;
                a[j * dim + i] = a[i * dim + j];
            }
        }
        a
    }

    /// `A = Lambda + gram`, `w = w0 + A^-1 moment`. Where weights and features are so large that
    /// the prior is lost to rounding, the diagonal is raised, see
    /// [`crate::linear::cholesky_of_squares`].
    ///
    /// # Errors
    /// `NotPositiveDefinite` if the sums have overflowed; finite labels and features within their
    /// bounds cannot cause that.
    pub(crate) fn solve(&self, prior: &Prior) -> Result<Solution, ModelError> {
        let dim = prior.dim();
        let gram_norm = Cell::new(0.0);
        let gram_inverse = inverse_of_squares(dim, || {
            let a = self.precision(prior);
            gram_norm.set(norm_inf(&a, dim));
            a
        });
        let gram_inverse = gram_inverse.ok_or(NOT_DEFINITE)?;
        let mut weights = prior.mean().to_vec();
        // A sum of rows, valid because the matrix is symmetric; it vectorises without reordering
        // additions.
        for (row, moment) in gram_inverse.chunks_exact(dim).zip(&self.moment) {
            for (weight, entry) in weights.iter_mut().zip(row) {
                *weight += entry * moment;
            }
        }
        if !weights.iter().all(|weight| weight.is_finite()) {
            return Err(NOT_DEFINITE);
        }
        let inverse_norm = norm_inf(&gram_inverse, dim);
        Ok(Solution { weights, gram_inverse, gram_norm: gram_norm.get(), inverse_norm })
    }
}

/// Examples added to the sums together.
pub(crate) struct Block<'a, H: ?Sized> {
    learning: &'a Learning,
    history: &'a H,
    start: u64,
    end: u64,
    /// Remaining share of their weights.
    retained: f64,
}

/// The second-order approximation of one example's log-likelihood around a point, weight included.
struct Expansion {
    /// Coefficient of `-(x·delta)^2 / 2`.
    curvature: f64,
    /// The example's addition to the moment, as a multiple of its features.
    residual: f64,
    /// Value at the point.
    value: f64,
}

impl<H: History + ?Sized> Block<'_, H> {
    /// Each example's addition to the moment, approximated around `w0 + delta`, as a multiple of
    /// its features.
    pub(crate) fn residuals<'b>(&'b self, delta: &'b [f64]) -> impl Iterator<Item = f64> + 'b {
        let residual =
            |index| self.expansion(&self.history.example(index), delta).map_or(0.0, |expansion| expansion.residual);
        (self.start..self.end).map(residual)
    }

    /// `None` for an example of weight 0.
    fn expansion(&self, example: &Example<'_>, delta: &[f64]) -> Option<Expansion> {
        let target = self.learning.weighted_target(example);
        let weight = target.weight * self.retained;
        if weight <= 0.0 {
            return None;
        }
        let shift = match target.likelihood {
            // The approximation is the same around every point.
            Likelihood::Gaussian => 0.0,
            Likelihood::Bernoulli { .. } => kernel::dot_double(delta, example.features),
        };
        let local = target.local(kernel::dot_double(self.learning.prior().mean(), example.features) + shift);
        let curvature = weight * local.curvature;
        Some(Expansion { curvature, residual: weight * local.slope + curvature * shift, value: weight * local.value })
    }

    /// Adds to `sums` the second-order approximation of every example's log-likelihood around `w0 +
    /// delta`; returns the log-likelihood there.
    fn add_around(&self, delta: &[f64], sums: &mut GramSums) -> f64 {
        let dim = self.learning.dim();
        let stride = kernel::padded(dim);
        let mut value = 0.0;
        let mut rows = Vec::with_capacity(ROWS_AT_A_TIME * stride);
        let mut curvatures = Vec::with_capacity(ROWS_AT_A_TIME);
        for index in self.start..self.end {
            let example = self.history.example(index);
            debug_assert_eq!(example.features.len(), dim);
            let Some(Expansion { curvature, residual, value: here }) = self.expansion(&example, delta) else {
                continue;
            };
            if curvatures.len() == ROWS_AT_A_TIME {
                kernel::add_outers(&mut sums.gram, &rows, &curvatures, dim);
                rows.clear();
                curvatures.clear();
            }
            rows.extend(example.features.iter().map(|x| f64::from(*x)));
            for (sum, x) in sums.moment.iter_mut().zip(&rows[curvatures.len() * stride..]) {
                *sum += residual * x;
            }
            curvatures.push(curvature);
            rows.resize(curvatures.len() * stride, 0.0);
            value += here;
        }
        kernel::add_outers(&mut sums.gram, &rows, &curvatures, dim);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_powers_of_two_then_every_4096() {
        let points: Vec<u64> = (0..=12_300).filter(|n| is_checkpoint(*n)).collect();
        assert_eq!(points, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 12_288]);
        for n in 0..=12_300 {
            assert_eq!(last_checkpoint(n), points.iter().copied().filter(|p| *p <= n).max().unwrap_or(0), "at {n}");
        }
    }
}
