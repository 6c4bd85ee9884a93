//! Paired comparison of two versions on the same observations: the difference of their losses and
//! its standard error.
//!
//! The difference is taken per observation, so observations that are hard for both versions cancel
//! out. Correlated observations, such as those of one user, count as one draw in the standard
//! error.

use celeris_model::{PREDICTION_LOSS_MAX, VersionId};
use serde::{Deserialize, Serialize};

use crate::metric::Metric;

/// Losses of two versions on the same observations. A figure that is not finite is omitted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Metric of the losses.
    pub metric: Metric,
    pub observations: u64,
    /// Loss of the candidate; `None` if one of its predictions was not a finite number.
    pub candidate: Option<f64>,
    /// Loss of the incumbent; `None` likewise.
    pub incumbent: Option<f64>,
    /// Loss of the candidate minus loss of the incumbent.
    pub difference: Option<f64>,
    /// Standard error of the difference; `None` for a single draw, which has no sample variance.
    pub standard_error: Option<f64>,
}

impl Comparison {
    /// Whether the candidate misses the margin by more than `errors` standard errors. True if the
    /// candidate's loss is not finite; false if there are too few draws for a standard error.
    #[must_use]
    pub fn misses(&self, margin: f64, errors: f64) -> bool {
        match (self.candidate, self.incumbent, self.standard_error) {
            (None, _, _) => true,
            (Some(candidate), Some(incumbent), Some(error)) => candidate > incumbent * (1.0 - margin) + errors * error,
            _ => false,
        }
    }

    /// Formats the figures for a message. `of` names the source of the observations.
    pub(crate) fn describe(&self, incumbent: VersionId, of: &str, margin: f64) -> String {
        let figure =
            |figure: Option<f64>| figure.map_or_else(|| "no number".to_owned(), |figure| format!("{figure:.4}"));
        let (metric, observations) = (self.metric.name(), self.observations);
        let [candidate, before, error] = [self.candidate, self.incumbent, self.standard_error].map(figure);
        let relation = match self.difference {
            Some(difference) if difference > 0.0 => format!(": worse by {difference:.4}"),
            Some(difference) if difference < 0.0 => format!(": better by {:.4}", -difference),
            _ => String::new(),
        };
        format!(
            "{metric} {candidate} against {before} of version {incumbent} on {observations} observations of the \
             {of}{relation} (standard error of the difference {error}, margin {margin})"
        )
    }
}

/// Accumulated losses of two versions on the same observations.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paired {
    observations: u64,
    candidate: Side,
    incumbent: Side,
    /// Per draw (a set of correlated observations): number of observations and sum of the
    /// differences.
    draws: Vec<(u64, f64)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Side {
    sum: f64,
    /// Predictions that were not finite or whose loss reached the bound.
    unbounded: u64,
}

impl Side {
    fn add(&mut self, loss: f64) {
        self.sum += loss;
        // `NaN` compares as not below the bound.
        self.unbounded += u64::from(loss.is_nan() || loss >= PREDICTION_LOSS_MAX);
    }

    fn mean(self, metric: Metric, count: f64) -> Option<f64> {
        (self.unbounded == 0).then(|| metric.value(self.sum / count)).filter(|mean| mean.is_finite())
    }
}

impl Paired {
    /// Adds the losses of one draw as pairs (candidate, incumbent).
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

    /// Returns the comparison, or `None` without observations.
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

    /// Standard error of the difference. For a difference of square roots it is the first-order
    /// approximation, where `both` is their sum.
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

/// Losses of one version on held-out observations.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeldOutLoss {
    pub(crate) observations: u64,
    /// In the metric; `None` if a prediction was not a finite number.
    pub(crate) value: Option<f64>,
    /// Standard error of `value`; `None` for a single draw.
    pub(crate) standard_error: Option<f64>,
    /// By draw: the number of observations and the sum of their losses.
    draws: Vec<(u64, f64)>,
}

