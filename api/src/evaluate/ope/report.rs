//! Estimates as they are told, on the command line and over HTTP.

use std::fmt;

use celeris_bandits::ope::{Evaluation, Interval};
use serde::Serialize;
use utoipa::ToSchema;

/// A value with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct Span {
    /// Reward a round.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl From<Interval> for Span {
    fn from(interval: Interval) -> Self {
        Self { value: interval.value, low: interval.low, high: interval.high }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{:.5}  [{:.5}, {:.5}]", self.value, self.low, self.high)
    }
}

/// What one estimator says.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EstimateReport {
    /// The policy's value, reward a round; null where the estimate is refused.
    pub value: Option<f64>,
    /// The lower end of its 95 % interval.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// How many equally weighted rounds tell as much (Kish).
    pub effective_sample_size: f64,
    /// Why the estimate is refused, where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// What each estimator says.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Estimators {
    replay: EstimateReport,
    ips: EstimateReport,
    snips: EstimateReport,
    dm: EstimateReport,
    dr: EstimateReport,
    sndr: EstimateReport,
    switch_dr: EstimateReport,
}

impl Estimators {
    /// Each with its name, in a fixed order.
    pub fn named(&self) -> [(&'static str, &EstimateReport); 7] {
        let Self { replay, ips, snips, dm, dr, sndr, switch_dr } = self;
        [
            ("replay", replay),
            ("ips", ips),
            ("snips", snips),
            ("dm", dm),
            ("dr", dr),
            ("sndr", sndr),
            ("switch_dr", switch_dr),
        ]
    }
}

impl From<&Evaluation> for Estimators {
    fn from(evaluation: &Evaluation) -> Self {
        let report = |index: usize| {
            let estimate = &evaluation.estimates[index];
            let span = estimate.outcome.as_ref().ok();
            EstimateReport {
                value: span.map(|span| span.value),
                low: span.map(|span| span.low),
                high: span.map(|span| span.high),
                effective_sample_size: estimate.effective_sample_size,
                refused: estimate.outcome.as_ref().err().map(ToString::to_string),
            }
        };
        // The order of `Estimator::ALL`.
        let [replay, ips, snips, dm, dr, sndr, switch_dr] = std::array::from_fn(report);
        Self { replay, ips, snips, dm, dr, sndr, switch_dr }
    }
}

/// The estimates as lines of a table.
pub fn table(estimators: &Estimators) -> String {
    let mut text = format!("  {:<10} {:>9}  {:<20} {:>12}\n", "", "value", "95 % interval", "effective");
    for (name, estimate) in estimators.named() {
        let line = match (estimate.value, estimate.low, estimate.high) {
            (Some(value), Some(low), Some(high)) => {
                let interval = format!("[{low:.5}, {high:.5}]");
                format!("  {name:<10} {value:>9.5}  {interval:<20} {:>12.1}\n", estimate.effective_sample_size)
            }
            _ => format!("  {name:<10} refused: {}\n", estimate.refused.as_deref().unwrap_or_default()),
        };
        text.push_str(&line);
    }
    text
}
