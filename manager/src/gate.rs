//! The gate: whether a candidate predicts better than the version that serves, on observations that it was not trained on.
//!
//! A training leaves out the *holdout*: every other record, drawn, of the newest part of the log, so that what users say
//! lately is both trained on and judged by, also where their tastes have just moved. The draw depends on a record's place
//! alone, so what the incumbent's training left out is what the candidate's leaves out, and neither is judged by what it
//! was trained on. A holdout never begins before that of the version that serves: where the share is raised, what the
//! incumbent was trained on stays out of it. Candidate and incumbent both replay the history of
//! every user who has observations in it and predict each of them by the posterior that they would serve at that moment,
//! before learning from it (progressive validation; Blum, Kalai & Langford 1999). What of the holdout belongs to the
//! validation pool, whose items no model chose, is judged once more by itself.
//!
//! The candidate is refused where it misses the margin by more than one standard error of the difference. The difference
//! is taken observation by observation, so what is hard to predict for both cancels out, and its standard error counts a
//! user's observations as one draw, since they are alike.

use std::time::{Duration, Instant};

use celeris_model::preference::is_taken;
use celeris_model::{ItemId, Loss, ModelName, Partition, UserId, VersionId};
use celeris_predictor::{Replayed, ServingVersion};
use celeris_storage::Watermark;
use rand::SeedableRng as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::comparison::{Comparison, Paired};
use crate::error::ManagerError;
use crate::holdout::Holdout;
use crate::manager::Manager;
use crate::quality::Metric;
use crate::records::ModelConfig;

/// Fewer observations than this say nothing.
const JUDGED_MIN: u64 = 20;

/// How long a judgement may take; then it rests on what was replayed by then.
const JUDGING_MAX: Duration = Duration::from_secs(120);

/// By how many standard errors the margin may be missed.
const ERRORS_ALLOWED: f64 = 1.0;

/// Items that an observation of implicit feedback is ranked among.
const RANKED_AMONG: usize = 100;

/// Seeds the drawing of these items.
const RANKED_SEED: u64 = 4;

/// How a model's candidates are judged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GateConfig {
    /// The share of the incumbent's loss by which a candidate must be better; below 0, by which it may be worse.
    pub margin: f64,
    /// The share of the log that candidates are not trained on and judged by: half of the records of the newest part of
    /// twice this share; from 0 to 0.5.
    pub holdout_share: f64,
    /// The observations of the validation pool in the holdout from which on they are judged by themselves.
    pub pool_min: u64,
    /// Lets every candidate pass; the report says what would have become of it.
    pub force: bool,
    /// Seconds of live traffic that a candidate predicts beside the incumbent before it may serve; at most 3600.
    pub shadow_seconds: u64,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self { margin: 0.0, holdout_share: 0.05, pool_min: 100, force: false, shadow_seconds: 0 }
    }
}

impl GateConfig {
    /// Whether all values are in their ranges.
    ///
    /// # Errors
    /// `Setting`, naming the field.
    pub fn check(&self) -> Result<(), ManagerError> {
        let wrong = |setting, range, received| Err(ManagerError::Setting { setting, range, received });
        if !(-1.0..1.0).contains(&self.margin) {
            return wrong("gate.margin", "from -1 to below 1", self.margin);
        }
        if !(0.0..=0.5).contains(&self.holdout_share) {
            return wrong("gate.holdout_share", "from 0 to 0.5", self.holdout_share);
        }
        if self.shadow_seconds > 3600 {
            return wrong("gate.shadow_seconds", "at most 3600", self.shadow_seconds as f64);
        }
        Ok(())
    }
}

/// What the gate decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The candidate may serve.
    Passed,
    /// The candidate is kept, and does not serve.
    Refused,
    /// There is too little to judge by; the candidate may serve.
    NotJudged,
    /// The candidate would have been refused, and may serve since `gate.force` says so.
    Forced,
}

/// How a candidate was judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateReport {
    /// What came of it.
    pub verdict: Verdict,
    /// Why, in words and figures.
    pub why: String,
    /// The version that served.
    pub incumbent: VersionId,
    /// What losses are on the holdout and on the pool: `rmse`, `log_loss`, or `rank`, the share of drawn items that rank above
    /// the observed one.
    pub measure: Metric,
    /// The margin that was asked for.
    pub margin: f64,
    /// On the holdout.
    pub holdout: Option<Comparison>,
    /// On what of the holdout belongs to the validation pool, where there is enough of it.
    pub pool: Option<Comparison>,
    /// On live traffic, where `gate.shadow_seconds` asks for it.
    #[serde(default)]
    pub shadow: Option<Comparison>,
    /// How long judging took.
    pub seconds: f64,
}

