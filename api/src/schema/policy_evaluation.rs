//! Off-policy evaluation on a model's own decisions.

use std::fmt;
use std::time::Instant;

use celeris_bandits::ope::{Evaluation, Interval, OpeSettings};
use celeris_bandits::{EpsilonGreedy, PolicySpec};
use celeris_manager::{EvaluationReport, EvaluationRequest, Skipped as SkippedDecisions};
use celeris_model::observation::LABEL_ABS_MAX;
use celeris_model::{ModelName, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::ids::Name;
use super::policies::{Policy, PolicyOrUniform};
use super::time::Time;
use crate::error::ApiError;
use crate::schema::time::timestamp;

/// Default number of decisions.
const DECISIONS_DEFAULT: usize = 1_000;

/// Maximum number of decisions of one request.
const DECISIONS_MAX: usize = 10_000;

/// Maximum of `switch_threshold`.
const SWITCH_THRESHOLD_MAX: f64 = 1e9;

/// The policy to evaluate, and the decisions to evaluate it on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EvaluateBody {
    #[serde(deserialize_with = "policy_or_uniform")]
    #[schema(value_type = PolicyOrUniform)]
    pub policy: PolicySpec,
    /// Only decisions from this time on; all of them by default.
    #[serde(default, deserialize_with = "timestamp")]
    #[schema(value_type = Option<Time>)]
    pub from: Option<Timestamp>,
    /// Only decisions before this time; up to the last one by default.
    #[serde(default, deserialize_with = "timestamp")]
    #[schema(value_type = Option<Time>)]
    pub to: Option<Timestamp>,
    /// Maximum number of decisions; 1000 by default. If there are more, a random sample is used.
    #[schema(minimum = 1, maximum = 10_000)]
    pub max_decisions: Option<usize>,
    /// The reward of shown slots without a reward; by default the label of the model's
    /// `default_reward`. If there is neither, decisions with such slots are excluded.
    #[schema(minimum = -1_000_000, maximum = 1_000_000)]
    pub missing_reward: Option<f64>,
    /// The largest importance weight with which SWITCH-DR corrects its reward model; 10 by default.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    pub switch_threshold: Option<f64>,
    /// The seed of sampling, cross-fitting folds and bootstrap resamples; 1 by default.
    #[schema(format = "uint64")]
    pub seed: Option<u64>,
}

fn policy_or_uniform<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PolicySpec, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if value == "uniform" {
        return Ok(PolicySpec::EpsilonGreedy(EpsilonGreedy::new(1.0).map_err(serde::de::Error::custom)?));
    }
    PolicySpec::deserialize(value).map_err(serde::de::Error::custom)
}

impl EvaluateBody {
    /// # Errors
    /// 422 with the name of the invalid field.
    pub fn request(self, model: ModelName, deadline: Instant) -> Result<EvaluationRequest, ApiError> {
        let decisions_max = self.max_decisions.unwrap_or(DECISIONS_DEFAULT);
        if !(1..=DECISIONS_MAX).contains(&decisions_max) {
            return Err(ApiError::field("max_decisions", format!("must be from 1 to {DECISIONS_MAX}")));
        }
        let defaults = OpeSettings::default();
        let switch_threshold = self.switch_threshold.unwrap_or(defaults.switch_threshold);
        if !(0.0..=SWITCH_THRESHOLD_MAX).contains(&switch_threshold) {
            return Err(ApiError::field("switch_threshold", format!("must be from 0 to {SWITCH_THRESHOLD_MAX}")));
        }
        let largest = f64::from(LABEL_ABS_MAX);
        if self.missing_reward.is_some_and(|reward| !(-largest..=largest).contains(&reward)) {
            return Err(ApiError::field("missing_reward", format!("must be between -{largest} and {largest}")));
        }
        Ok(EvaluationRequest {
            model,
            policy: self.policy,
            from: self.from,
            to: self.to,
            decisions_max,
            missing_reward: self.missing_reward,
            settings: OpeSettings { seed: self.seed.unwrap_or(defaults.seed), switch_threshold, ..defaults },
            deadline,
        })
    }
}

