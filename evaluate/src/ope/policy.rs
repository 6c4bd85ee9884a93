//! The evaluated policy, as the probability of every item in every impression.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, ensure};
use celeris_bandits::PolicySpec;
use celeris_bandits::ope::target::next_slot;
use celeris_bandits::ope::{LoggedSlot, OpeSettings, Rounds, evaluate};
use celeris_datasets::OpenBandit;
use celeris_datasets::open_bandit::read_distribution;
use celeris_model::{Estimate, Example, Learning, Prior, Timestamp, UserModel};
use celeris_predictor::PolicyInputs;

use celeris_api::schema::policy_evaluation::Span;

/// The name of the uniform policy.
const UNIFORM: &str = "uniform";

/// The ridge parameter of the scoring model of named policies. Its uncertainty is in units of the
/// variance of a click.
const PRECISION: f64 = 1.0;

/// The seed of the simulation of policies without closed forms.
const SEED: u64 = 1;

/// A policy, and the impressions of a log on which it is evaluated.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluatedPolicy {
    /// The name of the policy.
    pub name: String,
    /// The reward of the policy when it served itself, if known.
    pub earned: Option<Span>,
    /// The evaluated impressions; earlier ones are the training data of the policy's scores.
    pub rounds: Range<usize>,
    /// Distinct distributions over the items, row-major.
    distributions: Vec<f64>,
    /// The index of the distribution of each impression of `rounds`.
    which: Vec<u32>,
}

impl EvaluatedPolicy {
    /// Parses `--policy`: `uniform`; the name of a policy, or its JSON object; the folder of
    /// another log, whose policy is estimated from its choices; or a file of item, position and
    /// probability.
    ///
    /// # Errors
    /// If it is none of these, or does not match the log.
    pub fn read(text: &str, log: &OpenBandit, settings: &OpeSettings) -> anyhow::Result<Self> {
        if text == UNIFORM {
            let uniform = vec![1.0 / log.items as f64; log.items * log.positions.len()];
            return Ok(Self::by_position(text.to_owned(), log, uniform));
        }
        let path = Path::new(text);
        if path.is_dir() {
            return Self::of_log(&OpenBandit::load(path)?, log, settings);
        }
        if path.is_file() {
            return Ok(Self::by_position(text.to_owned(), log, read_distribution(path, log)?));
        }
        let spec = if text.starts_with('{') {
            serde_json::from_str(text).with_context(|| format!("--policy {text}"))?
        } else {
            PolicySpec::named(text)
                .with_context(|| format!("--policy {text:?} is no file, and no policy that is known"))?
        };
        Self::learnt(text, &spec, log)
    }

    /// The probability of every item in one impression of the log, which must be one of `rounds`.
    #[must_use]
    pub fn probabilities(&self, log: &OpenBandit, impression: usize) -> &[f64] {
        let which = self.which[impression - self.rounds.start] as usize;
        &self.distributions[which * log.items..(which + 1) * log.items]
    }

    /// A policy that depends only on the position; `distributions` is row-major `positions x
    /// items`.
    fn by_position(name: String, log: &OpenBandit, distributions: Vec<f64>) -> Self {
        let which = log.impressions.iter().map(|impression| impression.position as u32).collect();
        Self { name, earned: None, rounds: 0..log.impressions.len(), distributions, which }
    }

    /// The policy of another log, estimated by how often it showed each item at each position.
    fn of_log(other: &OpenBandit, log: &OpenBandit, settings: &OpeSettings) -> anyhow::Result<Self> {
        ensure!(
            other.items == log.items && other.positions == log.positions,
            "--policy {}: has {} items and {} positions, the log has {} and {}",
            other.name,
            other.items,
            other.positions.len(),
            log.items,
            log.positions.len()
        );
        let mut shown = vec![0.0; log.items * log.positions.len()];
        let mut own = Rounds::default();
        for impression in &other.impressions {
            shown[impression.position * log.items + impression.item] += 1.0;
            let reward = f64::from(impression.click);
            own.push(&[LoggedSlot {
                reward,
                propensity: 1.0,
                target: 1.0,
                expected: 0.0,
                expected_target: 0.0,
                leverage: 0.0,
                leverage_switched: 0.0,
            }])?;
        }
        for position in shown.chunks_exact_mut(log.items) {
            let impressions: f64 = position.iter().sum();
            position.iter_mut().for_each(|count| *count /= impressions);
        }
        let earned = evaluate(&own, settings).map(|evaluation| evaluation.logged.into());
        Ok(Self { earned, ..Self::by_position(format!("the policy of {}", other.name), log, shown) })
    }

