//! What a policy would have earned on a model's own decisions.

use std::fmt;
use std::time::Instant;

use celeris_bandits::ope::{Evaluation, Interval, OpeSettings};
use celeris_bandits::{EpsilonGreedy, PolicySpec};
use celeris_manager::{EvaluationRequest, PolicyEvaluation, Skipped as SkippedDecisions};
use celeris_model::observation::LABEL_ABS_MAX;
use celeris_model::{ModelName, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::policies::{Policy, PolicyOrUniform};
use super::time::Time;
use crate::error::ApiError;
use crate::extract::timestamp;

/// Decisions that are judged where the request does not say how many.
const DECISIONS_DEFAULT: usize = 1_000;

/// The most decisions of one request.
const DECISIONS_MAX: usize = 10_000;

/// The largest weight at which a correction may stop.
const SWITCH_THRESHOLD_MAX: f64 = 1e9;

/// Which policy to judge, and on what.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EvaluateBody {
    #[serde(deserialize_with = "policy_or_uniform")]
    #[schema(value_type = PolicyOrUniform)]
    pub policy: PolicySpec,
    /// Decisions from this moment on, all of them by default.
    #[serde(default, deserialize_with = "timestamp")]
    #[schema(value_type = Option<Time>)]
    pub from: Option<Timestamp>,
    /// Decisions before this moment; up to the last one by default.
    #[serde(default, deserialize_with = "timestamp")]
    #[schema(value_type = Option<Time>)]
    pub to: Option<Timestamp>,
    /// How many decisions to judge on, 1000 by default. Of more there is a random sample.
    #[schema(minimum = 1, maximum = 10_000)]
    pub max_decisions: Option<usize>,
    /// What a shown slot brought whose reward has not come; by default the label of the model's `default_reward`. Where
    /// neither is there, decisions with such a slot are left out.
    #[schema(minimum = -1_000_000, maximum = 1_000_000)]
    pub missing_reward: Option<f64>,
    /// The largest weight with which SWITCH-DR corrects its model; 10 by default.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    pub switch_threshold: Option<f64>,
    /// Seeds sample, folds and resamples; 1 by default.
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
    /// 422, naming the field.
    pub fn request(self, model: ModelName, deadline: Instant) -> Result<EvaluationRequest, ApiError> {
        let decisions_max = self.max_decisions.unwrap_or(DECISIONS_DEFAULT);
        if !(1..=DECISIONS_MAX).contains(&decisions_max) {
            return Err(ApiError::invalid(format!("max_decisions: must be from 1 to {DECISIONS_MAX}")));
        }
        let defaults = OpeSettings::default();
        let switch_threshold = self.switch_threshold.unwrap_or(defaults.switch_threshold);
        if !(0.0..=SWITCH_THRESHOLD_MAX).contains(&switch_threshold) {
            return Err(ApiError::invalid(format!("switch_threshold: must be from 0 to {SWITCH_THRESHOLD_MAX}")));
        }
        let largest = f64::from(LABEL_ABS_MAX);
        if self.missing_reward.is_some_and(|reward| !(-largest..=largest).contains(&reward)) {
            return Err(ApiError::invalid(format!("missing_reward: must be between -{largest} and {largest}")));
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

/// Decisions of the span of time that were not judged on, by reason.
#[derive(Debug, Serialize, ToSchema)]
pub struct Skipped {
    /// More than were asked for.
    pub not_sampled: u64,
    /// The request's time was up; ask for fewer, or for a shorter span.
    pub not_reached: u64,
    /// Only a digest of the candidates was kept.
    pub candidates_not_kept: u64,
    /// The propensity of a slot is not known (yet).
    pub propensity_unknown: u64,
    /// The request chose the seed, so that nothing was drawn at random.
    pub seed_given: u64,
    /// A slot has no reward, and neither `missing_reward` nor a `default_reward` says what that counts as.
    pub reward_missing: u64,
    /// Made within the wait for the model's default reward, so that rewards may still come.
    pub reward_may_come: u64,
    /// The user's history has been corrected or retracted in part since.
    pub history_amended: u64,
    /// The version that scored is not kept any more.
    pub version_pruned: u64,
    /// What was known of a candidate has changed since, or the weights by which several models answered together.
    pub scene_changed: u64,
}

impl From<SkippedDecisions> for Skipped {
    fn from(skipped: SkippedDecisions) -> Self {
        Self {
            not_sampled: skipped.not_sampled,
            not_reached: skipped.not_reached,
            candidates_not_kept: skipped.candidates_not_kept,
            propensity_unknown: skipped.propensity_unknown,
            seed_given: skipped.seed_given,
            reward_missing: skipped.reward_missing,
            reward_may_come: skipped.reward_may_come,
            history_amended: skipped.history_amended,
            version_pruned: skipped.version_pruned,
            scene_changed: skipped.scene_changed,
        }
    }
}

/// What the policy would have earned.
#[derive(Debug, Serialize, ToSchema)]
pub struct EvaluateReply {
    #[schema(value_type = String)]
    pub model: ModelName,
    pub policy: Policy,
    /// Decisions in the span of time.
    pub decisions: u64,
    /// Those that the estimates are over, one round each.
    pub rounds: usize,
    /// Their slots, and how many of these have a reward.
    pub slots: usize,
    pub rewarded: usize,
    /// Of the decisions that could be rebuilt, the share that has a reward for any of its slots; null where there are none.
    pub rewarded_share: Option<f64>,
    /// What slots without a reward counted as; null where decisions with such slots were left out.
    pub missing_reward: Option<f64>,
    /// The other decisions, by reason.
    pub skipped: Skipped,
    /// What these decisions themselves earned a round; null where there are none.
    pub logged: Option<Span>,
    /// The mean importance weight, of rankings that of the slot where it is farthest from the 1 that is expected.
    pub mean_weight: Option<f64>,
    /// The largest importance weight.
    pub largest_weight: Option<f64>,
    /// The estimators by name; null where there are no rounds.
    pub estimators: Option<Estimators>,
}

pub fn describe(request: EvaluationRequest, found: &PolicyEvaluation) -> EvaluateReply {
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
