//! The gate: compares a candidate with the active version on observations that neither was trained
//! on.
//!
//! A training leaves out the *holdout*: a random half of the records of the newest part of the log,
//! so that recent records are used both for training and for evaluation, even after a drift of
//! tastes. The draw depends only on a record's position, so the trainings of the incumbent and the
//! candidate leave out the same records. A holdout never begins before that of the active version:
//! if the share is raised, records that the incumbent was trained on are excluded. Candidate and
//! incumbent both replay the history of every user with observations in the holdout, and predict
//! each observation from the posterior before it, then learn from it (progressive validation; Blum,
//! Kalai & Langford 1999). The part of the holdout that belongs to the validation pool, whose items
//! no model selected, is also evaluated separately.
//!
//! The candidate is refused if it misses the margin by more than one standard error of the
//! difference. The difference is taken per observation, so observations that are hard for both
//! versions cancel out. Its standard error counts a user's observations as one draw, since they are
//! correlated.

use std::time::{Duration, Instant};

use celeris_model::preference::is_taken;
use celeris_model::{ItemId, Learning, Loss, Partition, UserId, VersionId};
use celeris_predictor::{Replayed, ServingVersion};
use rand::SeedableRng as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;

use super::{Holdout, Promotion};
use crate::comparison::{Comparison, HeldOutLoss, Paired};
use crate::error::ManagerError;
use crate::metric::Metric;
use crate::registry::{Actor, Event, EventKind, GateReport, ModelRecord, Verdict};
use crate::settings::{GateConfig, ModelConfig};

/// Fewer observations than this decide nothing.
const OBSERVATIONS_MIN: u64 = 20;

/// Time limit of an evaluation; the verdict then uses the histories replayed so far.
const EVALUATION_TIME_MAX: Duration = Duration::from_secs(120);

/// Number of standard errors by which the margin may be missed.
const ERRORS_ALLOWED: f64 = 1.0;

/// Number of random items that an observation of implicit feedback is ranked among.
const RANKED_AMONG: usize = 100;

/// Seed of the draw of these items.
const RANKED_SEED: u64 = 4;

/// Loss of a replayed prediction; `None` if undefined, such as for implicit feedback without
/// preference.
fn loss_of(learning: &Learning, replayed: &Replayed) -> Option<f64> {
    let loss = learning.loss();
    match loss {
        Loss::Squared | Loss::Logistic => {
            let predicted = loss.expected_label(replayed.estimate.score);
            Some(loss.prediction_loss(predicted, learning.limited(replayed.label)))
        }
        Loss::Implicit => replayed.outranked.filter(|_| is_taken(replayed.label)).map(f64::from),
    }
}

/// Comparison of two versions on a holdout.
pub(super) struct HoldoutLosses {
    pub(super) all: Paired,
    pub(super) pool: Paired,
    pub(super) users: Vec<UserId>,
}

impl Promotion {
    /// Losses of both versions on a holdout. Histories are processed one user at a time, so memory
    /// is bounded by the largest history.
    pub(super) fn compare_on(
        &self,
        config: &ModelConfig,
        holdout: &Holdout,
        candidate: &ServingVersion,
        incumbent: &ServingVersion,
        progress: impl Fn(f32),
    ) -> Result<HoldoutLosses, ManagerError> {
        let started = Instant::now();
        let users = holdout.users(&self.storage, config)?;
        let others = ranked_among(config.loss, candidate, incumbent);
        let (mut ours, mut theirs) =
            (self.predictor.explainer().replay(candidate)?, self.predictor.explainer().replay(incumbent)?);
        let (mut all, mut pool) = (Paired::default(), Paired::default());
        for (index, user) in users.iter().enumerate() {
            if started.elapsed() > EVALUATION_TIME_MAX {
                tracing::warn!(model = %config.name, users = index, of = users.len(), "the evaluation timed out");
                break;
            }
            let partition = Partition::of(user);
            let history = ours.history(user)?;
            let held = |sequence| holdout.holds(partition, sequence);
            let our_replay = ours.user(user, &history, &others, held)?;
            let their_replay = theirs.user(user, &history, &others, held)?;
            let losses: Vec<(bool, (f64, f64))> = our_replay
                .iter()
                .zip(&their_replay)
                .filter_map(|(ours, theirs)| {
                    // The same labels for both: those that the candidate takes.
                    let learning = &candidate.learning;
                    Some((ours.pool, (loss_of(learning, ours)?, loss_of(learning, theirs)?)))
                })
                .collect();
            all.add(losses.iter().map(|(_, losses)| *losses));
            pool.add(losses.iter().filter(|(pool, _)| *pool).map(|(_, losses)| *losses));
            progress(index as f32 / users.len() as f32);
        }
        Ok(HoldoutLosses { all, pool, users })
    }

    /// Loss of one version on a holdout, each observation predicted from the posterior before it.
    pub(crate) fn loss_of(
        &self,
        config: &ModelConfig,
        holdout: &Holdout,
        version: &ServingVersion,
    ) -> Result<HeldOutLoss, ManagerError> {
        let started = Instant::now();
        let others = ranked_among(config.loss, version, version);
        let mut replay = self.predictor.explainer().replay(version)?;
        let mut draws = Vec::new();
        for user in holdout.users(&self.storage, config)? {
            if started.elapsed() > EVALUATION_TIME_MAX {
                tracing::warn!(model = %config.name, users = draws.len(), "the evaluation timed out");
                break;
            }
            let partition = Partition::of(&user);
            let history = replay.history(&user)?;
            let replayed = replay.user(&user, &history, &others, |sequence| holdout.holds(partition, sequence))?;
            draws.push(replayed.iter().filter_map(|replayed| loss_of(&version.learning, replayed)).collect());
        }
        Ok(HeldOutLoss::of(Metric::of_replay(config.loss), draws))
    }