    /// A policy that needs scores, from a linear model trained on the clicks of the first half of
    /// the log. It is evaluated on the second half.
    fn learnt(name: &str, spec: &PolicySpec, log: &OpenBandit) -> anyhow::Result<Self> {
        let half = log.impressions.len() / 2;
        let scorer = Scorer::learn(log, half)?;
        let mut evaluated = Self {
            name: name.to_owned(),
            earned: None,
            rounds: half..log.impressions.len(),
            distributions: Vec::new(),
            which: Vec::new(),
        };
        // Users differ only by their affinities, which most do not have.
        let mut known: HashMap<Vec<(u16, u32)>, u32> = HashMap::new();
        for index in evaluated.rounds.clone() {
            let affinities: Vec<(u16, u32)> =
                log.affinities(index).iter().map(|(item, size)| (*item, size.to_bits())).collect();
            let which = match known.get(&affinities) {
                Some(which) => *which,
                None => {
                    let which = known.len() as u32;
                    evaluated.distributions.extend(scorer.distribution(spec, log, index)?);
                    known.insert(affinities, which);
                    which
                }
            };
            evaluated.which.push(which);
        }
        Ok(evaluated)
    }
}

/// The model that has learnt these rows with their labels, one by one.
pub(super) fn learnt(
    learning: &Learning,
    rows: &[Vec<f32>],
    labels: impl IntoIterator<Item = f32>,
) -> anyhow::Result<UserModel> {
    let examples = rows.iter().zip(labels).map(|(features, label)| Example {
        features,
        label,
        offset: 0.0,
        weight: 1.0,
        timestamp: Timestamp::default(),
        taken_before: None,
        choice: &[],
    });
    let history: Vec<Example> = examples.collect();
    Ok(UserModel::rebuild(learning, history.as_slice(), history.len() as u64)?)
}

/// A ridge regression of clicks on items and affinities, with its uncertainty.
struct Scorer {
    learning: Learning,
    model: UserModel,
}

impl Scorer {
    /// Learns from the first `count` impressions.
    fn learn(log: &OpenBandit, count: usize) -> anyhow::Result<Self> {
        let clicks: f64 = log.impressions[..count].iter().map(|impression| f64::from(impression.click)).sum();
        let rate = clicks / count.max(1) as f64;
        // The variance of a click; without clicks, that of one click in all impressions.
        let noise = (rate * (1.0 - rate)).max(1.0 / (count.max(1) as f64));
        let learning = Learning::from(Prior::isotropic(log.items + 2, PRECISION, noise)?);
        let shown = &log.impressions[..count];
        let features: Vec<Vec<f32>> =
            shown.iter().enumerate().map(|(index, shown)| Self::features(log, index, shown.item)).collect();
        let model = learnt(&learning, &features, shown.iter().map(|shown| shown.click))?;
        Ok(Self { learning, model })
    }

    /// One-hot item, the user's affinity to it, and the constant.
    fn features(log: &OpenBandit, impression: usize, item: usize) -> Vec<f32> {
        let mut features = vec![0.0; log.items + 2];
        features[item] = 1.0;
        let affinity = log.affinities(impression).iter().find(|(liked, _)| usize::from(*liked) == item);
        features[log.items] = affinity.map_or(0.0, |(_, size)| *size);
        features[log.items + 1] = 1.0;
        features
    }

    /// The probability with which the policy shows each item.
    fn distribution(&self, spec: &PolicySpec, log: &OpenBandit, impression: usize) -> anyhow::Result<Vec<f64>> {
        let features: Vec<f32> = (0..log.items).flat_map(|item| Self::features(log, impression, item)).collect();
        let offsets = vec![0.0; log.items];
        let mut estimates: Vec<Estimate> = Vec::with_capacity(log.items);
        self.model.estimate_all(&self.learning, &offsets, &features, &mut estimates);
        let inputs = PolicyInputs { offsets, features, ..PolicyInputs::of_estimates(estimates.iter()) };
        Ok(next_slot(spec.policy(), &inputs.candidates(&self.model, &self.learning), &[], SEED)?)
    }
}
