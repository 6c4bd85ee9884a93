//! Rewards by day, version and policy.

use celeris_manager::{RewardReport, RewardRow, RewardSums};
use celeris_model::ModelName;
use serde::Serialize;
use utoipa::ToSchema;

use super::ids::Name;

/// What the rankings of a model have earned, by day, version and policy.
#[derive(Debug, Serialize, ToSchema)]
pub struct RewardsReply {
    #[schema(value_type = Name)]
    pub model: ModelName,
    /// Number of days, today included.
    pub days: u32,
    /// The beginning of the first day in UTC, in Unix milliseconds.
    pub from: i64,
    /// When the rewards were counted, in Unix milliseconds: at most a minute ago.
    pub counted: i64,
    /// Number of decisions that were counted.
    pub decisions: u64,
    /// Whether these are all decisions on record of these days. Of more than 20,000 the first ones of each hour are counted;
    /// sums are then those of a part, and means those of a sample.
    pub complete: bool,
    /// By day, version and policy, the earliest day first; at most 5,000, the latest.
    pub rows: Vec<RewardsOf>,
}

/// What one policy has earned with one version on a day.
#[derive(Debug, Serialize, ToSchema)]
pub struct RewardsOf {
    /// The beginning of the day in UTC, in Unix milliseconds.
    day: i64,
    /// The model whose version has scored the candidates: the arm of a selection, which is the selection itself if all arms
    /// were combined; otherwise the model.
    #[schema(value_type = Name)]
    scored_by: ModelName,
    version: u64,
    /// The name of the policy.
    policy: String,
    /// Whether these are the rankings that were drawn uniformly for the validation pool, whatever the policy.
    pool: bool,
    /// Number of rankings.
    decisions: u64,
    /// Number of shown slots.
    slots: u64,
    /// Number of slots with a reward, default rewards included.
    rewards: u64,
    /// Number of slots whose reward is the default: none had arrived in time.
    defaults: u64,
    /// Sum of all rewards.
    reward: f64,
    /// Mean reward of the slots with a reward; null without any.
    mean_reward: Option<f64>,
    /// Sum of the rewards of a ranking, in the mean over all rankings.
    reward_per_decision: f64,
}

impl From<&RewardRow> for RewardsOf {
    fn from(row: &RewardRow) -> Self {
        let RewardSums { decisions, slots, rewards, defaults, sum } = row.sums;
        Self {
            day: row.day.0,
            scored_by: row.scored_by.clone(),
            version: row.version.0,
            policy: row.policy.clone(),
            pool: row.pool,
            decisions,
            slots,
            rewards,
            defaults,
            reward: sum,
            mean_reward: (rewards > 0).then(|| sum / rewards as f64),
            reward_per_decision: sum / decisions.max(1) as f64,
        }
    }
}

/// The reply about a model.
#[must_use]
pub fn describe(model: ModelName, days: u32, report: &RewardReport) -> RewardsReply {
    RewardsReply {
        model,
        days,
        from: report.from.0,
        counted: report.counted.0,
        decisions: report.decisions,
        complete: report.is_complete,
        rows: report.rows.iter().map(RewardsOf::from).collect(),
    }
}
