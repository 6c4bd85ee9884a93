//! Versions of a model, how they were judged, and how two of them differ.

use std::collections::BTreeMap;

use celeris_manager::{self as manager, ItemsOnlyIn};
use celeris_model::ItemId;
use serde::Serialize;
use utoipa::ToSchema;

use super::settings::Metric;

/// A version.
#[derive(Debug, Serialize, ToSchema)]
pub struct Version {
    pub version: u64,
    /// Whether it serves.
    pub active: bool,
    /// The version it was trained after.
    pub parent: Option<u64>,
    /// The version whose factors its training went on from; null where it was trained from nothing.
    pub warm_from: Option<u64>,
    pub algorithm: String,
    /// In Unix milliseconds.
    pub created: i64,
    pub dim: usize,
    /// Items in its table.
    pub items: u64,
    /// The smallest and largest label it was trained on.
    pub label_range: Option<(f32, f32)>,
    /// What the trainer measured.
    pub metrics: BTreeMap<String, f64>,
    /// Whether it is kept however old it is.
    pub pinned: bool,
    /// Whether a rollback leads to it.
    pub rollback_target: bool,
    /// How the gate judged it; null where it was not asked.
    pub gate: Option<GateReport>,
    /// Up to where it was trained on the log of its stream, by partition; null where it was not.
    #[schema(value_type = Option<Vec<u64>>)]
    pub watermark: Option<celeris_storage::Watermark>,
    /// Users who have been erased since it was trained on what they had said.
    pub erased_users: usize,
    /// What to mind before it is made to serve; null where there is nothing.
    pub warning: Option<String>,
}

/// All versions, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Versions {
    pub versions: Vec<Version>,
}

/// Which version serves now.
#[derive(Debug, Serialize, ToSchema)]
pub struct Activated {
    pub active_version: u64,
    /// What to mind about it; null where there is nothing.
    pub warning: Option<String>,
}

/// Items that one version has and the other has not.
#[derive(Debug, Serialize, ToSchema)]
pub struct DifferentItems {
    pub count: usize,
    /// The first hundred of them, by id.
    #[schema(value_type = Vec<String>)]
    pub first: Vec<ItemId>,
}

impl From<ItemsOnlyIn> for DifferentItems {
    fn from(ItemsOnlyIn { count, first }: ItemsOnlyIn) -> Self {
        Self { count, first }
    }
}

/// How far rankings move, as means over users.
#[derive(Debug, Serialize, ToSchema)]
pub struct Rankings {
    /// Users drawn from those of the newest observations.
    pub users: usize,
    /// Items drawn from both tables.
    pub items: usize,
    /// The share of the ten best that both have.
    pub overlap_at_10: f64,
    /// 1 where both rank alike, -1 where one is the reverse of the other.
    pub kendall_tau: f64,
}

/// How version `to` differs from version `from`.
#[derive(Debug, Serialize, ToSchema)]
pub struct Diff {
    pub from: Version,
    pub to: Version,
    /// Items of `to` only.
    pub items_added: DifferentItems,
    /// Items of `from` only.
    pub items_removed: DifferentItems,
    /// What losses are.
    pub measure: Metric,
    /// `to` as the candidate and `from` as the incumbent, on the newest observations; null where there are none.
    pub loss: Option<Comparison>,
    /// Null where there are no users or no items to rank.
    pub rankings: Option<Rankings>,
}

/// Two versions on the same observations. A figure that is no finite number is null.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct Comparison {
    /// What losses are.
    pub metric: Metric,
    /// How many.
    pub observations: u64,
    /// The candidate's loss; null where one of its predictions was no number.
    pub candidate: Option<f64>,
    /// The incumbent's; null likewise.
    pub incumbent: Option<f64>,
    /// The candidate's minus the incumbent's.
    pub difference: Option<f64>,
    /// The standard error of the difference; null of a single draw.
    pub standard_error: Option<f64>,
}

impl From<manager::Comparison> for Comparison {
    fn from(comparison: manager::Comparison) -> Self {
        let manager::Comparison { metric, observations, candidate, incumbent, difference, standard_error } = comparison;
        Self { metric: metric.into(), observations, candidate, incumbent, difference, standard_error }
    }
}

mirror_enum! {
    /// What the gate decided.
    Verdict = manager::Verdict {
        /// The candidate may serve.
        Passed,
        /// The candidate is kept, and does not serve.
        Refused,
        /// There is too little to judge by; the candidate may serve.
        NotJudged,
        /// The candidate would have been refused, and may serve since `gate.force` says so.
        Forced,
    }
}

/// How a candidate was judged.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct GateReport {
    pub verdict: Verdict,
    /// Why, in words and figures.
    pub why: String,
    /// The version that served.
    pub incumbent: u64,
    /// What losses are on the holdout and on the pool.
    pub measure: Metric,
    /// The margin that was asked for.
    pub margin: f64,
    /// On the held-out holdout of the log.
    pub holdout: Option<Comparison>,
    /// On what of the holdout belongs to the validation pool, where there is enough of it.
    pub pool: Option<Comparison>,
    /// On live traffic, where `gate.shadow_seconds` asks for it.
    pub shadow: Option<Comparison>,
    /// How long judging took.
    pub seconds: f64,
}

impl From<manager::GateReport> for GateReport {
    fn from(report: manager::GateReport) -> Self {
        let manager::GateReport { verdict, why, incumbent, measure, margin, holdout, pool, shadow, seconds } = report;
        Self {
            verdict: verdict.into(),
            why,
            incumbent: incumbent.0,
            measure: measure.into(),
            margin,
            holdout: holdout.map(Into::into),
            pool: pool.map(Into::into),
            shadow: shadow.map(Into::into),
            seconds,
        }
    }
}
