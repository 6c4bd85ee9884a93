//! One user's weights: a Gaussian posterior updated by every observation.

use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::canonical::{CHECKPOINT_EVERY, GramSums, is_checkpoint, last_checkpoint};
use super::choices::{Choices, Pull};
use super::learning::{Learning, WeightedTarget};
use super::rank_one::State;
use super::recent_bias::{RecentBias, RecentLabels};
use crate::error::ModelError;
use crate::linear::{Real, dot, quadratic};
use crate::sampler::Sampler;
use crate::time::Timestamp;
use celeris_kernel as kernel;

/// The largest bound of the condition of `A` at which a state is held in `f32`; beyond it, in
/// `f64`.
///
/// The guarantee is a relative 2-norm error of the weights below 1e-4 up to this condition.
/// Measured, states after full blocks of `f32` steps stay within 3e-6 of the dense solution even
/// well beyond it (`tests/model/ridge_oracle.rs`).
pub const SINGLE_PRECISION_CONDITION_MAX: f64 = 1e5;

/// Maximum number of state entries to prefetch: as many as fit half of the L1 cache.
const PREFETCHED_MAX: usize = 4096;

/// One labelled example for the learner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Example<'a> {
    /// Length `dim`, the last entry 1.
    pub features: &'a [f32],
    pub label: f32,
    /// The item's offset, not explained by the user's weights.
    pub offset: f32,
    /// Multiplicity of the example; above zero.
    pub weight: f32,
    /// Time of the event, for models with a half-life.
    pub timestamp: Timestamp,
    /// When the user had last taken the item by an earlier observation of the history, for implicit
    /// loss: see [`crate::preference::Takings`]. `None` for the first one, and under other losses.
    pub taken_before: Option<Timestamp>,
    /// `Lambda y` for the item's choice vector `y` (`choices.rs`), length `dim`; empty for an item without.
    pub choice: &'a [f32],
}

/// A user's observations in sequence order, resolved against one version's features.
pub trait History {
    /// The example at `index`, counted from 0.
    fn example(&self, index: u64) -> Example<'_>;
}

impl History for [Example<'_>] {
    fn example(&self, index: u64) -> Example<'_> {
        self[usize::try_from(index).expect("an index into memory")]
    }
}

/// A score with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// `offset + w·f`: the expected label; under logistic loss its log-odds, see
    /// [`crate::Loss::probability`].
    pub score: f32,
    /// `sqrt(sigma^2 f^T A^-1 f)`: the standard error of the score. Under logistic loss `sigma^2`
    /// is 1.
    pub std_error: f32,
    /// `sqrt(sigma^2 + std_error^2)`: the standard deviation of a label around the score; under
    /// logistic loss `sqrt(p (1 - p))` for the probability `p`.
    pub label_std: f32,
}

/// The state in the precision that its conditioning requires.
#[derive(Debug, Clone, PartialEq)]
enum Posterior {
    Single(State<f32>),
    Double(State<f64>),
}

impl Posterior {
    fn weights(&self) -> Vec<f64> {
        match self {
            Self::Single(state) => state.weights.iter().map(|weight| f64::from(*weight)).collect(),
            Self::Double(state) => state.weights.clone(),
        }
    }

    /// [`State::shift`] by `pull` and the bias of `recent`.
    fn shift(&mut self, pull: Pull, recent: Option<(&RecentLabels, RecentBias)>) {
        fn bias<T: Real>(recent: Option<(&RecentLabels, RecentBias)>, weights: &[T]) -> f64 {
            recent.map_or(0.0, |(recent, rule)| recent.bias(rule, weights))
        }
        match self {
            Self::Single(state) => state.shift(pull, |weights| bias(recent, weights)),
            Self::Double(state) => state.shift(pull, |weights| bias(recent, weights)),
        }
    }
}

