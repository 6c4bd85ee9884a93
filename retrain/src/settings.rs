//! Settings of the built-in trainer.

use std::num::NonZeroUsize;

use celeris_model::Loss;

use crate::error::RetrainError;

/// Largest `dim`: beyond it, the state of a single user takes megabytes.
pub use celeris_formats::version_dir::DIM_MAX;

/// Largest number of iterations that can be configured.
pub const ITERATIONS_LIMIT: usize = 1000;

/// Scales of the prior that can be configured: the trainer finds the best ones from 0.5 to 4.
pub const PRIOR_SCALE_RANGE: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// Settings of the caller; all others are tuned on held-out ratings.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainSettings {
    /// Length of feature and weight vectors, including the constant: with `dim` 20, 17 latent
    /// factors, two side features, and 1.
    pub dim: usize,
    /// Seed of the factors and of the choice of held-out ratings. Equal seeds and ratings give
    /// equal bytes.
    pub seed: u64,
    /// Number of training threads; does not affect the result.
    pub threads: NonZeroUsize,
    /// Maximum number of iterations.
    pub iterations_max: usize,
    /// Share of the partners' variances in every row's ridge; `None` is 1, or under implicit loss tunes it.
    pub regularization: Option<f64>,
    /// Scale of the precision of the users' prior relative to the fitted one; `None` tunes it. Not under implicit loss, whose
    /// prior follows from the factors.
    pub prior_scale: Option<f64>,
    /// The loss, which selects the trainer: for graded labels, clicks, or implicit feedback, where
    /// `regularization` is the `lambda` of Hu et al. (2008).
    pub loss: Loss,
}

impl TrainSettings {
    /// Default maximum number of iterations.
    pub const ITERATIONS_MAX: usize = 30;

    /// Settings with everything tuned, on one thread.
    #[must_use]
    pub fn new(dim: usize, seed: u64) -> Self {
        Self {
            dim,
            seed,
            threads: NonZeroUsize::MIN,
            iterations_max: Self::ITERATIONS_MAX,
            regularization: None,
            prior_scale: None,
            loss: Loss::Squared,
        }
    }

    pub(crate) fn check(&self) -> Result<(), RetrainError> {
        let within = |what, range, value: usize, max| {
            if (1..=max).contains(&value) {
                return Ok(());
            }
            Err(RetrainError::Setting { what, range, value: value.to_string() })
        };
        within("dim", "1 to 512", self.dim, DIM_MAX)?;
        within("iterations_max", "1 to 1000", self.iterations_max, ITERATIONS_LIMIT)?;
        if let Some(scale) = self.prior_scale.filter(|scale| !PRIOR_SCALE_RANGE.contains(scale)) {
            return Err(RetrainError::Setting {
                what: "prior_scale",
                range: "between 0.01 and 100",
                value: scale.to_string(),
            });
        }
        match self.regularization {
            Some(value) if !(0.0..=100.0).contains(&value) => {
                let range = "between 0 and 100";
                Err(RetrainError::Setting { what: "regularization", range, value: value.to_string() })
            }
            _ => Ok(()),
        }
    }
}
