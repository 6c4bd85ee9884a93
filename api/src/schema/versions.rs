//! Versions of a model, their gate reports, and comparisons of two versions.

use std::collections::BTreeMap;

use celeris_manager::{self as manager, ItemsOnlyIn};
use celeris_model::{HalfLife, ItemId};
use serde::Serialize;
use utoipa::ToSchema;

use super::ids::Id;
use super::settings::Metric;

/// A version.
#[derive(Debug, Serialize, ToSchema)]
pub struct Version {
    /// The number of the version, counted from 1.
    pub version: u64,
    /// Whether the version is active.
    pub active: bool,
    /// The version that was active when the training of this one started.
    pub parent: Option<u64>,
    /// The version whose factors the training warm-started from; null if it was trained from
    /// scratch.
    pub warm_from: Option<u64>,
    /// The algorithm that trained the version, as the trainer reports it.
    pub algorithm: String,
    /// In Unix milliseconds.
    pub created: i64,
    /// The length of feature and weight vectors, including the constant.
    pub dim: usize,
    /// Number of items in the version's table.
    pub items: u64,
    /// Its computed parts.
    pub parts: Vec<VersionPart>,
    /// The smallest and the largest label of the training data; null if it is not known.
    #[schema(value_type = Option<Vec<f32>>, min_items = 2, max_items = 2)]
    pub label_range: Option<(f32, f32)>,
    /// The half-life in seconds under which users of this version learn; a changed setting of the model
    /// takes effect with the next version. Null if observations do not decay.
    #[schema(value_type = Option<f64>)]
    pub half_life: Option<HalfLife>,
    /// Metrics of the trainer.
    pub metrics: BTreeMap<String, f64>,
    /// Whether the version is pinned, so that it is not pruned.
    pub pinned: bool,
    /// Whether a rollback would activate this version.
    pub rollback_target: bool,
    /// The gate's evaluation; null if the gate did not evaluate the version.
    pub gate: Option<GateReport>,
    /// The position in the log of the stream up to which it was trained, by partition; null if it
    /// was not trained on the log.
    #[schema(value_type = Option<Vec<u64>>)]
    pub watermark: Option<celeris_storage::Watermark>,
    /// Number of users who were erased after the version was trained on their observations.
    pub erased_users: usize,
    /// A warning to consider before activation; null if there is none.
    pub warning: Option<String>,
}

/// A computed part of a version.
#[derive(Debug, Serialize, ToSchema)]
pub struct VersionPart {
    /// Its name.
    pub part: String,
    /// The fields, as `context.hour`, that no observation of the training had in a form that the pipeline can read.
    pub unread_fields: Vec<String>,
    /// Whether its columns were the same in all observations, or none had it.
    pub is_constant: bool,
}

impl From<manager::VersionPart> for VersionPart {
    fn from(manager::VersionPart { part, unread_fields, is_constant }: manager::VersionPart) -> Self {
        Self { part, unread_fields, is_constant }
    }
}

/// All versions, newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = VersionList)]
pub struct Versions {
    pub versions: Vec<Version>,
}

/// The active version after an activation or rollback.
#[derive(Debug, Serialize, ToSchema)]
pub struct Activated {
    /// The version that is active now.
    pub active_version: u64,
    /// A warning about the version; null if there is none.
    pub warning: Option<String>,
}

/// Items that only one of the versions has.
#[derive(Debug, Serialize, ToSchema)]
pub struct DifferentItems {
    /// Number of these items.
    pub count: usize,
    /// The first hundred of these items, by id.
    #[schema(value_type = Vec<Id>)]
    pub first: Vec<ItemId>,
}

impl From<ItemsOnlyIn> for DifferentItems {
    fn from(ItemsOnlyIn { count, first }: ItemsOnlyIn) -> Self {
        Self { count, first }
    }
}

/// How much rankings differ, as means over users.
#[derive(Debug, Serialize, ToSchema)]
pub struct Rankings {
    /// Number of users, sampled from the newest observations.
    pub users: usize,
    /// Number of items, sampled from both tables.
    pub items: usize,
    /// The share of the ten best items that both rankings have in common.
    pub overlap_at_10: f64,
    /// Kendall's tau: 1 if both rankings are equal, -1 if one is the reverse of the other.
    pub kendall_tau: f64,
}

/// The differences between version `to` and version `from`.
#[derive(Debug, Serialize, ToSchema)]
pub struct Diff {
    pub from: Version,
    pub to: Version,
    /// Items that only `to` has.
    pub items_added: DifferentItems,
    /// Items that only `from` has.
    pub items_removed: DifferentItems,
    /// The metric of the losses.
    pub measure: Metric,
    /// `to` as the candidate and `from` as the incumbent, on the newest observations; null if there
    /// are none.
    pub loss: Option<Comparison>,
    /// The difference of rankings; null if there are no users or no items to rank.
    pub rankings: Option<Rankings>,
}

/// The losses of two versions on the same observations. A figure that is not a finite number is
/// null.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct Comparison {
    /// The metric of the losses.
    pub metric: Metric,
    /// Number of observations.
    pub observations: u64,
    /// The candidate's loss; null if one of its predictions was not a number.
    pub candidate: Option<f64>,
    /// The incumbent's loss; null if one of its predictions was not a number.
    pub incumbent: Option<f64>,
    /// The candidate's loss minus the incumbent's loss.
    pub difference: Option<f64>,
    /// The standard error of the difference; null for a single draw.
    pub standard_error: Option<f64>,
}

impl From<manager::Comparison> for Comparison {
    fn from(comparison: manager::Comparison) -> Self {
        let manager::Comparison { metric, observations, candidate, incumbent, difference, standard_error } = comparison;
        Self { metric: metric.into(), observations, candidate, incumbent, difference, standard_error }
    }
}

mirror_enum! {
    /// The verdict of the gate.
    Verdict = manager::Verdict {
        /// The candidate may be activated.
        Passed,
        /// The candidate is kept without being activated.
        Refused,
        /// There is too little data for an evaluation; the candidate may be activated.
        NotJudged,
        /// The candidate would have been refused, and may be activated because of `gate.force`.
        Forced,
    }
}

/// The gate's evaluation of a candidate.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct GateReport {
    pub verdict: Verdict,
    /// The reason for the verdict, as text with figures.
    pub why: String,
    /// The version that was active.
    pub incumbent: u64,
    /// The metric of the losses on the holdout and on the pool.
    pub measure: Metric,
    /// The required margin.
    pub margin: f64,
    /// The comparison on the holdout of the log.
    pub holdout: Option<Comparison>,
    /// The comparison on the part of the holdout that belongs to the validation pool, if it is
    /// large enough.
    pub pool: Option<Comparison>,
    /// The comparison on live traffic, if `gate.shadow_seconds` is set.
    pub shadow: Option<Comparison>,
    /// Duration of the evaluation, in seconds.
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
