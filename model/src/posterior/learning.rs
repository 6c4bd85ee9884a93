//! The learning rule of a model: its loss, the half-life of observations, and the prior of a user.

use serde::{Deserialize, Deserializer, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::preference::{self, Pair};
use super::prior::Prior;
use super::recent_bias::RecentBias;
use super::user_model::{Estimate, Example};
use crate::error::ModelError;
use crate::label_range::LabelRange;
use crate::time::Timestamp;
use celeris_kernel as kernel;

/// The loss that user weights minimise; it defines the meaning of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// The squared difference of score and label: ratings, amounts, any graded reward.
    #[default]
    Squared,
    /// The log loss of `sigmoid(score)` against a label from 0 to 1: clicks. Scores are log-odds.
    Logistic,
    /// Implicit feedback, counts without ratings (Hu, Koren & Volinsky 2008): an item with a label
    /// above 0 is a preference of 1 with the confidence `c = 1 + sum weight * label` over all
    /// observations of the user-item pair, against a preference of 0 with confidence 1 for every
    /// item.
    ///
    /// The zeros of all items are in the prior, as `Lambda = sum f f^T + lambda I` and `w0 = 0`.
    /// Observations add the rest, see [`crate::preference`].
    Implicit,
}

impl Loss {
    /// Rejects a label outside the range of this loss. A model that reads such a label from a
    /// shared stream clamps it to the nearest valid one.
    ///
    /// # Errors
    /// [`ModelError::OutOfRange`] or [`ModelError::NonFinite`].
    pub fn check_label(self, label: f32) -> Result<(), ModelError> {
        if !label.is_finite() {
            return Err(ModelError::NonFinite { what: "label" });
        }
        let (meant, range) = match self {
            Self::Squared => (true, "any number"),
            Self::Logistic => ((0.0..=1.0).contains(&label), "from 0 to 1 for a model with logistic loss"),
            Self::Implicit => (label >= 0.0, "at least 0 for a model with implicit loss"),
        };
        if meant { Ok(()) } else { Err(ModelError::OutOfRange { what: "label", range, value: f64::from(label) }) }
    }

    /// Under logistic loss, the probability of the label 1, given the uncertainty of the score;
    /// `None` under other losses.
    ///
    /// The mean of `sigmoid` over `N(score, std_error^2)` as approximated by MacKay, "The evidence
    /// framework applied to classification networks" (Neural Computation 4, 1992), his moderated
    /// output: `sigmoid(score / sqrt(1 + pi std_error^2 / 8))`.
    #[must_use]
    pub fn probability(self, estimate: &Estimate) -> Option<f32> {
        let std_error = f64::from(estimate.std_error);
        (self == Self::Logistic).then(|| round(moderated(f64::from(estimate.score), std_error * std_error)))
    }

    /// The expected label given the score alone: the score, or under logistic loss its `sigmoid`.
    #[must_use]
    pub fn expected_label(self, score: f32) -> f32 {
        match self {
            Self::Squared | Self::Implicit => score,
            Self::Logistic => round(sigmoid(f64::from(score))),
        }
    }
}

/// The time in which an observation loses half of its weight, in seconds.
///
/// Ages are measured to the user's latest observation, never to the clock, so that a state stays a
/// function of the log: nothing decays while a user is inactive.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct HalfLife(f64);

impl HalfLife {
    /// A half-life of `seconds`.
    ///
    /// # Errors
    /// [`ModelError::OutOfRange`] unless `seconds` is finite and above 0.
    pub fn from_seconds(seconds: f64) -> Result<Self, ModelError> {
        if !seconds.is_finite() || seconds <= 0.0 {
            return Err(ModelError::OutOfRange {
                what: "half_life",
                range: "a number of seconds above 0",
                value: seconds,
            });
        }
        Ok(Self(seconds))
    }

    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0
    }

    /// The share of its weight that an observation of time `earlier` has left at time `later`, in
    /// `0..=1`; 1 unless `later` is later.
    #[must_use]
    pub fn retained(self, earlier: Timestamp, later: Timestamp) -> f64 {
        // Timestamps come from clients, so their difference may overflow their type.
        let elapsed_ms = (i128::from(later.0) - i128::from(earlier.0)).max(0) as f64;
        (-(elapsed_ms / 1000.0) / self.0).exp2()
    }
}