/// The loss of a replayed prediction; `None` where that cannot be told, as of implicit feedback that says nothing.
fn loss_of(loss: Loss, replayed: &Replayed) -> Option<f64> {
    match loss {
        Loss::Squared | Loss::Logistic => {
            Some(loss.prediction_loss(loss.expected_label(replayed.estimate.score), replayed.label))
        }
        Loss::Implicit => replayed.outranked.filter(|_| is_taken(replayed.label)).map(f64::from),
    }
}

/// Two versions on a holdout.
pub(crate) struct Judged {
    pub(crate) all: Paired,
    pub(crate) pool: Paired,
    pub(crate) users: Vec<UserId>,
}

impl Manager {
    /// Up to where all records may have shaped a version, by its own training or by one that it went on from. Behind it,
    /// those that are drawn have not.
    pub(crate) fn trained_up_to(&self, model: &ModelName, version: VersionId) -> Result<Watermark, ManagerError> {
        Ok(self.version(model, version)?.holdout_from.unwrap_or_else(Watermark::start))
    }

    /// Both versions' losses on a holdout. Every user's history is read once and held alone, so memory is that of one.
    pub(crate) fn compare_on(
        &self,
        config: &ModelConfig,
        holdout: &Holdout,
        candidate: &ServingVersion,
        incumbent: &ServingVersion,
        progress: impl Fn(f32),
    ) -> Result<Judged, ManagerError> {
        let started = Instant::now();
        let users = holdout.users(&self.storage, config)?;
        let others = ranked_among(config.loss, candidate, incumbent);
        let (mut ours, mut theirs) = (self.predictor.replay(candidate)?, self.predictor.replay(incumbent)?);
        let (mut all, mut pool) = (Paired::default(), Paired::default());
        for (index, user) in users.iter().enumerate() {
            if started.elapsed() > JUDGING_MAX {
                tracing::warn!(model = %config.name, users = index, of = users.len(), "judging took too long and ends here");
                break;
            }
            let partition = Partition::of(user);
            let history = ours.history(user)?;
            let held = |sequence| holdout.holds(partition, sequence);
            let candidate = ours.user(user, &history, &others, held)?;
            let incumbent = theirs.user(user, &history, &others, held)?;
            let losses: Vec<(bool, (f64, f64))> = candidate
                .iter()
                .zip(&incumbent)
                .filter_map(|(ours, theirs)| {
                    Some((ours.pool, (loss_of(config.loss, ours)?, loss_of(config.loss, theirs)?)))
                })
                .collect();
            all.add(losses.iter().map(|(_, losses)| *losses));
            pool.add(losses.iter().filter(|(pool, _)| *pool).map(|(_, losses)| *losses));
            progress(index as f32 / users.len() as f32);
        }
        Ok(Judged { all, pool, users })
    }

    /// Judges a candidate against the version that serves now.
    pub(crate) fn judge(
        &self,
        config: &ModelConfig,
        holdout: &Holdout,
        candidate: &ServingVersion,
        progress: impl Fn(f32),
    ) -> Result<GateReport, ManagerError> {
        let started = Instant::now();
        let incumbent = self.predictor.active(&config.name)?;
        // Another version than at the beginning of the training may serve by now.
        let holdout = holdout.clone().beginning_behind(&self.trained_up_to(&config.name, incumbent.id)?);
        let judged = self.compare_on(config, &holdout, candidate, &incumbent, progress)?;
        let gate = &config.gate;
        let metric = Metric::of_replay(config.loss);
        let holdout = judged.all.comparison(metric);
        let pool = judged.pool.comparison(metric).filter(|pool| pool.observations >= gate.pool_min.max(1));
        let mut report = GateReport {
            verdict: Verdict::Passed,
            why: String::new(),
            incumbent: incumbent.id,
            measure: metric,
            margin: gate.margin,
            holdout,
            pool,
            shadow: None,
            seconds: started.elapsed().as_secs_f64(),
        };
        report.decide(gate);
        Ok(report)
    }
}

