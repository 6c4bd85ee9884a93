//! Two versions on the same observations: how much better one predicts, and how sure that is.
//!
//! The difference is taken observation by observation, so what is hard to predict for both cancels out. Observations that
//! hang together, like those of one user, count as one draw in its standard error.

use celeris_model::{PREDICTION_LOSS_MAX, VersionId};
use serde::{Deserialize, Serialize};

use crate::quality::Metric;

/// Two versions on the same observations. A figure that is no finite number is missing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// What losses are.
    pub metric: Metric,
    /// How many.
    pub observations: u64,
    /// The candidate's loss; `None` where one of its predictions was no number.
    pub candidate: Option<f64>,
    /// The incumbent's; `None` likewise.
    pub incumbent: Option<f64>,
    /// The candidate's minus the incumbent's.
    pub difference: Option<f64>,
    /// The standard error of the difference; `None` of a single draw, which says nothing of how draws differ.
    pub standard_error: Option<f64>,
}

impl Comparison {
    /// Whether the candidate misses the margin by more than `errors` standard errors. One whose loss is no number does; one
    /// of which too little is known does not.
    #[must_use]
    pub fn misses(&self, margin: f64, errors: f64) -> bool {
        match (self.candidate, self.incumbent, self.standard_error) {
            (None, _, _) => true,
            (Some(candidate), Some(incumbent), Some(error)) => candidate > incumbent * (1.0 - margin) + errors * error,
            _ => false,
        }
    }

    /// The figures in words. `of` is where the observations are from.
    pub(crate) fn told(&self, incumbent: VersionId, of: &str, margin: f64) -> String {
        let figure =
            |figure: Option<f64>| figure.map_or_else(|| "no number".to_owned(), |figure| format!("{figure:.4}"));
        let (metric, observations) = (self.metric.name(), self.observations);
        let [candidate, before, error] = [self.candidate, self.incumbent, self.standard_error].map(figure);
        format!(
            "{metric} {candidate} against {before} of version {incumbent} on {observations} observations of the {of} \
             (standard error of the difference {error}, margin {margin})"
        )
    }
}

/// Losses of two versions on the same observations, summed up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paired {
    observations: u64,
    candidate: Side,
    incumbent: Side,
    /// By draw, whose observations hang together: their number and the sum of their differences.
    draws: Vec<(u64, f64)>,
}

/// The losses of one version.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    sum: f64,
    /// Predictions that were no number, or as far off as can be told.
    unbounded: u64,
}

impl Side {
    fn add(&mut self, loss: f64) {
        self.sum += loss;
        // What is no number is not below the bound.
        self.unbounded += u64::from(loss.is_nan() || loss >= PREDICTION_LOSS_MAX);
    }

    fn mean(self, metric: Metric, count: f64) -> Option<f64> {
        (self.unbounded == 0).then(|| metric.value(self.sum / count)).filter(|mean| mean.is_finite())
    }
}

impl Paired {
    /// Adds the losses of one draw, candidate's and incumbent's.
    pub(crate) fn add(&mut self, losses: impl IntoIterator<Item = (f64, f64)>) {
        let (mut count, mut sum) = (0, 0.0);
        for (candidate, incumbent) in losses {
            count += 1;
            sum += candidate - incumbent;
            self.candidate.add(candidate);
            self.incumbent.add(incumbent);
        }
        if count > 0 {
            self.observations += count;
            self.draws.push((count, sum));
        }
    }

    pub(crate) fn observations(&self) -> u64 {
        self.observations
    }

    /// The comparison, `None` of nothing.
    pub(crate) fn comparison(&self, metric: Metric) -> Option<Comparison> {
        if self.observations == 0 {
            return None;
        }
        let count = self.observations as f64;
        let (candidate, incumbent) = (self.candidate.mean(metric, count), self.incumbent.mean(metric, count));
        let both = candidate.zip(incumbent);
        Some(Comparison {
            metric,
            observations: self.observations,
            candidate,
            incumbent,
            difference: both.map(|(candidate, incumbent)| candidate - incumbent),
            standard_error: both.and_then(|(candidate, incumbent)| self.standard_error(metric, candidate + incumbent)),
        })
    }

    /// The standard error of the difference; that of a difference of roots to first order, where `both` is their sum.
    fn standard_error(&self, metric: Metric, both: f64) -> Option<f64> {
        let count = self.observations as f64;
        let mean = (self.candidate.sum - self.incumbent.sum) / count;
        let squares: f64 = self.draws.iter().map(|(count, sum)| (sum - *count as f64 * mean).powi(2)).sum();
        let draws = self.draws.len() as f64;
        if draws < 2.0 {
            return None;
        }
        let error = (squares * draws / (draws - 1.0)).sqrt() / count;
        let error = match metric {
            Metric::Rmse if both > 0.0 => error / both,
            Metric::Rmse => 0.0,
            Metric::LogLoss | Metric::Rank => error,
        };
        Some(error).filter(|error| error.is_finite())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn loss() -> impl Strategy<Value = f64> {
        let extreme = prop::sample::select(vec![0.0, 1e-300, 1e12, 1e29, PREDICTION_LOSS_MAX, f64::INFINITY, f64::NAN]);
        prop_oneof![0.0..10.0_f64, extreme]
    }

    proptest! {
        /// Whatever losses come, a comparison is written and read back as it was: nothing in it is `NaN` or infinite.
        #[test]
        fn every_comparison_can_be_read_back(
            draws in prop::collection::vec(prop::collection::vec((loss(), loss()), 0..4), 0..6),
            metric in prop::sample::select(vec![Metric::Rmse, Metric::LogLoss, Metric::Rank]),
        ) {
            let mut paired = Paired::default();
            draws.iter().for_each(|draw| paired.add(draw.iter().copied()));
            let comparison = paired.comparison(metric);
            let text = serde_json::to_string(&comparison).unwrap();
            prop_assert_eq!(serde_json::from_str::<Option<Comparison>>(&text).unwrap(), comparison);
            let losses: Vec<(f64, f64)> = draws.concat();
            if let Some(comparison) = comparison {
                let sound = losses.iter().all(|(candidate, _)| *candidate < PREDICTION_LOSS_MAX);
                prop_assert_eq!(comparison.candidate.is_some(), sound);
                prop_assert!(sound || comparison.misses(-10.0, 100.0), "a prediction that is no number is never good enough");
            }
        }
    }

    #[test]
    fn one_draw_decides_nothing() {
        let mut paired = Paired::default();
        paired.add([(9.0, 1.0), (9.0, 1.0)]);
        let comparison = paired.comparison(Metric::Rmse).unwrap();
        assert_eq!(
            (comparison.candidate, comparison.incumbent, comparison.standard_error),
            (Some(3.0), Some(1.0), None)
        );
        assert!(!comparison.misses(0.0, 1.0));
        paired.add([(9.5, 1.0)]);
        assert!(paired.comparison(Metric::Rmse).unwrap().misses(0.0, 1.0));
    }
}
