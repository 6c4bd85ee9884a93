//! `--protocol ope` on a log of decisions in dsjson.
//!
//! Every decision is a round. [`policy`] provides the probabilities of the evaluated policy, [`features`] the features of
//! the reward model, and [`report`] what is printed; the estimators are those of [`celeris_bandits::ope`]. The log is
//! read once for each of these, and not held in memory.

pub mod features;
pub mod policy;
pub mod report;

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, ensure};
use celeris_bandits::ope::reward_model::RewardRow;
use celeris_bandits::ope::{Estimator, LoggedSlot, RewardFeatures, Rounds, evaluate, values};
use celeris_datasets::dsjson::{Decisions, LoggedDecision};
use xxhash_rust::xxh3::xxh3_64;

use self::features::{DIM, Featurizer};
use self::policy::LoggedPolicy;
use self::report::{LoggedReport, Plain};
use super::{Estimated, Settings};
use crate::Progress;

/// Maximum number of slots of all decisions: some 700 MB.
pub const SLOTS_MAX: usize = 1_000_000;

/// Evaluates a policy on a log: a file, or a folder of files.
///
/// # Errors
/// If the log cannot be read, holds no decisions or more than [`SLOTS_MAX`] slots, or the policy does not match it.
pub fn evaluate_logged(
    path: &Path,
    mut policy: LoggedPolicy,
    settings: &Settings,
    progress: &dyn Progress,
) -> anyhow::Result<LoggedReport> {
    if matches!(policy, LoggedPolicy::Named(_)) {
        progress.begin("learning scores from the first half of the log", None);
    }
    let learnt_from = policy.learn(path)?;
    progress.begin("computing the probabilities of the policy", None);
    let mut slots = Slots::default();
    let mut decisions = Decisions::open(path)?;
    let (mut index, mut events, mut repeated, mut rounds) = (0, HashSet::new(), 0, 0);
    let mut kept: (f64, f64) = (f64::INFINITY, 0.0);
    while let Some(decision) = decisions.advance()? {
        index += 1;
        if let Some(event) = &decision.event_id {
            repeated += u64::from(!events.insert(xxh3_64(event.as_bytes())));
        }
        if index <= learnt_from {
            continue;
        }
        kept = (kept.0.min(decision.kept_probability), kept.1.max(decision.kept_probability));
        slots.push(&decision, &mut policy, (rounds, settings)).with_context(|| of_event(index, &decision))?;
        rounds += 1;
    }
    policy.finish(index)?;
    ensure!(rounds > 0, "{}: holds no decisions with a label to evaluate on", path.display());
    let left_out = decisions.left_out();
    progress.begin("estimating the value of the policy, by resamples", Some(settings.ope.resamples as u64));
    let rounds = slots.rounds(settings)?;
    let evaluation = evaluate(&rounds, &settings.ope).context("the log leaves no decisions to evaluate on")?;
    Ok(LoggedReport {
        protocol: "ope",
        dataset: path.display().to_string(),
        policy: policy.name(),
        rounds: rounds.len(),
        slots: slots.rows.len(),
        learnt_from,
        repeated_events: repeated,
        left_out: left_out.into(),
        kept_probability: kept.into(),
        logged: evaluation.logged.into(),
        estimated: Estimated::of(&evaluation, settings),
        plain: plain(&rounds, settings),
    })
}

/// The place of a decision, for messages.
fn of_event(index: usize, decision: &LoggedDecision) -> String {
    let event = decision.event_id.as_deref().unwrap_or("without an id");
    format!("decision {index} (event {event})")
}

/// The values of all estimators, whether the log supports them or not.
fn plain(rounds: &Rounds, settings: &Settings) -> Plain {
    let values = values(rounds, &settings.ope);
    let value = |estimator: Estimator| {
        let place = Estimator::ALL.iter().position(|other| *other == estimator);
        place.map(|place| values[place]).filter(|value| value.is_finite())
    };
    Plain {
        ips: value(Estimator::Ips),
        snips: value(Estimator::Snips),
        dm: value(Estimator::Dm),
        dr: value(Estimator::Dr),
        sndr: value(Estimator::Sndr),
        switch_dr: value(Estimator::SwitchDr),
    }
}