/// The state of one user under one version: the Gaussian posterior `A = Lambda + sum weight x x^T`,
/// `w = w0 + A^-1 sum weight x (y - offset - x·w0)` of an online ridge regression, or its
/// counterpart under another [`crate::Loss`]: weights and labels as the loss defines them, and for
/// clicks Laplace's approximation.
///
/// It is a pure function of the learning rule and the examples, in their order: equal inputs give
/// equal bits on one instruction set, whether a state is live, rebuilt or resumed (see
/// [`crate::canonical`]).
#[derive(Debug, Clone, PartialEq)]
pub struct UserModel {
    posterior: Posterior,
    observations: u64,
    /// Upper bound of the largest eigenvalue of `A`, increased by every example.
    gram_norm: f64,
    /// Upper bound of the largest eigenvalue of `A^-1` at the last solve; examples only decrease
    /// it.
    inverse_norm: f64,
    /// The sums at the last checkpoint, kept so that the next one need not read the whole history
    /// again: from [`CHECKPOINT_EVERY`] observations on, and always with a half-life.
    sums: Option<Box<GramSums>>,
    /// The sum over the choice vectors of all observations, if any had one.
    choices: Option<Choices>,
    /// The sums over the recent labels, if users have a recent bias.
    recent: Option<RecentLabels>,
    /// `Lambda q` of the user's profile, length `dim`; see [`UserModel::with_profile`].
    profile: Option<Arc<[f32]>>,
}

impl UserModel {
    /// The state of a user without observations.
    ///
    /// # Errors
    /// `NotPositiveDefinite` cannot happen for a [`crate::Prior`] that was checked on construction.
    pub fn from_prior(learning: &Learning) -> Result<Self, ModelError> {
        Self::solved(learning, GramSums::empty(learning.dim()))
    }

    /// The state after the first `observations` examples of `history`.
    ///
    /// # Errors
    /// As [`UserModel::absorb`].
    pub fn rebuild<H: History + ?Sized>(
        learning: &Learning,
        history: &H,
        observations: u64,
    ) -> Result<Self, ModelError> {
        Self::resume(learning, GramSums::empty(learning.dim()), history, observations)
    }

    /// [`UserModel::rebuild`] starting from the sums of a state with the same rule and history
    /// ([`UserModel::sums`]), to the same bits. Reads `history` from their end on.
    ///
    /// # Errors
    /// As [`UserModel::absorb`], and `DimMismatch` also for sums of another length.
    pub fn resume<H: History + ?Sized>(
        learning: &Learning,
        mut sums: GramSums,
        history: &H,
        observations: u64,
    ) -> Result<Self, ModelError> {
        if sums.dim() != learning.dim() {
            return Err(ModelError::DimMismatch { what: "sums", expected: learning.dim(), received: sums.dim() });
        }
        let solved = if learning.half_life().is_some() { observations } else { last_checkpoint(observations) };
        debug_assert!(sums.observations() <= solved, "sums end at a checkpoint of their own history");
        for index in sums.observations()..solved {
            check(learning, &history.example(index))?;
        }
        sums.extend(learning, history, solved)?;
        let mut model = Self::solved(learning, sums)?;
        while model.observations < observations {
            model.absorb(learning, history)?;
        }
        Ok(model)
    }

    pub(crate) fn solved(learning: &Learning, sums: GramSums) -> Result<Self, ModelError> {
        let solution = sums.solve(learning.prior())?;
        let single = solution.gram_norm * solution.inverse_norm <= SINGLE_PRECISION_CONDITION_MAX;
        let posterior = if single {
            Posterior::Single(State::round(&solution.weights, &solution.gram_inverse))
        } else {
            Posterior::Double(State::round(&solution.weights, &solution.gram_inverse))
        };
        let (choices, recent) = (sums.choices().cloned(), sums.recent().cloned());
        let observations = sums.observations();
        let keeps_sums = observations >= CHECKPOINT_EVERY || learning.half_life().is_some();
        let mut model = Self {
            posterior,
            observations,
            gram_norm: solution.gram_norm,
            inverse_norm: solution.inverse_norm,
            sums: keeps_sums.then(|| Box::new(sums)),
            choices,
            recent,
            profile: None,
        };
        model.shift(learning);
        Ok(model)
    }

