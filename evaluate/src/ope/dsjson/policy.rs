//! The evaluated policy, as the probability of every action that could have been chosen for a slot.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use celeris_bandits::PolicySpec;
use celeris_bandits::ope::target::next_slot;
use celeris_datasets::dsjson::{Decisions, Form, LoggedDecision};
use celeris_model::{Estimate, Learning, Prior, UserModel};
use celeris_predictor::PolicyInputs;

use super::SLOTS_MAX;
use super::features::{DIM, Featurizer};
use crate::ope::policy::learnt;

/// The ridge parameter of the scoring model of named policies. Its uncertainty is in units of the variance of a reward.
const PRECISION: f64 = 1.0;

/// The seed of the simulation of policies without closed forms.
const SEED: u64 = 1;

/// Maximum length of a line of predictions.
const PREDICTION_BYTES_MAX: usize = 1 << 20;

/// How far the probabilities of a line of predictions may be from 1 in sum: Vowpal Wabbit prints six digits of each.
const SUM_TOLERANCE: f64 = 1e-3;

/// A policy.
pub enum LoggedPolicy {
    /// All actions with the same probability.
    Uniform,
    /// The action that comes first: what Personalizer calls the baseline.
    First,
    /// The policy that logged: every weight is 1.
    Logged,
    /// Probabilities from a file of predictions.
    Predictions(Predictions),
    /// A policy that needs scores, from a linear model of the first half of the log.
    Named(Box<Named>),
}

/// A policy by its name.
pub struct Named {
    text: String,
    spec: PolicySpec,
    scorer: Option<Scorer>,
}

impl LoggedPolicy {
    /// Parses `--policy`: `uniform`, `first`, `logged`, the name of a policy or its JSON object, or a file of predictions
    /// as `vw -p` writes them.
    ///
    /// # Errors
    /// If it is none of these.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        Ok(match text {
            "uniform" => Self::Uniform,
            "first" => Self::First,
            "logged" => Self::Logged,
            file if Path::new(file).is_file() => Self::Predictions(Predictions::open(Path::new(file))?),
            text => {
                let spec = if text.starts_with('{') {
                    serde_json::from_str(text).with_context(|| format!("--policy {text}"))?
                } else {
                    PolicySpec::named(text).with_context(|| {
                        format!(
                            "--policy {text:?} is no file, not uniform, first or logged, and no policy that is known"
                        )
                    })?
                };
                Self::Named(Box::new(Named { text: text.to_owned(), spec, scorer: None }))
            }
        })
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Uniform => "uniform".to_owned(),
            Self::First => "first".to_owned(),
            Self::Logged => "logged".to_owned(),
            Self::Predictions(predictions) => predictions.file.display().to_string(),
            Self::Named(named) => named.text.clone(),
        }
    }

    /// Learns what it needs from the log; returns how many decisions it has learnt from, on which it cannot be judged.
    ///
    /// # Errors
    /// If the log cannot be read, or has fewer than two decisions.
    pub fn learn(&mut self, path: &Path) -> anyhow::Result<usize> {
        let Self::Named(named) = self else { return Ok(0) };
        let mut decisions = Decisions::open(path)?;
        let mut count = 0;
        while decisions.advance()?.is_some() {
            count += 1;
        }
        ensure!(
            count >= 2,
            "{}: a policy of scores learns from half of the decisions, and here are {count}",
            path.display()
        );
        named.scorer = Some(Scorer::learn(path, count / 2)?);
        Ok(count / 2)
    }

    /// Goes on to the next decision.
    ///
    /// # Errors
    /// If the file of predictions does not go with the log.
    pub fn begin(&mut self, decision: &LoggedDecision) -> anyhow::Result<()> {
        match self {
            Self::Predictions(predictions) => predictions.next(decision),
            Self::Uniform | Self::First | Self::Logged | Self::Named(_) => Ok(()),
        }
    }

    /// The probability of each candidate of a slot of the decision, in their order.
    ///
    /// # Errors
    /// If scores cannot be computed.
    pub fn probabilities(
        &self,
        decision: &LoggedDecision,
        position: usize,
        featurizer: &Featurizer,
    ) -> anyhow::Result<Vec<f64>> {
        let choice = &decision.choices[position];
        let candidates = &choice.candidates;
        Ok(match self {
            Self::Uniform => vec![1.0 / candidates.len() as f64; candidates.len()],
            Self::First => {
                let first = candidates.iter().min();
                candidates.iter().map(|candidate| f64::from(u8::from(Some(candidate) == first))).collect()
            }
            Self::Logged => {
                // The log may not say how likely the others were: they share the rest.
                let others = (1.0 - choice.probability).max(0.0) / (candidates.len() - 1).max(1) as f64;
                let share = |candidate: &usize| if *candidate == choice.action { choice.probability } else { others };
                candidates.iter().map(share).collect()
            }
            Self::Predictions(predictions) => candidates.iter().map(|action| predictions.current[*action]).collect(),
            Self::Named(named) => {
                let scorer = named.scorer.as_ref().context("the scores are not learnt yet")?;
                scorer.distribution(&named.spec, candidates, featurizer)?
            }
        })
    }

    /// Checks that nothing is left over after this many decisions.
    ///
    /// # Errors
    /// If the file of predictions has more of them.
    pub fn finish(&mut self, decisions: usize) -> anyhow::Result<()> {
        match self {
            Self::Predictions(predictions) => predictions.finish(decisions),
            Self::Uniform | Self::First | Self::Logged | Self::Named(_) => Ok(()),
        }
    }
}