    /// Compares a candidate with the currently active version.
    pub(crate) fn evaluate(
        &self,
        config: &ModelConfig,
        holdout: &Holdout,
        candidate: &ServingVersion,
        progress: impl Fn(f32),
    ) -> Result<GateReport, ManagerError> {
        let started = Instant::now();
        let incumbent = self.predictor.models().active(&config.name)?;
        // The active version may have changed since the training began.
        let trained = self.registry.version(&config.name, incumbent.id)?.trained_up_to();
        let holdout = holdout.clone().beginning_behind(&trained);
        let losses = self.compare_on(config, &holdout, candidate, &incumbent, progress)?;
        let gate = &config.gate;
        let metric = Metric::of_replay(config.loss);
        let holdout = losses.all.comparison(metric);
        let pool = losses.pool.comparison(metric).filter(|pool| pool.observations >= gate.pool_min.max(1));
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
    /// Sets the verdict from the comparisons made so far.
    pub(super) fn decide(&mut self, gate: &GateConfig) {
        let on = [("holdout", self.holdout), ("validation pool", self.pool), ("live traffic", self.shadow)];
        let comparisons: Vec<(&str, Comparison)> = on
            .into_iter()
            .filter_map(|(name, comparison)| Some((name, comparison?)))
            .filter(|(_, comparison)| comparison.observations >= OBSERVATIONS_MIN || comparison.candidate.is_none())
            .collect();
        let missing = comparisons.iter().find(|(_, comparison)| comparison.misses(gate.margin, ERRORS_ALLOWED));
        let (verdict, decisive) = match (missing, comparisons.first()) {
            (Some(missing), _) if gate.force => (Verdict::Forced, Some(missing)),
            (Some(missing), _) => (Verdict::Refused, Some(missing)),
            (None, Some(first)) => (Verdict::Passed, Some(first)),
            (None, None) => (Verdict::NotJudged, None),
        };
        self.verdict = verdict;
        self.why = match decisive {
            None => format!("fewer than {OBSERVATIONS_MIN} observations were held out, too few to decide"),
            Some((name, comparison)) => comparison.describe(self.incumbent, name, gate.margin),
        };
    }
}

/// The audit event of a gate verdict.
pub(crate) fn gate_event(record: &ModelRecord, active: VersionId, version: VersionId, report: &GateReport) -> Event {
    let kind = if report.lets_pass() { EventKind::GatePassed } else { EventKind::GateRefused };
    let why = match report.verdict {
        Verdict::Forced => format!("gate.force, in spite of {}", report.why),
        Verdict::Passed | Verdict::Refused | Verdict::NotJudged => report.why.clone(),
    };
    let report = serde_json::to_value(report).expect("a report is plain data");
    Event::now(record.identity(), kind, Actor::Job, why)
        .between(Some(active), report_leads_to(kind, version))
        .with("version", version.0)
        .with("report", report)
}

/// The version that the event leads to: the candidate if it passed, none if it was refused.
fn report_leads_to(kind: EventKind, version: VersionId) -> Option<VersionId> {
    (kind == EventKind::GatePassed).then_some(version)
}

/// Random items that both versions have, for a ranking loss; empty for other losses.
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

    fn verdict_of(pairs: &[(f64, f64)], margin: f64) -> Verdict {
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
        // Equal differences have no standard error, so the margin alone decides. Mean squared
        // errors of 1 and 4 are RMSEs of 1 and 2.
        assert_eq!(verdict_of(&pairs(0.5, 3.5), 0.49), Verdict::Passed);
        assert_eq!(verdict_of(&pairs(0.5, 3.5), 0.51), Verdict::Refused);
        assert_eq!(verdict_of(&pairs(3.5, 3.5), 0.0), Verdict::Passed);
        assert_eq!(verdict_of(&pairs(3.6, 3.5), 0.0), Verdict::Refused);
        assert_eq!(verdict_of(&pairs(3.6, 3.5), -0.1), Verdict::Passed);
        assert_eq!(verdict_of(&pairs(3.6, 3.5)[..10], 0.0), Verdict::NotJudged);
        assert_eq!(
            verdict_of(&[(f64::NAN, 1.0)], 0.0),
            Verdict::Refused,
            "any prediction that is not a number refuses it"
        );
        assert_eq!(verdict_of(&pairs(0.5, f64::NAN), 0.0), Verdict::Passed, "a finite loss is better than none");
        // Alternating differences of 1 and -0.9: a mean of 0.05 with a standard error of 0.095.
        let noisy: Vec<(f64, f64)> =
            (0..100).map(|index| if index % 2 == 0 { (2.0, 1.0) } else { (1.1, 2.0) }).collect();
        assert_eq!(verdict_of(&noisy, 0.0), Verdict::Passed);
        assert_eq!(verdict_of(&noisy, 0.2), Verdict::Refused);
    }
}