    /// The state of a user whose prior mean is moved by `q`, whatever the observations: `pull` is `Lambda q`, length `dim`,
    /// in place of an earlier one. The covariance stays as it is. The result has the same bits whether the profile was
    /// known from the first observation on or is given last.
    ///
    /// The weights are those under the prior mean `w0`, shifted by `A^-1 pull`, which is exact where the posterior is linear
    /// in the labels: under squared loss.
    #[must_use]
    pub fn with_profile(mut self, learning: &Learning, pull: Option<Arc<[f32]>>) -> Self {
        debug_assert!(pull.as_ref().is_none_or(|pull| pull.len() == self.dim()));
        if self.profile.is_none() && pull.is_none() {
            return self;
        }
        self.profile = pull;
        match &mut self.posterior {
            Posterior::Single(state) => state.unshift(),
            Posterior::Double(state) => state.unshift(),
        }
        self.shift(learning);
        self
    }

    /// `Lambda q` of the user's profile, if there is one.
    pub(crate) fn profile(&self) -> Option<&[f32]> {
        self.profile.as_deref()
    }

    /// The factor of a choice vector in the shift of the prior mean; `None` without choices.
    pub(crate) fn choice_scale(&self) -> Option<f64> {
        self.choices.as_ref().map(Choices::scale)
    }

    /// Shifts the weights by choices, profile and recent bias, if there are any.
    fn shift(&mut self, learning: &Learning) {
        let pull = Pull { choices: self.choices.as_ref(), profile: self.profile.as_deref() };
        let recent = self.recent.as_ref().zip(learning.recent_bias());
        if !pull.is_none() || recent.is_some() {
            self.posterior.shift(pull, recent);
        }
    }

    /// What each example, in the order of `history`, adds to the recent bias; empty if users have none.
    pub(crate) fn bias_shares<H: History + ?Sized>(&self, learning: &Learning, history: &H) -> Vec<f64> {
        let Some((recent, rule)) = self.recent.as_ref().zip(learning.recent_bias()) else { return Vec::new() };
        recent.shares((learning, rule), history, self.observations, &self.weights_without_bias())
    }

    /// The weights to whose last one the recent bias is added.
    fn weights_without_bias(&self) -> Vec<f64> {
        let pull = Pull { choices: self.choices.as_ref(), profile: self.profile.as_deref() };
        let mut posterior = self.posterior.clone();
        posterior.shift(pull, None);
        posterior.weights()
    }

    /// Absorbs the next example of `history`, the one at index [`UserModel::observations`]: by the
    /// Sherman-Morrison identity in O(dim^2), or at a checkpoint by the batched solve in O(dim^3).
    ///
    /// Reads `history` from [`UserModel::reads_from`] on. The learning rule must be the one of the
    /// previous examples.
    ///
    /// # Errors
    /// `DimMismatch` or `NonFinite`; the state is unchanged on error.
    pub fn absorb<H: History + ?Sized>(&mut self, learning: &Learning, history: &H) -> Result<(), ModelError> {
        let example = history.example(self.observations);
        let square_max = check(learning, &example)?;
        let next = self.observations + 1;
        if learning.half_life().is_some() || is_checkpoint(next) {
            let solved = Self::solved(learning, self.sums_through(learning, history, next)?)?;
            *self = solved.with_profile(learning, self.profile.take());
            return Ok(());
        }
        let target = learning.weighted_target(&example);
        let gram_norm = self.gram_norm_with(&target, square_max);
        if self.outgrows_single_precision(gram_norm) {
            // The bound was crossed between two checkpoints: solve the prefix again and go on in
            // double precision.
            let solution = self.sums_through(learning, history, self.observations)?.solve(learning.prior())?;
            self.posterior = Posterior::Double(State::round(&solution.weights, &solution.gram_inverse));
        }
        if target.weight > 0.0 {
            match &mut self.posterior {
                Posterior::Single(state) => state.absorb(example.features, &target),
                Posterior::Double(state) => state.absorb(example.features, &target),
            }
        }
        Choices::add_to(&mut self.choices, learning.choice(&example), 1.0);
        RecentLabels::add_to(&mut self.recent, learning, &example);
        self.shift(learning);
        self.gram_norm = gram_norm;
        self.observations = next;
        Ok(())
    }