/// Decisions of the time span that were excluded, by reason.
#[derive(Debug, Serialize, ToSchema)]
pub struct Skipped {
    /// Not in the random sample, because there were more than `max_decisions`.
    pub not_sampled: u64,
    /// Not read within the time limit; request fewer decisions or a shorter time span.
    pub not_reached: u64,
    /// Only a digest of the candidates was recorded.
    pub candidates_not_kept: u64,
    /// The propensity of a slot is not (yet) known.
    pub propensity_unknown: u64,
    /// The request set the seed, so the ranking was not a random draw.
    pub seed_given: u64,
    /// A slot has no reward, and neither `missing_reward` nor a `default_reward` is set.
    pub reward_missing: u64,
    /// Made within the waiting time of the model's default reward, so that rewards may still
    /// arrive.
    pub reward_may_come: u64,
    /// The user's history has since been corrected or partly deleted.
    pub history_amended: u64,
    /// The version that scored was pruned.
    pub version_pruned: u64,
    /// The features of a candidate have since changed, or the weights with which several models
    /// answered together.
    pub inputs_changed: u64,
}

same_fields!(
    Skipped = SkippedDecisions {
        not_sampled,
        not_reached,
        candidates_not_kept,
        propensity_unknown,
        seed_given,
        reward_missing,
        reward_may_come,
        history_amended,
        version_pruned,
        inputs_changed,
    }
);

/// The estimated value of the policy.
#[derive(Debug, Serialize, ToSchema)]
pub struct EvaluateReply {
    #[schema(value_type = Name)]
    pub model: ModelName,
    pub policy: Policy,
    /// Number of decisions in the time span.
    pub decisions: u64,
    /// Number of decisions that the estimates use, one round each.
    pub rounds: usize,
    /// Number of slots of the rounds.
    pub slots: usize,
    /// Number of these slots with a reward.
    pub rewarded: usize,
    /// The share of the decisions that could be replayed which have a reward for any slot; null if
    /// there are none.
    pub rewarded_share: Option<f64>,
    /// The reward that slots without a reward counted as; null if decisions with such slots were
    /// excluded.
    pub missing_reward: Option<f64>,
    /// The excluded decisions, by reason.
    pub skipped: Skipped,
    /// The reward per round of the logged rankings themselves; null if there are no rounds.
    pub logged: Option<Span>,
    /// The mean importance weight, expected to be 1. For rankings, that of the slot whose mean
    /// deviates most from 1.
    pub mean_weight: Option<f64>,
    /// The largest importance weight.
    pub largest_weight: Option<f64>,
    /// The estimates, by the name of the estimator; null if there are no rounds.
    pub estimators: Option<Estimators>,
}

pub fn describe(request: EvaluationRequest, found: &EvaluationReport) -> EvaluateReply {
    let evaluation = found.evaluation.as_ref();
    EvaluateReply {
        model: request.model,
        policy: request.policy.into(),
        decisions: found.decisions,
        rounds: found.used,
        slots: found.slots,
        rewarded: found.rewarded,
        rewarded_share: found.rewarded_share,
        missing_reward: found.missing_reward,
        skipped: found.skipped.into(),
        logged: evaluation.map(|evaluation| evaluation.logged.into()),
        mean_weight: evaluation.map(|evaluation| evaluation.mean_weight),
        largest_weight: evaluation.map(|evaluation| evaluation.largest_weight),
        estimators: evaluation.map(Estimators::from),
    }
}

/// A value with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, ToSchema)]
pub struct Span {
    /// Reward per round.
    pub value: f64,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
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

/// The result of one estimator.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EstimateReport {
    /// The estimated value of the policy, as reward per round; null if the estimate is refused.
    pub value: Option<f64>,
    /// Lower bound of the 95 % interval.
    pub low: Option<f64>,
    /// Upper bound of the interval.
    pub high: Option<f64>,
    /// The effective sample size (Kish): the number of equally weighted rounds with the same
    /// information.
    pub effective_sample_size: f64,
    /// Why the estimate is refused; absent if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub refused: Option<String>,
}

/// The results of all estimators.
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
    /// The results with their names, in a fixed order.
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