impl<'de> Deserialize<'de> for HalfLife {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_seconds(f64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// The learning rule of one version: together with the user's observations it determines a user's
/// state.
#[derive(Debug, Clone, PartialEq)]
pub struct Learning {
    prior: Prior,
    loss: Loss,
    half_life: Option<HalfLife>,
    labels: Option<LabelRange>,
}

impl From<Prior> for Learning {
    /// Squared loss without a half-life.
    fn from(prior: Prior) -> Self {
        Self::new(prior, Loss::Squared, None)
    }
}

impl Learning {
    /// The rule with this prior, loss and half-life; without a half-life nothing decays.
    #[must_use]
    pub fn new(prior: Prior, loss: Loss, half_life: Option<HalfLife>) -> Self {
        Self { prior, loss, half_life, labels: None }
    }

    /// Limits labels under squared loss, so that a few wrong ones cannot dominate: a label counts as
    /// the nearest one of `trained`, the range of the training data, widened by its width at both
    /// ends.
    #[must_use]
    pub fn limited_to(self, trained: Option<LabelRange>) -> Self {
        let labels = trained.filter(|_| self.loss == Loss::Squared).map(LabelRange::widened);
        Self { labels, ..self }
    }

    /// The limits of labels, see [`Learning::limited_to`]; `None` if labels are not limited.
    #[must_use]
    pub fn labels(&self) -> Option<LabelRange> {
        self.labels
    }

    /// The label as it counts in learning and in losses, see [`Learning::limited_to`].
    #[must_use]
    pub fn limited(&self, label: f32) -> f32 {
        self.labels.map_or(label, |labels| labels.nearest(label))
    }

    /// The prior of a user before the first observation. It does not decay.
    #[must_use]
    pub fn prior(&self) -> &Prior {
        &self.prior
    }

    #[must_use]
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// The half-life of observations; `None` if they do not decay.
    #[must_use]
    pub fn half_life(&self) -> Option<HalfLife> {
        self.half_life
    }

    /// The length of features and weights.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.prior.dim()
    }

    /// A hash of everything besides the examples that determines the bits of a state: prior, loss,
    /// half-life, limits of labels, recent bias, and the kernel's revision and instruction set.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = Xxh3::new();
        let others = [self.prior.noise_variance(), self.half_life.map_or(0.0, HalfLife::seconds)];
        for number in self.prior.mean().iter().chain(self.prior.precision()).chain(&others) {
            hasher.update(&number.to_bits().to_le_bytes());
        }
        hasher.update(match self.loss {
            Loss::Squared => b"squared".as_slice(),
            Loss::Logistic => b"logistic",
            // Distinct from an earlier rule, under which every observation of a pair was a separate
            // preference.
            Loss::Implicit => b"implicit pairs",
        });
        for end in self.labels.map(<[f32; 2]>::from).into_iter().flatten() {
            hasher.update(&end.to_bits().to_le_bytes());
        }
        if let Some(bias) = self.recent_bias() {
            hasher.update(b"recent bias");
            hasher.update(&bias.retained().to_bits().to_le_bytes());
            hasher.update(&bias.precision().to_bits().to_le_bytes());
        }
        hasher.update(kernel::name().as_bytes());
        hasher.update(&[kernel::REVISION]);
        hasher.digest()
    }

    /// The factor from `A^-1` to the covariance of weights: `sigma^2`, but 1 under logistic loss,
    /// whose labels have no separate noise and whose `Lambda` is the precision of the weights
    /// itself.
    #[must_use]
    pub fn noise_variance(&self) -> f64 {
        match self.loss {
            Loss::Squared | Loss::Implicit => self.prior.noise_variance(),
            Loss::Logistic => 1.0,
        }
    }

    /// The estimate of an item with `offset`, `response = w·f` and `variance = f^T A^-1 f`.
    pub(crate) fn estimate(&self, offset: f32, response: f64, variance: f64) -> Estimate {
        let noise = self.noise_variance();
        let score = f64::from(offset) + response;
        // Rounding may have made the variance negative.
        let variance = noise * variance.max(0.0);
        let label_variance = match self.loss {
            Loss::Squared | Loss::Implicit => noise + variance,
            Loss::Logistic => {
                let probability = moderated(score, variance);
                probability * (1.0 - probability)
            }
        };
        Estimate { score: round(score), std_error: round(variance.sqrt()), label_std: round(label_variance.sqrt()) }
    }

    /// The estimate with additional variance of the score, for items with uncertain features.
    #[must_use]
    pub fn widened(&self, estimate: Estimate, variance: f64) -> Estimate {
        let noise = self.noise_variance();
        let (score, std_error) = (f64::from(estimate.score), f64::from(estimate.std_error));
        let variance = (std_error * std_error + variance.max(0.0)) / noise;
        Estimate { score: estimate.score, ..self.estimate(0.0, score, variance) }
    }

    /// The choice vector of `example`, times `Lambda`; empty under losses other than the squared one, whose states have no choices.
    pub(crate) fn choice<'a>(&self, example: &Example<'a>) -> &'a [f32] {
        if self.loss == Loss::Squared { example.choice } else { &[] }
    }

    /// The rule of the recent bias; `None` if users have none, as under losses other than the squared one.
    #[must_use]
    pub fn recent_bias(&self) -> Option<RecentBias> {
        self.prior.recent_bias().filter(|_| self.loss == Loss::Squared)
    }

    /// The target and weight of `example` under this loss.
    pub(crate) fn weighted_target(&self, example: &Example) -> WeightedTarget {
        let (label, offset) = (f64::from(self.limited(example.label)), f64::from(example.offset));
        let weight = f64::from(example.weight);
        match self.loss {
            Loss::Squared => WeightedTarget { weight, label: label - offset, likelihood: Likelihood::Gaussian },
            Loss::Implicit => {
                let excess = preference::excess(example.label, example.weight);
                let gained = Pair::gained(excess, example.taken_before, example.timestamp, self.half_life);
                let (weight, label) = gained.map_or((0.0, 0.0), |pair| (pair.excess, pair.target() - offset));
                WeightedTarget { weight, label, likelihood: Likelihood::Gaussian }
            }
            Loss::Logistic => WeightedTarget {
                weight,
                label: self.loss.outcome(example.label),
                likelihood: Likelihood::Bernoulli { offset },
            },
        }
    }
}