impl GateReport {
    /// The verdict on what has been compared.
    pub(crate) fn decide(&mut self, gate: &GateConfig) {
        let on = [("held-out holdout", self.holdout), ("validation pool", self.pool), ("live traffic", self.shadow)];
        let judged: Vec<(&str, Comparison)> = on
            .into_iter()
            .filter_map(|(name, comparison)| Some((name, comparison?)))
            .filter(|(_, comparison)| comparison.observations >= JUDGED_MIN || comparison.candidate.is_none())
            .collect();
        let missing = judged.iter().find(|(_, comparison)| comparison.misses(gate.margin, ERRORS_ALLOWED));
        let (verdict, told) = match (missing, judged.first()) {
            (Some(missing), _) if gate.force => (Verdict::Forced, Some(missing)),
            (Some(missing), _) => (Verdict::Refused, Some(missing)),
            (None, Some(first)) => (Verdict::Passed, Some(first)),
            (None, None) => (Verdict::NotJudged, None),
        };
        self.verdict = verdict;
        self.why = match told {
            None => format!("fewer than {JUDGED_MIN} observations were held out, which say nothing"),
            Some((name, comparison)) => comparison.told(self.incumbent, name, gate.margin),
        };
    }

    /// Whether the candidate may serve.
    #[must_use]
    pub fn lets_pass(&self) -> bool {
        self.verdict != Verdict::Refused
    }
}

/// Items drawn from both tables, under a loss that is about ranks.
fn ranked_among(loss: Loss, candidate: &ServingVersion, incumbent: &ServingVersion) -> Vec<ItemId> {
    if loss != Loss::Implicit {
        return Vec::new();
    }
    let mut rng = ChaCha8Rng::seed_from_u64(RANKED_SEED);
    let tables = [candidate.theta.items(), incumbent.theta.items()];
    tables.iter().flat_map(|items| items.sample(&mut rng, RANKED_AMONG / 2)).cloned().collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn judged(pairs: &[(f64, f64)], margin: f64) -> Verdict {
        let mut paired = Paired::default();
        for pair in pairs {
            paired.add([*pair]);
        }
        let mut report = GateReport {
            verdict: Verdict::Passed,
            why: String::new(),
            incumbent: VersionId(1),
            measure: Metric::Rmse,
            margin,
            holdout: paired.comparison(Metric::Rmse),
            pool: None,
            shadow: None,
            seconds: 0.0,
        };
        report.decide(&GateConfig { margin, ..GateConfig::default() });
        report.verdict
    }

    #[test]
    fn a_candidate_must_be_better_by_the_margin_within_one_standard_error() {
        let pairs = |candidate: f64, incumbent: f64| -> Vec<(f64, f64)> {
            (0..100).map(|index| (candidate + f64::from(index % 2), incumbent + f64::from(index % 2))).collect()
        };
        // Equal differences leave no error: the margin alone decides. Mean squared errors of 1 and 4 are 1 and 2 as roots.
        assert_eq!(judged(&pairs(0.5, 3.5), 0.49), Verdict::Passed);
        assert_eq!(judged(&pairs(0.5, 3.5), 0.51), Verdict::Refused);
        assert_eq!(judged(&pairs(3.5, 3.5), 0.0), Verdict::Passed);
        assert_eq!(judged(&pairs(3.6, 3.5), 0.0), Verdict::Refused);
        assert_eq!(judged(&pairs(3.6, 3.5), -0.1), Verdict::Passed);
        assert_eq!(judged(&pairs(3.6, 3.5)[..10], 0.0), Verdict::NotJudged);
        assert_eq!(judged(&[(f64::NAN, 1.0)], 0.0), Verdict::Refused, "a prediction that is no number is one too many");
        assert_eq!(
            judged(&pairs(0.5, f64::NAN), 0.0),
            Verdict::Passed,
            "whatever predicts is better than what does not"
        );
        // Differences of 1 and -0.9 in turn: a mean of 0.05 with a standard error of 0.095.
        let noisy: Vec<(f64, f64)> =
            (0..100).map(|index| if index % 2 == 0 { (2.0, 1.0) } else { (1.1, 2.0) }).collect();
        assert_eq!(judged(&noisy, 0.0), Verdict::Passed);
        assert_eq!(judged(&noisy, 0.2), Verdict::Refused);
    }
}
