//! What a policy chooses from.

use celeris_model::{Estimate, Learning, UserModel};

use crate::error::BanditError;

/// The `n` candidates of one ranking for one user, scored under one version.
///
/// Where candidates tie, the earlier one counts as the better. The caller guarantees the shapes.
#[derive(Debug, Clone, Copy)]
pub struct Candidates<'a> {
    /// Length `n`: scores with their uncertainty, in units of the label.
    pub estimates: &'a [Estimate],
    /// Length `n`: the part of each score that does not depend on the user.
    pub offsets: &'a [f32],
    /// Row-major `n x dim`.
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
        self.estimates.len()
    }

    /// Whether there is nothing to choose from.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.estimates.is_empty()
    }

    /// Refuses candidates that no order can be given to.
    ///
    /// # Errors
    /// [`BanditError::NonFinite`] names the first of them.
    pub(crate) fn check(&self) -> Result<(), BanditError> {
        debug_assert_eq!(self.offsets.len(), self.len());
        debug_assert_eq!(self.features.len(), self.len() * self.posterior.dim());
        for (candidate, estimate) in self.estimates.iter().enumerate() {
            if !estimate.score.is_finite() {
                return Err(BanditError::NonFinite { what: "score", candidate });
            }
            if !estimate.std_error.is_finite() {
                return Err(BanditError::NonFinite { what: "std_error", candidate });
            }
        }
        Ok(())
    }

    /// The score of one candidate.
    pub(crate) fn score(&self, candidate: usize) -> f64 {
        f64::from(self.estimates[candidate].score)
    }
}
