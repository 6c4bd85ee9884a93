//! What a part is for an item on average: over contexts that were common in the training.

use celeris_model::Context;
use celeris_pipelines::{ContextValues, ItemValues, Plan, Scratch};
use serde::{Deserialize, Serialize};

use crate::error::FeaturesError;

/// Maximum number of contexts that a part keeps: it is computed in each of them for an item that is new.
pub const CONTEXTS_MAX: usize = 64;

/// How far the sum of the shares may be from 1.
const SHARES_TOLERANCE: f64 = 0.01;

/// A context, reduced to the fields that a part reads, and its share of the observations of the training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextShare {
    pub context: Context,
    pub share: f32,
}

/// The contexts of a part, with what its pipeline needs to know of them.
#[derive(Debug, Default)]
pub struct CommonContexts(Box<[(ContextValues, f64)]>);

impl CommonContexts {
    /// # Errors
    /// [`FeaturesError::Parts`] for too many contexts, fields that the part does not read, or shares that are not positive or
    /// do not sum to 1.
    pub fn new(part: &str, plan: &Plan, contexts: &[ContextShare]) -> Result<Self, FeaturesError> {
        let wrong = |problem: String| Err(FeaturesError::Parts { problem: format!("{part}: contexts: {problem}") });
        if contexts.len() > CONTEXTS_MAX {
            return wrong(format!("at most {CONTEXTS_MAX}, got {}", contexts.len()));
        }
        let is_read = |name: &str| plan.context_fields().iter().any(|field| field == name);
        let mut fields = contexts.iter().flat_map(|of| of.context.fields());
        if let Some((name, _)) = fields.find(|(name, _)| !is_read(name)) {
            return wrong(format!("the part does not read context.{name}"));
        }
        if !contexts.iter().all(|of| of.share.is_finite() && of.share > 0.0) {
            return wrong("shares must be above 0".to_owned());
        }
        let total: f64 = contexts.iter().map(|of| f64::from(of.share)).sum();
        if !contexts.is_empty() && (total - 1.0).abs() > SHARES_TOLERANCE {
            return wrong(format!("the shares must sum to 1, got {total}"));
        }
        let mut scratch = Scratch::default();
        let mut known = |of: &ContextShare| (plan.context_part(&of.context, &mut scratch), f64::from(of.share) / total);
        Ok(Self(contexts.iter().map(&mut known).collect()))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Means and covariances of the outputs for an item over the contexts: `dim` means, then the lower triangle of the
    /// covariance matrix, row by row.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "features are held in f32; rounding to the nearest is meant")]
    pub fn moments(&self, plan: &Plan, item: &ItemValues, scratch: &mut Scratch) -> Box<[f32]> {
        let dim = plan.dim();
        let mut outputs = vec![0.0; dim * self.0.len()];
        for ((context, _), outputs) in self.0.iter().zip(outputs.chunks_exact_mut(dim)) {
            let ran = plan.pairs(std::iter::once(item), context, scratch, outputs);
            debug_assert_eq!(ran, Ok(()), "the values are those of this plan");
        }
        let mut sums = vec![0.0; moments_of(dim)];
        let (means, covariances) = sums.split_at_mut(dim);
        for ((_, share), outputs) in self.0.iter().zip(outputs.chunks_exact(dim)) {
            means.iter_mut().zip(outputs).for_each(|(mean, output)| *mean += share * f64::from(*output));
        }
        for ((_, share), outputs) in self.0.iter().zip(outputs.chunks_exact(dim)) {
            let mut place = covariances.iter_mut();
            for j in 0..dim {
                let away = f64::from(outputs[j]) - means[j];
                for (k, covariance) in place.by_ref().take(j + 1).enumerate() {
                    *covariance += share * away * (f64::from(outputs[k]) - means[k]);
                }
            }
        }
        sums.into_iter().map(|sum| sum as f32).collect()
    }
}

/// The number of means and covariances of `columns` columns.
#[must_use]
pub fn moments_of(columns: usize) -> usize {
    columns + columns * (columns + 1) / 2
}
