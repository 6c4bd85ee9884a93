//! `--protocol ope`: off-policy evaluation of a policy on a log of the Open Bandit Dataset; on one in dsjson, see
//! [`dsjson`].
//!
//! Every impression is a round of one slot. [`policy`] provides the probabilities of the evaluated
//! policy, [`regression`] the features of the reward model, and [`report`] the printed table; the
//! estimators are those of [`celeris_bandits::ope`].

pub mod dsjson;
pub mod policy;
pub mod regression;
pub mod report;

use std::fmt;

use anyhow::Context;
use celeris_bandits::ope::reward_model::RewardRow;
use celeris_bandits::ope::{Evaluation, Expectation, LoggedSlot, OpeSettings, RewardModel, Rounds, evaluate};
use celeris_datasets::OpenBandit;
use serde::Serialize;

use self::policy::EvaluatedPolicy;
use self::regression::Regression;
use self::report::table;
use celeris_api::schema::policy_evaluation::{Estimators, Span};

/// The report of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpeReport {
    /// `"ope"`.
    pub protocol: &'static str,
    /// The name of the log.
    pub dataset: String,
    /// The name of the evaluated policy.
    pub policy: String,
    /// Number of evaluated impressions.
    pub rounds: usize,
    /// Number of earlier impressions, from whose clicks a named policy has learnt its scores.
    pub learnt_from: usize,
    /// Number of items of the campaign.
    pub items: usize,
    /// Number of positions of the campaign.
    pub positions: usize,
    /// The reward of the logging policy on these rounds: clicks per impression.
    pub logged: Span,
    /// The reward of the evaluated policy when it served itself, if it is given as another log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earned: Option<Span>,
    #[serde(flatten)]
    pub estimated: Estimated,
}

/// What the estimators say, and with which settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimated {
    /// The mean importance weight; its expectation is 1.
    pub mean_weight: f64,
    /// The largest importance weight.
    pub largest_weight: f64,
    /// Number of bootstrap resamples per interval.
    pub resamples: usize,
    /// Number of cross-fitting folds of the reward model.
    pub folds: usize,
    /// Regularization of the reward model.
    pub regularization: f64,
    /// The largest importance weight with which SWITCH-DR corrects its reward model.
    pub switch_threshold: f64,
    /// The seed of folds and resamples.
    pub seed: u64,
    /// The estimates, by the name of the estimator.
    pub estimators: Estimators,
}

impl Estimated {
    fn of(evaluation: &Evaluation, settings: &Settings) -> Self {
        Self {
            mean_weight: evaluation.mean_weight,
            largest_weight: evaluation.largest_weight,
            resamples: settings.ope.resamples,
            folds: settings.model.folds,
            regularization: settings.model.regularization,
            switch_threshold: settings.ope.switch_threshold,
            seed: settings.ope.seed,
            estimators: Estimators::from(evaluation),
        }
    }
}

/// Settings of the estimators and of the reward model.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Settings {
    /// Settings of the estimators.
    pub ope: OpeSettings,
    /// Settings of the reward model.
    pub model: RewardModel,
}

/// Evaluates a policy on a log.
///
/// # Errors
/// If the policy does not match the log.
pub fn evaluate_ope(log: &OpenBandit, evaluated: &EvaluatedPolicy, settings: &Settings) -> anyhow::Result<OpeReport> {
    let rounds = rounds(log, evaluated, settings)?;
    let evaluation = evaluate(&rounds, &settings.ope).context("the log leaves no impressions to evaluate on")?;
    Ok(OpeReport {
        protocol: "ope",
        dataset: log.name.clone(),
        policy: evaluated.name.clone(),
        rounds: rounds.len(),
        learnt_from: evaluated.rounds.start,
        items: log.items,
        positions: log.positions.len(),
        logged: evaluation.logged.into(),
        earned: evaluated.earned,
        estimated: Estimated::of(&evaluation, settings),
    })
}

/// The rounds of the estimators: the log under the evaluated policy.
///
/// # Errors
/// If the reward model cannot be fitted.
pub fn rounds(log: &OpenBandit, evaluated: &EvaluatedPolicy, settings: &Settings) -> anyhow::Result<Rounds> {
    let expectations = expectations(log, evaluated, settings)?;
    let mut rounds = Rounds::default();
    for (index, expectation) in evaluated.rounds.clone().zip(expectations) {
        let impression = &log.impressions[index];
        rounds.push(&[LoggedSlot {
            reward: f64::from(impression.click),
            propensity: impression.propensity,
            target: evaluated.probabilities(log, index)[impression.item],
            expected: expectation.expected,
            expected_target: expectation.expected_target,
            leverage: expectation.leverage,
            leverage_switched: expectation.leverage_switched,
        }])?;
    }
    Ok(rounds)
}

fn expectations(
    log: &OpenBandit,
    evaluated: &EvaluatedPolicy,
    settings: &Settings,
) -> anyhow::Result<Vec<Expectation>> {
    let row = |(round, index): (usize, usize)| {
        let shown = &log.impressions[index];
        let weight = evaluated.probabilities(log, index)[shown.item] / shown.propensity;
        RewardRow {
            round,
            position: shown.position,
            reward: f64::from(shown.click),
            weight_above: 1.0,
            kept_weight: settings.ope.kept(weight),
        }
    };
    let rows: Vec<RewardRow> = evaluated.rounds.clone().enumerate().map(row).collect();
    Ok(settings.model.cross_fit(&rows, &Regression::new(log, evaluated))?)
}

impl fmt::Display for OpeReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { dataset, policy, rounds, items, positions, .. } = self;
        writeln!(out, "{policy} on the log of {dataset}: {rounds} impressions, {items} items, {positions} positions")?;
        if self.learnt_from > 0 {
            writeln!(out, "  scores learnt from the {} impressions before", self.learnt_from)?;
        }
        writeln!(out, "  the log itself earned    {}", self.logged)?;
        if let Some(earned) = &self.earned {
            writeln!(out, "  the policy itself earned {earned}")?;
        }
        writeln!(out, "  mean weight {:.3}, largest {:.3}", self.estimated.mean_weight, self.estimated.largest_weight)?;
        write!(out, "{}", table(&self.estimated.estimators))
    }
}