/// Predictions of `vw --cb_explore_adf -p FILE`: a line for each decision, such as `1:0.9,0:0.1`, with actions from 0;
/// blank lines between them.
pub struct Predictions {
    file: PathBuf,
    lines: BufReader<File>,
    line: u64,
    text: Vec<u8>,
    /// The probability of each action of the current decision.
    current: Vec<f64>,
}

impl Predictions {
    fn open(file: &Path) -> anyhow::Result<Self> {
        let opened = File::open(file).with_context(|| format!("--policy {}", file.display()))?;
        let lines = BufReader::new(opened);
        Ok(Self { file: file.to_owned(), lines, line: 0, text: Vec::new(), current: Vec::new() })
    }

    /// Reads the next line that is not blank; returns false at the end.
    fn advance(&mut self) -> anyhow::Result<bool> {
        loop {
            self.text.clear();
            let limit = PREDICTION_BYTES_MAX as u64 + 1;
            let read = self.lines.by_ref().take(limit).read_until(b'\n', &mut self.text);
            let read = read.with_context(|| format!("--policy {}", self.file.display()))?;
            if read == 0 {
                return Ok(false);
            }
            self.line += 1;
            ensure!(read <= PREDICTION_BYTES_MAX, "{}: the line is too long", self.place());
            if !self.text.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    fn place(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
    }

    fn next(&mut self, decision: &LoggedDecision) -> anyhow::Result<()> {
        if decision.form != Form::OneSlot {
            bail!(
                "has {} slots, and predictions are of one; Vowpal Wabbit's predictions for further slots are not those \
                 given what the log shows above",
                decision.choices.len()
            );
        }
        ensure!(
            self.advance()?,
            "{}: has no prediction for it; there must be one for each decision",
            self.file.display()
        );
        let actions = decision.actions.len();
        self.current.clear();
        self.current.resize(actions, 0.0);
        let text = String::from_utf8_lossy(&self.text).into_owned();
        // A tag may follow.
        for entry in text.split_whitespace().next().unwrap_or_default().split(',') {
            let parsed = entry.split_once(':').and_then(|(action, probability)| {
                let action = action.parse::<usize>().ok().filter(|action| *action < actions)?;
                let probability =
                    probability.parse::<f64>().ok().filter(|share| (0.0..=1.0 + SUM_TOLERANCE).contains(share));
                Some((action, probability?.min(1.0)))
            });
            let Some((action, probability)) = parsed else {
                bail!(
                    "{}: expected ACTION:PROBABILITY with an action from 0 to {}, got {entry:?}; `vw --cb_explore_adf -p` \
                     writes such lines",
                    self.place(),
                    actions - 1
                );
            };
            ensure!(self.current[action] == 0.0, "{}: action {action} comes twice", self.place());
            self.current[action] = probability;
        }
        let sum: f64 = self.current.iter().sum();
        ensure!(
            (sum - 1.0).abs() <= SUM_TOLERANCE,
            "{}: the probabilities sum to {sum}; they must sum to 1",
            self.place()
        );
        Ok(())
    }

    fn finish(&mut self, decisions: usize) -> anyhow::Result<()> {
        ensure!(
            !self.advance()?,
            "{}: a prediction is left over after the {decisions} decisions of the log; there must be one for each that has \
             a label and counts",
            self.place()
        );
        Ok(())
    }
}

/// A ridge regression of rewards on the features of actions, with its uncertainty.
pub struct Scorer {
    learning: Learning,
    model: UserModel,
}

impl Scorer {
    /// Learns from the first `count` decisions, all slots alike.
    fn learn(path: &Path, count: usize) -> anyhow::Result<Self> {
        let (mut rows, mut rewards): (Vec<Vec<f32>>, Vec<f32>) = (Vec::new(), Vec::new());
        let mut decisions = Decisions::open(path)?;
        for _ in 0..count {
            let Some(decision) = decisions.advance()? else { break };
            let featurizer = Featurizer::new(&decision);
            for choice in &decision.choices {
                ensure!(rows.len() < SLOTS_MAX, "the log has more than {SLOTS_MAX} slots; evaluate a part of it");
                rows.push(with_constant(featurizer.of(choice.action)));
                #[expect(clippy::cast_possible_truncation, reason = "labels are f32")]
                rewards.push((0.0 - choice.cost) as f32);
            }
        }
        let n = rewards.len().max(1) as f64;
        let mean = rewards.iter().map(|reward| f64::from(*reward)).sum::<f64>() / n;
        let variance = rewards.iter().map(|reward| (f64::from(*reward) - mean).powi(2)).sum::<f64>() / n;
        // Of rewards that are all alike, that of a click in all of them.
        let learning = Learning::from(Prior::isotropic(DIM + 1, PRECISION, variance.max(1.0 / n))?);
        let model = learnt(&learning, &rows, rewards)?;
        Ok(Self { learning, model })
    }

    /// The probability with which the policy chooses each of the candidates.
    fn distribution(
        &self,
        spec: &PolicySpec,
        candidates: &[usize],
        featurizer: &Featurizer,
    ) -> anyhow::Result<Vec<f64>> {
        let features: Vec<f32> =
            candidates.iter().flat_map(|candidate| with_constant(featurizer.of(*candidate))).collect();
        let offsets = vec![0.0; candidates.len()];
        let mut estimates: Vec<Estimate> = Vec::with_capacity(candidates.len());
        self.model.estimate_all(&self.learning, &offsets, &features, &mut estimates);
        let inputs = PolicyInputs { offsets, features, ..PolicyInputs::of_estimates(estimates.iter()) };
        Ok(next_slot(spec.policy(), &inputs.candidates(&self.model, &self.learning), &[], SEED)?)
    }
}

fn with_constant(features: [f32; DIM]) -> Vec<f32> {
    features.into_iter().chain([1.0]).collect()
}
