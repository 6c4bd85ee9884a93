//! Report of the gate, stored with the version that it evaluated.

use celeris_model::VersionId;
use serde::{Deserialize, Serialize};

use crate::comparison::Comparison;
use crate::metric::Metric;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Passed,
    /// The candidate is kept but not activated.
    Refused,
    /// Too few observations; the candidate may serve.
    NotJudged,
    /// The candidate would have been refused, but `gate.force` is set.
    Forced,
}

/// Result of the evaluation of a candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateReport {
    pub verdict: Verdict,
    /// Reason, with figures.
    pub why: String,
    /// The active version at that time.
    pub incumbent: VersionId,
    /// Metric of the losses on the holdout and on the pool: `rmse`, `log_loss`, or `rank`, the
    /// share of random items that rank above the observed one.
    pub measure: Metric,
    /// The required margin.
    pub margin: f64,
    /// Comparison on the holdout.
    pub holdout: Option<Comparison>,
    /// Comparison on the part of the holdout in the validation pool, if it is large enough.
    pub pool: Option<Comparison>,
    /// Comparison on live traffic, if `gate.shadow_seconds` is set.
    #[serde(default)]
    pub shadow: Option<Comparison>,
    /// Duration of the evaluation.
    pub seconds: f64,
}

impl GateReport {
    #[must_use]
    pub fn lets_pass(&self) -> bool {
        self.verdict != Verdict::Refused
    }
}
