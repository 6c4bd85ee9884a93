//! `--protocol context`: what computed parts of the features add where clicks depend on item and context together.
//!
//! The stream is generated ([`celeris_datasets::synthetic::clicks`]), so that the true probabilities are known. The train
//! job fits two models of one `dim` to its first half, with parts and without. Then users' states learn that half, and
//! every row of the second half is predicted before it is learnt, as on a node. Vowpal Wabbit gets the same rows in the
//! same order. Last, policies choose among random items for the users and contexts of the second half, and states learn
//! from clicks that are drawn from the truth.

mod regret;
mod report;
mod served;
mod training;
mod vowpal_wabbit;

use celeris_bandits::PolicySpec;
use celeris_datasets::synthetic::clicks::{ClickRow, ClickSettings, Clicks};
use celeris_features::LoadedVersion;
use celeris_model::ModelError;
use serde::Serialize;

use self::regret::play;
use self::served::Served;
use self::training::{Training, parts};
use crate::EvaluateSettings;
use crate::peers::Python;
use crate::probabilities::{Predicted, Quality};
use crate::progress::Part;

pub use self::regret::Regret;
pub use self::report::Target;
pub use self::vowpal_wabbit::VowpalWabbit;

/// Number of items that a policy chooses from.
const CANDIDATES: usize = 20;

/// Width of the exploring policy: below that of the posterior itself, as states are taken over from the first half.
const THOMPSON_ALPHA: f64 = 0.5;

/// The report of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ContextReport {
    /// `"context"`.
    pub protocol: &'static str,
    /// The length of feature and weight vectors.
    pub dim: usize,
    /// The seed of stream, trainer and policies.
    pub seed: u64,
    pub users: usize,
    pub items: usize,
    /// Rows to train on, and rows that are predicted.
    pub rows: [usize; 2],
    /// The mean label of the training rows, for every row.
    pub base_rate: Quality,
    pub without_parts: Quality,
    pub with_parts: Quality,
    /// `None` if it is not installed or fails.
    pub vowpal_wabbit: Option<VowpalWabbit>,
    /// The true probabilities.
    pub truth: Quality,
    /// Number of items of a set that policies choose from.
    pub candidates: usize,
    pub regret: Vec<Regret>,
    pub targets: Vec<Target>,
}

/// Runs the protocol. The seed of the settings is that of the stream too.
///
/// # Errors
/// If the stream cannot be generated or trained on.
pub fn evaluate_context(stream: &ClickSettings, settings: &EvaluateSettings) -> anyhow::Result<ContextReport> {
    let clicks = ClickSettings { seed: settings.seed, ..stream.clone() }.generate()?;
    let (first, second) = clicks.rows.split_at(clicks.rows.len() / 2);
    anyhow::ensure!(!first.is_empty(), "the protocol needs two rows, got {}", clicks.rows.len());

    let training = Training::new(&clicks, first)?;
    let part = settings.stage("training without parts", None);
    let without = training.run("without", Vec::new(), settings, part)?;
    let part = settings.stage("training with parts", None);
    let with = training.run("with", parts()?, settings, part)?;

    settings.stage("predicting rows", Some(2 * second.len()));
    let (without, of_without) = progressive(&without, (&clicks, first, second), settings.part(0, 2))?;
    let (with, of_with) = progressive(&with, (&clicks, first, second), settings.part(1, 2))?;
    let rate = first.iter().filter(|row| row.clicked).count() as f64 / first.len() as f64;
    let truth = |row: &ClickRow| clicks.truth.probability(row.user, row.item, row.circumstances);

    let vowpal_wabbit = compared(settings, (&clicks, first, second), &training);
    let regret = regrets([&without, &with], (&clicks, second), settings)?;
    let mut report = ContextReport {
        protocol: "context",
        dim: settings.dim,
        seed: settings.seed,
        users: clicks.users.len(),
        items: clicks.items.len(),
        rows: [first.len(), second.len()],
        base_rate: quality(second, |_| rate),
        without_parts: of_without,
        with_parts: of_with,
        vowpal_wabbit,
        truth: quality(second, truth),
        candidates: CANDIDATES.min(clicks.items.len()),
        regret,
        targets: Vec::new(),
    };
    report.targets = report.compared();
    Ok(report)
}

/// Vowpal Wabbit on the same rows. If it cannot run, prints the error and returns `None`.
fn compared(
    settings: &EvaluateSettings,
    stream: (&Clicks, &[ClickRow], &[ClickRow]),
    training: &Training,
) -> Option<VowpalWabbit> {
    let python = Python::find()?;
    settings.stage("training Vowpal Wabbit", None);
    let loss = vowpal_wabbit::progressive_loss(&python, stream, training.folder());
    loss.inspect_err(|error| eprintln!("  vw_context.py: its line stays empty: {error:#}")).ok()
}

/// The states after the first rows, and the quality of the predictions of the second ones, each before it is learnt.
fn progressive<'v>(
    version: &'v LoadedVersion,
    (clicks, first, second): (&Clicks, &[ClickRow], &[ClickRow]),
    progress: Part,
) -> Result<(Served<'v>, Quality), ModelError> {
    let mut served = Served::new(version, clicks)?;
    for row in first {
        served.learn((row.user, row.item), row.circumstances, row.clicked)?;
    }
    let after_first = served.clone();
    let mut predicted = Vec::with_capacity(second.len());
    for (number, row) in second.iter().enumerate() {
        let probability = served.probability(row.user, row.item, row.circumstances);
        predicted.push(Predicted { label: label(row), probability });
        served.learn((row.user, row.item), row.circumstances, row.clicked)?;
        progress.at(number as f64 / second.len() as f64);
    }
    Ok((after_first, Quality::of(&predicted)))
}

fn label(row: &ClickRow) -> f64 {
    if row.clicked { 1.0 } else { 0.0 }
}

fn quality(rows: &[ClickRow], probability: impl Fn(&ClickRow) -> f64) -> Quality {
    let predicted = |row: &ClickRow| Predicted { label: label(row), probability: probability(row) };
    Quality::of(&rows.iter().map(predicted).collect::<Vec<_>>())
}

/// The regrets of each policy, without parts and with them.
fn regrets(
    [without, with]: [&Served; 2],
    stream: (&Clicks, &[ClickRow]),
    settings: &EvaluateSettings,
) -> anyhow::Result<Vec<Regret>> {
    let exploring = celeris_bandits::Thompson::new(THOMPSON_ALPHA)?;
    let policies = [PolicySpec::named("greedy")?, PolicySpec::Thompson(exploring)];
    let runs = 2 * policies.len();
    settings.stage("playing policies, in rows", Some(runs * stream.1.len()));
    let mut regrets = Vec::new();
    for (number, policy) in policies.into_iter().enumerate() {
        let regret = |served: &Served, run: usize| {
            play(served.clone(), stream, policy.policy(), (settings.seed, settings.part(2 * number + run, runs)))
        };
        let (without_parts, with_parts) = (regret(without, 0)?, regret(with, 1)?);
        regrets.push(Regret { policy, without_parts, with_parts, ratio: with_parts / without_parts });
    }
    Ok(regrets)
}

#[cfg(test)]
mod tests;
