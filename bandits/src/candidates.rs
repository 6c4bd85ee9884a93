//! The input of a policy.

use celeris_model::{Learning, UserModel};

use crate::error::BanditError;

/// The inputs that a policy needs, so that others need not be computed. Each level includes the one
/// before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wants {
    Scores,
    /// Also the standard errors of the scores.
    Uncertainty,
    /// Also the features of every candidate, to score them under other weights.
    Features,
}

/// The `n` candidates of one ranking for one user, scored under one version.
///
/// Ties go to the earlier candidate. The caller guarantees the shapes, and provides the inputs that
/// the policy wants ([`crate::Policy::wants`]); the others may be empty.
#[derive(Debug, Clone, Copy)]
pub struct Candidates<'a> {
    /// Length `n`: scores, in units of the label.
    pub scores: &'a [f32],
    /// Length `n` if uncertainty is wanted: the standard errors of the scores.
    pub std_errors: &'a [f32],
    /// Length `n` if features are wanted: the part of each score that does not depend on the user.
    pub offsets: &'a [f32],
    /// Row-major `n x dim` if features are wanted.
    pub features: &'a [f32],
    /// The posterior of the user's weights, of length `dim`.
    pub posterior: &'a UserModel,
    /// The learning rule of the posterior.
    pub learning: &'a Learning,
}

impl Candidates<'_> {
    /// Number of candidates.
    #[must_use]
    pub fn len(&self) -> usize {
        self.scores.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// Rejects candidates that cannot be ordered.
    ///
    /// # Errors
    /// [`BanditError::NonFinite`] for the first of them.
    pub(crate) fn check(&self, wants: Wants) -> Result<(), BanditError> {
        let n = self.len();
        debug_assert!(wants < Wants::Uncertainty || self.std_errors.len() == n);
        debug_assert!(wants < Wants::Features || self.offsets.len() == n);
        debug_assert!(wants < Wants::Features || self.features.len() == n * self.posterior.dim());
        for (what, values) in [("score", self.scores), ("std_error", self.std_errors)] {
            if let Some(candidate) = values.iter().position(|value| !value.is_finite()) {
                return Err(BanditError::NonFinite { what, candidate });
            }
        }
        Ok(())
    }

    pub(crate) fn score(&self, candidate: usize) -> f64 {
        f64::from(self.scores[candidate])
    }

    /// The round of learning for this user, from 1: one more than their observations.
    pub(crate) fn round(&self) -> f64 {
        self.posterior.observations() as f64 + 1.0
    }
}