    /// Whether absorbing `example` next solves the state from scratch, in O(dim^3).
    fn solve_is_due(&self, learning: &Learning, example: &Example) -> bool {
        let gram_norm =
            || self.gram_norm_with(&learning.weighted_target(example), squared_length_max(example.features));
        learning.half_life().is_some()
            || is_checkpoint(self.observations + 1)
            || self.outgrows_single_precision(gram_norm())
    }

    /// The first index of the history that [`UserModel::absorb`] reads when it absorbs `example`
    /// next: that of the example itself, or, if a solve is due, that of the first
    /// example not in the sums.
    #[must_use]
    pub fn reads_from(&self, learning: &Learning, example: &Example) -> u64 {
        if self.solve_is_due(learning, example) { self.history_from() } else { self.observations }
    }

    /// The first index of the history that the next solve reads: the number of examples in the sums
    /// of the last checkpoint, or 0.
    #[must_use]
    pub fn history_from(&self) -> u64 {
        self.sums.as_ref().map_or(0, |sums| sums.observations())
    }

    /// The sums at the last checkpoint, if the state keeps them: from [`CHECKPOINT_EVERY`]
    /// observations on, and always with a half-life.
    #[must_use]
    pub fn sums(&self) -> Option<&GramSums> {
        self.sums.as_deref()
    }

    /// Prefetches the state into the cache for an imminent [`UserModel::absorb`]. Has no other
    /// effect.
    pub fn prefetch(&self) {
        if let Posterior::Single(state) = &self.posterior {
            kernel::prefetch(&state.earlier[..state.earlier.len().min(PREFETCHED_MAX)]);
        }
    }

    /// `gram_norm` after an example whose features have at most this squared length.
    fn gram_norm_with(&self, target: &WeightedTarget, square_max: f64) -> f64 {
        self.gram_norm + target.curvature_max() * square_max
    }

    fn outgrows_single_precision(&self, gram_norm: f64) -> bool {
        matches!(self.posterior, Posterior::Single(_)) && gram_norm * self.inverse_norm > SINGLE_PRECISION_CONDITION_MAX
    }

    fn sums_through<H: History + ?Sized>(
        &self,
        learning: &Learning,
        history: &H,
        end: u64,
    ) -> Result<GramSums, ModelError> {
        let mut sums = self.sums.as_deref().cloned().unwrap_or_else(|| GramSums::empty(learning.dim()));
        sums.extend(learning, history, end)?;
        Ok(sums)
    }

    /// Number of absorbed examples.
    #[must_use]
    pub fn observations(&self) -> u64 {
        self.observations
    }

    /// The length of weights and features.
    #[must_use]
    pub fn dim(&self) -> usize {
        match &self.posterior {
            Posterior::Single(state) => state.weights.len(),
            Posterior::Double(state) => state.weights.len(),
        }
    }

    #[must_use]
    pub fn is_double(&self) -> bool {
        matches!(self.posterior, Posterior::Double(_))
    }

