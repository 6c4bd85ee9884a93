//! `--protocol ope`: what a policy would have earned on a log of the Open Bandit Dataset.
//!
//! Every impression is a round of one slot. [`policy`] knows the probabilities of the policy that is judged,
//! [`regression`] what the reward model sees, [`report`] how the answer is told; the estimators are those of
//! [`celeris_bandits::ope`].

pub mod policy;
pub mod regression;
pub mod report;

use std::fmt;

use anyhow::Context;
use celeris_bandits::ope::reward_model::RewardRow;
use celeris_bandits::ope::{Expectation, LoggedSlot, OpeSettings, RewardModel, Rounds, evaluate};
use celeris_datasets::OpenBandit;
use serde::Serialize;

use self::policy::Judged;
use self::regression::Regression;
use self::report::table;
use celeris_api::schema::policy_evaluation::{Estimators, Span};

/// What the protocol found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpeReport {
    /// `"ope"`.
    pub protocol: &'static str,
    /// The log's name.
    pub dataset: String,
    /// The policy that is judged, in words.
    pub policy: String,
    /// Impressions judged on.
    pub rounds: usize,
    /// Impressions before these, from whose clicks a named policy has learnt its scores.
    pub learnt_from: usize,
    /// Items and positions of the campaign.
    pub items: usize,
    /// Positions that occur.
    pub positions: usize,
    /// What the logging policy earned on these rounds: clicks an impression.
    pub logged: Span,
    /// What the judged policy earned where it served itself; where it is given as a log of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earned: Option<Span>,
    /// The mean importance weight; 1 is expected.
    pub mean_weight: f64,
    /// The largest.
    pub largest_weight: f64,
    /// Resamples behind each interval.
    pub resamples: usize,
    /// Folds of the reward model.
    pub folds: usize,
    /// Its regularization.
    pub regularization: f64,
    /// The largest weight that SWITCH-DR corrects its model with.
    pub switch_threshold: f64,
    /// Seeds folds and resamples.
    pub seed: u64,
    /// The estimators by name.
    pub estimators: Estimators,
}

/// How to estimate, and how to model rewards.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Settings {
    /// Of the estimators.
    pub ope: OpeSettings,
    /// Of the reward model.
    pub model: RewardModel,
}

/// Judges a policy on a log.
///
/// # Errors
/// Where the policy does not fit the log.
pub fn evaluate_ope(log: &OpenBandit, judged: &Judged, settings: &Settings) -> anyhow::Result<OpeReport> {
    let rounds = rounds(log, judged, settings)?;
    let evaluation = evaluate(&rounds, &settings.ope).context("the log leaves no impressions to judge on")?;
    Ok(OpeReport {
        protocol: "ope",
        dataset: log.name.clone(),
        policy: judged.name.clone(),
        rounds: rounds.len(),
        learnt_from: judged.rounds.start,
        items: log.items,
        positions: log.positions.len(),
        logged: evaluation.logged.into(),
        earned: judged.earned,
        mean_weight: evaluation.mean_weight,
        largest_weight: evaluation.largest_weight,
        resamples: settings.ope.resamples,
        folds: settings.model.folds,
        regularization: settings.model.regularization,
        switch_threshold: settings.ope.switch_threshold,
        seed: settings.ope.seed,
        estimators: Estimators::from(&evaluation),
    })
}

/// The log as the estimators see it, under the policy that is judged.
///
/// # Errors
/// Where the reward model cannot be fitted.
pub fn rounds(log: &OpenBandit, judged: &Judged, settings: &Settings) -> anyhow::Result<Rounds> {
    let expectations = expectations(log, judged, settings)?;
    let mut rounds = Rounds::default();
    for (index, expectation) in judged.rounds.clone().zip(expectations) {
        let impression = &log.impressions[index];
        rounds.push(&[LoggedSlot {
            reward: f64::from(impression.click),
            propensity: impression.propensity,
            target: judged.probabilities(log, index)[impression.item],
            expected: expectation.expected,
            expected_target: expectation.expected_target,
            leverage: expectation.leverage,
            leverage_switched: expectation.leverage_switched,
        }])?;
    }
    Ok(rounds)
}

fn expectations(log: &OpenBandit, judged: &Judged, settings: &Settings) -> anyhow::Result<Vec<Expectation>> {
    let row = |(round, index): (usize, usize)| {
        let shown = &log.impressions[index];
        let weight = judged.probabilities(log, index)[shown.item] / shown.propensity;
        RewardRow {
            round,
            position: shown.position,
            reward: f64::from(shown.click),
            weight_above: 1.0,
            kept_weight: settings.ope.kept(weight),
        }
    };
    let rows: Vec<RewardRow> = judged.rounds.clone().enumerate().map(row).collect();
    Ok(settings.model.cross_fit(&rows, &Regression::new(log, judged))?)
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
        writeln!(out, "  mean weight {:.3}, largest {:.3}", self.mean_weight, self.largest_weight)?;
        write!(out, "{}", table(&self.estimators))
    }
}
