//! What a column counts as where the context is not known: its mean for the item over contexts that were common in the
//! training.

use celeris_model::Context;
use celeris_pipelines::{ContextValues, Plan, Scratch};
use serde::{Deserialize, Serialize};

use crate::error::FeaturesError;

/// Maximum number of contexts that a part keeps: it is computed in each of them for an item that is new.
pub const CONTEXTS_MAX: usize = 64;

/// A context, reduced to the fields that a part reads, and its share of the observations of the training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextShare {
    pub context: Context,
    pub share: f32,
}

/// The contexts of a part, with what its pipeline needs to know of them.
#[derive(Debug, Default)]
pub(super) struct CommonContexts(Box<[(ContextValues, f64)]>);

impl CommonContexts {
    /// # Errors
    /// [`FeaturesError::Parts`] for too many contexts, or a share that is not a positive number.
    pub(super) fn new(part: &str, plan: &Plan, contexts: &[ContextShare]) -> Result<Self, FeaturesError> {
        let positive = contexts.iter().all(|of| of.share.is_finite() && of.share > 0.0);
        if contexts.len() > CONTEXTS_MAX || !positive {
            let problem = format!("{part}: contexts are at most {CONTEXTS_MAX}, and their shares above 0");
            return Err(FeaturesError::Parts { problem });
        }
        let total: f64 = contexts.iter().map(|of| f64::from(of.share)).sum();
        let mut scratch = Scratch::default();
        let mut known = |of: &ContextShare| (plan.context_part(&of.context, &mut scratch), f64::from(of.share) / total);
        Ok(Self(contexts.iter().map(&mut known).collect()))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(ContextValues, f64)> {
        self.0.iter()
    }
}