    /// A hash of the count of observations and every bit of weights and `A^-1`. States with equal
    /// hashes are equal, up to 64-bit collisions.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut hasher = Xxh3::new();
        hasher.update(&self.observations.to_le_bytes());
        for entry in self.weights().iter().chain(&self.gram_inverse()) {
            hasher.update(&entry.to_bits().to_le_bytes());
        }
        hasher.digest()
    }

    /// The weights `w_u`, length `dim`.
    #[must_use]
    pub fn weights(&self) -> Vec<f64> {
        self.posterior.weights()
    }

    /// `A^-1`, row-major `dim x dim`.
    #[must_use]
    pub fn gram_inverse(&self) -> Vec<f64> {
        match &self.posterior {
            Posterior::Single(state) => state.gram_inverse(),
            Posterior::Double(state) => state.gram_inverse(),
        }
    }

    /// Size on the heap and inline, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let dim = self.dim();
        let entry = if self.is_double() { size_of::<f64>() } else { size_of::<f32>() };
        let sums = self.sums.as_ref().map_or(0, |sums| sums.bytes());
        let choices = self.choices.as_ref().map_or(0, Choices::bytes);
        let recent = self.recent.as_ref().map_or(0, RecentLabels::bytes);
        let profile = self.profile.as_ref().map_or(0, |profile| size_of_val(&**profile));
        let unshifted = if choices + recent + profile > 0 { entry * dim } else { 0 };
        size_of::<Self>() + entry * dim * (dim + 2) + sums + choices + recent + profile + unshifted
    }

    /// `w·f`, without the item's offset.
    ///
    /// The caller guarantees that `features` has `dim` entries.
    #[must_use]
    pub fn response(&self, features: &[f32]) -> f32 {
        match &self.posterior {
            Posterior::Single(state) => kernel::dot(&state.weights, features),
            Posterior::Double(state) => round(dot(&state.weights, features)),
        }
    }

    /// Scores `offset + w·f` without uncertainty for rows at arbitrary addresses, each an item's
    /// offset and features; appended to `out`. A row's score has the same bits as from
    /// [`UserModel::estimate`].
    ///
    /// The caller guarantees that all features have `dim` entries.
    pub fn score_rows<'a>(&self, rows: impl IntoIterator<Item = (f32, &'a [f32])>, out: &mut Vec<f32>) {
        let rows = rows.into_iter();
        out.reserve(rows.size_hint().0);
        match &self.posterior {
            Posterior::Single(state) => by_block(rows, |offsets, block, count| {
                let responses = kernel::dots(&state.weights, block);
                let scores =
                    offsets.iter().zip(responses).map(|(offset, response)| score(*offset, f64::from(response)));
                out.extend(scores.take(count));
            }),
            Posterior::Double(state) => {
                out.extend(rows.map(|(offset, features)| score(offset, dot(&state.weights, features))));
            }
        }
    }

    /// [`UserModel::score_rows`] for `offsets.len()` items whose features are row-major in
    /// `features`.
    pub fn score_all(&self, offsets: &[f32], features: &[f32], out: &mut Vec<f32>) {
        self.score_rows(self.table(offsets, features), out);
    }

    /// Estimates for rows at arbitrary addresses, each an item's offset and features; appended to
    /// `out`. Several rows share each read of the matrix, and each gets the same bits as from
    /// [`UserModel::estimate`].
    ///
    /// The caller guarantees that all features have `dim` entries.
    pub fn estimate_rows<'a>(
        &self,
        learning: &Learning,
        rows: impl IntoIterator<Item = (f32, &'a [f32])>,
        out: &mut Vec<Estimate>,
    ) {
        let rows = rows.into_iter();
        out.reserve(rows.size_hint().0);
        match &self.posterior {
            Posterior::Single(state) => by_block(rows, |offsets, block, count| {
                let responses = kernel::dots(&state.weights, block);
                let earlier = kernel::quadratics(&state.earlier, block);
                let reduced = kernel::dots(&state.reduction, block);
                let variances = earlier.into_iter().zip(reduced).map(|(earlier, reduced)| variance(earlier, reduced));
                for ((offset, response), variance) in offsets.iter().zip(responses).zip(variances).take(count) {
                    out.push(learning.estimate(*offset, f64::from(response), variance));
                }
            }),
            Posterior::Double(_) => {
                out.extend(rows.map(|(offset, features)| self.estimate(learning, offset, features)));
            }
        }
    }

    /// [`UserModel::estimate_rows`] for `offsets.len()` items whose features are row-major in
    /// `features`.
    pub fn estimate_all(&self, learning: &Learning, offsets: &[f32], features: &[f32], out: &mut Vec<Estimate>) {
        self.estimate_rows(learning, self.table(offsets, features), out);
    }

    /// The score of one item with its uncertainty.
    ///
    /// The caller guarantees that `features` has `dim` entries.
    #[must_use]
    pub fn estimate(&self, learning: &Learning, offset: f32, features: &[f32]) -> Estimate {
        let (response, variance) = self.response_and_variance(features);
        learning.estimate(offset, response, variance)
    }

    /// Mean and variance of a response: `w·f` and `f^T A^-1 f`.
    pub(crate) fn response_and_variance(&self, features: &[f32]) -> (f64, f64) {
        match &self.posterior {
            Posterior::Single(state) => (
                f64::from(kernel::dot(&state.weights, features)),
                variance(kernel::quadratic(&state.earlier, features), kernel::dot(&state.reduction, features)),
            ),
            Posterior::Double(state) => (
                dot(&state.weights, features),
                variance(quadratic(&state.earlier, features), dot(&state.reduction, features)),
            ),
        }
    }

    fn table<'a>(&self, offsets: &'a [f32], features: &'a [f32]) -> impl Iterator<Item = (f32, &'a [f32])> {
        debug_assert_eq!(features.len(), offsets.len() * self.dim());
        offsets.iter().copied().zip(features.chunks_exact(self.dim()))
    }

    /// A sampler of weights from the posterior; factors the covariance once, in O(dim^3).
    ///
    /// # Errors
    /// `NotPositiveDefinite` if rounding has made the matrix indefinite.
    pub fn sampler(&self, learning: &Learning) -> Result<Sampler, ModelError> {
        Sampler::new(self.weights(), &self.gram_inverse(), learning.noise_variance())
    }
}