/// The slots of the evaluated decisions.
#[derive(Default)]
struct Slots {
    rows: Vec<RewardRow>,
    logged: Vec<LoggedSlot>,
    /// How many decisions each round stands for.
    stands_for: Vec<f64>,
    /// Row-major, [`DIM`] for each slot: those of the shown item, and their mean over the policy's choices.
    shown: Vec<f32>,
    mean: Vec<f32>,
}

impl Slots {
    fn push(
        &mut self,
        decision: &LoggedDecision,
        policy: &mut LoggedPolicy,
        (round, settings): (usize, &Settings),
    ) -> anyhow::Result<()> {
        ensure!(
            self.rows.len() + decision.choices.len() <= SLOTS_MAX,
            "the log has more than {SLOTS_MAX} slots; evaluate a part of it"
        );
        let featurizer = Featurizer::new(decision);
        let mut weight_above = 1.0;
        let stands_for = 1.0 / decision.kept_probability;
        self.stands_for.push(stands_for);
        policy.begin(decision)?;
        for (position, choice) in decision.choices.iter().enumerate() {
            let likely = policy.probabilities(decision, position, &featurizer)?;
            let place = choice.candidates.iter().position(|candidate| *candidate == choice.action);
            let target = place.map_or(0.0, |place| likely[place]);
            let mut mean = [0.0f64; DIM];
            for (candidate, probability) in choice.candidates.iter().zip(&likely).filter(|(_, share)| **share > 0.0) {
                for (sum, feature) in mean.iter_mut().zip(featurizer.of(*candidate)) {
                    *sum += probability * f64::from(feature);
                }
            }
            let logged = LoggedSlot {
                // A cost of 0 is a reward of 0, not of -0.
                reward: 0.0 - choice.cost,
                propensity: choice.probability,
                target,
                expected: 0.0,
                expected_target: 0.0,
                leverage: 0.0,
                leverage_switched: 0.0,
            };
            let weight = weight_above * logged.ratio();
            self.rows.push(RewardRow {
                round,
                position,
                reward: logged.reward,
                weight_above: stands_for * weight_above,
                kept_weight: stands_for * settings.ope.kept(weight),
            });
            self.logged.push(logged);
            self.shown.extend(featurizer.of(choice.action));
            #[expect(clippy::cast_possible_truncation, reason = "means of f32")]
            self.mean.extend(mean.map(|value| value as f32));
            weight_above = weight;
        }
        Ok(())
    }

    /// The rounds of the estimators.
    fn rounds(&self, settings: &Settings) -> anyhow::Result<Rounds> {
        let expectations = settings.model.cross_fit(&self.rows, self)?;
        let mut rounds = Rounds::default();
        let mut round: Vec<LoggedSlot> = Vec::new();
        for (index, (logged, expectation)) in self.logged.iter().zip(expectations).enumerate() {
            round.push(LoggedSlot {
                expected: expectation.expected,
                expected_target: expectation.expected_target,
                leverage: expectation.leverage,
                leverage_switched: expectation.leverage_switched,
                ..*logged
            });
            let is_last = self.rows.get(index + 1).is_none_or(|next| next.round != self.rows[index].round);
            if is_last {
                rounds.push_weighted(&round, self.stands_for[self.rows[index].round])?;
                round.clear();
            }
        }
        Ok(rounds)
    }
}

impl RewardFeatures for Slots {
    fn dim(&self) -> usize {
        DIM
    }

    fn write(&self, slot: usize, shown: &mut [f64], target: &mut [f64]) {
        let row = slot * DIM..(slot + 1) * DIM;
        for (out, value) in shown.iter_mut().zip(&self.shown[row.clone()]) {
            *out = f64::from(*value);
        }
        for (out, value) in target.iter_mut().zip(&self.mean[row]) {
            *out = f64::from(*value);
        }
    }
}