/// An example as target and weight under its loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WeightedTarget {
    /// Multiplicity of the example; at 0 it is ignored.
    pub(crate) weight: f64,
    /// The target of the response, or under [`Likelihood::Bernoulli`] the label itself.
    pub(crate) label: f64,
    pub(crate) likelihood: Likelihood,
}

/// The distribution of a label given the response `w·f`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Likelihood {
    /// Normal around the response, with the variance of the noise.
    Gaussian,
    /// 1 with the probability `sigmoid(offset + response)`, otherwise 0.
    Bernoulli { offset: f64 },
}

/// The log-likelihood of a label and its derivatives at one response, without its weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Local {
    /// Up to an additive constant.
    pub(crate) value: f64,
    /// First derivative.
    pub(crate) slope: f64,
    /// Magnitude of the second derivative.
    pub(crate) curvature: f64,
}

impl WeightedTarget {
    /// An upper bound of the curvature that the example adds at any response.
    pub(crate) fn curvature_max(&self) -> f64 {
        match self.likelihood {
            Likelihood::Gaussian => self.weight,
            Likelihood::Bernoulli { .. } => self.weight / 4.0,
        }
    }

    /// The log-likelihood and its derivatives at `response`.
    pub(crate) fn local(&self, response: f64) -> Local {
        match self.likelihood {
            Likelihood::Gaussian => {
                let slope = self.label - response;
                Local { value: -0.5 * slope * slope, slope, curvature: 1.0 }
            }
            Likelihood::Bernoulli { offset } => {
                let score = offset + response;
                let probability = sigmoid(score);
                // `y s - log(1 + e^s)`, in a form that cannot overflow.
                let value = self.label * score - score.max(0.0) - (-score.abs()).exp().ln_1p();
                Local { value, slope: self.label - probability, curvature: probability * sigmoid(-score) }
            }
        }
    }

    /// The log-likelihood at the mode of the response after this example, where the response was
    /// distributed as `N(response, spread)` before it.
    ///
    /// The mode solves `r = response + weight spread slope(r)`. Its right side decreases in `r`, so
    /// there is exactly one solution, between the values of the right side for slopes of `label -
    /// 1` and `label`; Newton's method finds it, with a bisection wherever a step would leave that
    /// interval.
    pub(crate) fn mode(&self, response: f64, spread: f64) -> Local {
        let reach = self.weight * spread;
        if self.likelihood == Likelihood::Gaussian {
            let slope = (self.label - response) / (1.0 + reach);
            return Local { value: -0.5 * slope * slope, slope, curvature: 1.0 };
        }
        let (mut low, mut high) = (response + reach * (self.label - 1.0), response + reach * self.label);
        let mut mode = response;
        let mut moved = high - low;
        for _ in 0..MODE_STEPS_MAX {
            let local = self.local(mode);
            let excess = mode - response - reach * local.slope;
            if excess > 0.0 {
                high = mode;
            } else {
                low = mode;
            }
            let step = -excess / (1.0 + reach * local.curvature);
            // Newton's step if it stays inside and is at most half of the one before, so that it
            // cannot oscillate.
            let newton = mode + step;
            let next = if low < newton && newton < high && 2.0 * step.abs() <= moved {
                newton
            } else {
                f64::midpoint(low, high)
            };
            moved = (next - mode).abs();
            mode = next;
            if moved <= MODE_TOLERANCE * (1.0 + mode.abs()) {
                break;
            }
        }
        self.local(mode)
    }
}

/// Bisection of the widest interval of finite weights and spreads down to the tolerance takes fewer
/// steps.
const MODE_STEPS_MAX: usize = 128;

/// Far below the rounding of an `f32` state.
const MODE_TOLERANCE: f64 = 1e-12;

/// `1 / (1 + e^-score)`
pub(crate) fn sigmoid(score: f64) -> f64 {
    if score >= 0.0 {
        1.0 / (1.0 + (-score).exp())
    } else {
        let odds = score.exp();
        odds / (1.0 + odds)
    }
}

/// MacKay's moderated output, see [`Loss::probability`].
fn moderated(score: f64, variance: f64) -> f64 {
    sigmoid(score / (1.0 + std::f64::consts::PI * variance / 8.0).sqrt())
}

fn round(value: f64) -> f32 {
    <f32 as crate::linear::Real>::from_f64(value)
}