impl HeldOutLoss {
    /// The loss of a version, by the losses of each draw: observations that are correlated.
    pub(crate) fn of(metric: Metric, draws: impl IntoIterator<Item = Vec<f64>>) -> Self {
        let mut paired = Paired::default();
        for draw in draws {
            paired.add(draw.into_iter().map(|loss| (loss, 0.0)));
        }
        // Against a loss of 0, the difference is the loss itself. The error of a difference of roots is divided by their sum,
        // of which one is 0 here; that of one root is divided by twice the root.
        let Some(comparison) = paired.comparison(metric) else { return Self::default() };
        let of_roots = if metric == Metric::Rmse { 0.5 } else { 1.0 };
        Self {
            observations: comparison.observations,
            value: comparison.candidate,
            standard_error: comparison
                .standard_error
                .filter(|_| comparison.candidate.is_some())
                .map(|error| of_roots * error),
            draws: if comparison.candidate.is_some() { paired.draws } else { Vec::new() },
        }
    }

    /// Standard error of the difference to the loss of another version on the same observations;
    /// `None` if they are not the same, or too few.
    pub(crate) fn difference_error(&self, other: &Self, metric: Metric) -> Option<f64> {
        let of = |losses: &Self| losses.draws.iter().map(|(count, _)| *count).collect::<Vec<_>>();
        if self.draws.is_empty() || of(self) != of(other) {
            return None;
        }
        let differences =
            self.draws.iter().zip(&other.draws).map(|((count, ours), (_, theirs))| (*count, ours - theirs));
        let sum = |losses: &Self| losses.draws.iter().map(|(_, sum)| sum).sum();
        let paired = Paired {
            observations: self.observations,
            candidate: Side { sum: sum(self), unbounded: 0 },
            incumbent: Side { sum: sum(other), unbounded: 0 },
            draws: differences.collect(),
        };
        paired.comparison(metric)?.standard_error
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
        /// A comparison survives a round trip through JSON for any losses: no field is `NaN` or
        /// infinite.
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
                prop_assert!(sound || comparison.misses(-10.0, 100.0), "a prediction that is not a number misses the margin");
            }
        }
    }

    #[test]
    fn the_standard_error_of_a_loss_is_that_of_its_draws() {
        // Draws of one observation each: a mean of 2.5 and a sample variance of 5/3.
        let draws = || [1.0, 2.0, 3.0, 4.0].map(|loss| vec![loss]);
        let loss = HeldOutLoss::of(Metric::LogLoss, draws());
        assert_eq!((loss.observations, loss.value), (4, Some(2.5)));
        assert!((loss.standard_error.unwrap() - (5.0_f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
        // To first order, the error of a root is that of its square, divided by twice the root.
        let root = HeldOutLoss::of(Metric::Rmse, draws());
        assert_eq!(root.value, Some(2.5_f64.sqrt()));
        let expected = loss.standard_error.unwrap() / (2.0 * 2.5_f64.sqrt());
        assert!((root.standard_error.unwrap() - expected).abs() < 1e-12, "{root:?}");
        let broken = HeldOutLoss::of(Metric::Rmse, [vec![1.0, f64::NAN], vec![2.0]]);
        assert_eq!((broken.observations, broken.value, broken.standard_error), (3, None, None));
        assert_eq!(HeldOutLoss::of(Metric::Rmse, []), HeldOutLoss::default());
    }

    #[test]
    fn the_error_of_a_difference_is_that_of_the_pairs() {
        let draws: [(Vec<f64>, Vec<f64>); 3] =
            [(vec![1.0, 4.0], vec![1.5, 4.0]), (vec![9.0], vec![9.25]), (vec![2.0], vec![2.125])];
        let mut paired = Paired::default();
        for (ours, theirs) in &draws {
            paired.add(ours.iter().copied().zip(theirs.iter().copied()));
        }
        for metric in [Metric::Rmse, Metric::LogLoss] {
            let ours = HeldOutLoss::of(metric, draws.iter().map(|(ours, _)| ours.clone()));
            let theirs = HeldOutLoss::of(metric, draws.iter().map(|(_, theirs)| theirs.clone()));
            let expected = paired.comparison(metric).unwrap().standard_error.unwrap();
            let found = ours.difference_error(&theirs, metric).unwrap();
            // Sums of differences and differences of sums round differently.
            assert!((found - expected).abs() < 1e-12, "{found} and {expected}");
            assert!(found < ours.standard_error.unwrap() / 5.0, "what is hard for both cancels out");
            let fewer = HeldOutLoss::of(metric, [vec![1.0], vec![9.0], vec![2.0]]);
            assert_eq!(ours.difference_error(&fewer, metric), None);
        }
    }

    #[test]
    fn one_draw_gives_no_standard_error() {
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
