//! What a policy chooses from.

use celeris_model::{Learning, UserModel};

use crate::error::BanditError;

/// How much a policy looks at, so that nothing else needs to be computed. Each includes the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wants {
    /// Scores only.
    Scores,
    /// The uncertainty of every score too.
    Uncertainty,
    /// The features of every candidate too, to score them under other weights.
    Features,
}

/// The `n` candidates of one ranking for one user, scored under one version.
///
/// Where candidates tie, the earlier one counts as the better. The caller guarantees the shapes, and fills what the
/// policy wants ([`crate::Policy::wants`]); the rest may be empty.
#[derive(Debug, Clone, Copy)]
pub struct Candidates<'a> {
    /// Length `n`: scores, in units of the label.
    pub scores: &'a [f32],
    /// Length `n` where uncertainty is wanted: the standard errors of the scores.
    pub std_errors: &'a [f32],
    /// Length `n` where features are wanted: the part of each score that does not depend on the user.
    pub offsets: &'a [f32],
    /// Row-major `n x dim` where features are wanted.
    pub features: &'a [f32],
    /// The user's weights, of length `dim`, and their uncertainty.
    pub posterior: &'a UserModel,
    /// The rule that the posterior was advanced by.
    pub learning: &'a Learning,
}

impl Candidates<'_> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.scores.len()
    }

    /// Whether there is nothing to choose from.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// Refuses candidates that no order can be given to.
    ///
    /// # Errors
    /// [`BanditError::NonFinite`] names the first of them.
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

    /// The score of one candidate.
    pub(crate) fn score(&self, candidate: usize) -> f64 {
        f64::from(self.scores[candidate])
    }

    /// Which round of learning about this user it is, from 1: one more than their observations.
    pub(crate) fn round(&self) -> f64 {
        self.posterior.observations() as f64 + 1.0
    }
}