/// Passes `rows` to `take` in blocks of [`kernel::ROWS`] with the number of real rows; the last row
/// pads the last block.
fn by_block<'a>(
    mut rows: impl Iterator<Item = (f32, &'a [f32])>,
    mut take: impl FnMut(&[f32; kernel::ROWS], &[&'a [f32]; kernel::ROWS], usize),
) {
    while let Some((offset, row)) = rows.next() {
        let (mut offsets, mut block) = ([offset; kernel::ROWS], [row; kernel::ROWS]);
        let mut count = 1;
        for (offset, row) in rows.by_ref().take(kernel::ROWS - 1) {
            (offsets[count], block[count]) = (offset, row);
            count += 1;
        }
        take(&offsets, &block, count);
    }
}

/// `f^T A^-1 f` of `f^T earlier f` and `reduction·f`.
fn variance<T: Real>(earlier: T, reduced: T) -> f64 {
    earlier.to_f64() - reduced.to_f64() * reduced.to_f64()
}

fn score(offset: f32, response: f64) -> f32 {
    round(f64::from(offset) + response)
}

fn round(value: f64) -> f32 {
    <f32 as Real>::from_f64(value)
}

/// An upper bound of `x·x`, exceeding it by at most rounding.
fn squared_length_max(features: &[f32]) -> f64 {
    let square = kernel::dot(features, features);
    if square.is_finite() {
        f64::from(square) * (1.0 + features.len() as f64 * f64::from(f32::EPSILON))
    } else {
        features.iter().map(|x| f64::from(*x) * f64::from(*x)).sum()
    }
}

/// Checks that the example can be absorbed; returns [`squared_length_max`] of its features.
fn check(learning: &Learning, example: &Example) -> Result<f64, ModelError> {
    if example.features.len() != learning.dim() {
        return Err(ModelError::DimMismatch {
            what: "features",
            expected: learning.dim(),
            received: example.features.len(),
        });
    }
    // The square in double precision is finite if and only if the features are.
    let square_max = squared_length_max(example.features);
    if !square_max.is_finite() {
        return Err(ModelError::NonFinite { what: "features" });
    }
    if !example.choice.is_empty() && example.choice.len() != learning.dim() {
        let (expected, received) = (learning.dim(), example.choice.len());
        return Err(ModelError::DimMismatch { what: "choice vector", expected, received });
    }
    if !(example.label.is_finite() && example.offset.is_finite() && example.weight.is_finite()) {
        return Err(ModelError::NonFinite { what: "label, offset or weight" });
    }
    Ok(square_max)
}
