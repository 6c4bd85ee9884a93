//! The gate: whether a candidate predicts better than the version that serves, on observations that it was not trained on.
//!
//! A training leaves out the *tail*: every other record, drawn, of the newest part of the log, so that what users say
//! lately is both trained on and judged by, also where their tastes have just moved. The draw depends on a record's place
//! alone, so what the incumbent's training left out is what the candidate's leaves out, and neither is judged by what it
//! was trained on. Candidate and incumbent both replay the history of
//! every user who has observations in it and predict each of them by the posterior that they would serve at that moment,
//! before learning from it (progressive validation; Blum, Kalai & Langford 1999). What of the tail belongs to the
//! validation pool, whose items no model chose, is judged once more by itself.
//!
//! The candidate is refused where it misses the margin by more than one standard error of the difference. The difference
//! is taken observation by observation, so what is hard to predict for both cancels out, and its standard error counts a
//! user's observations as one draw, since they are alike.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use celeris_model::preference::is_taken;
use celeris_model::{ItemId, Loss, Partition, RecordKind, Sequence, UserId, VersionId};
use celeris_predictor::{Replayed, ServingVersion};
use celeris_storage::{LogRange, Storage, Watermark};
use rand::SeedableRng as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::error::ManagerError;
use crate::manager::Manager;
use crate::records::ModelConfig;

/// The largest tail, in records: enough for differences of a thousandth, and judged within seconds.
pub const TAIL_RECORDS_MAX: u64 = 20_000;

/// A small log's tail is larger than its share, up to so many records.
const TAIL_RECORDS_MIN: u64 = 50;

/// However small a log, no more than one part in so many of it is held out.
const TAIL_PART_MAX: u64 = 5;

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

/// How far from certain a probability is taken to be at least, so that one certain error is not infinitely bad.
const PROBABILITY_MIN: f64 = 1e-6;

/// How a model's candidates are judged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GateConfig {
    /// The share of the incumbent's loss by which a candidate must be better; below 0, by which it may be worse.
    pub margin: f64,
    /// The share of the log that candidates are not trained on and judged by: half of the records of the newest part of
    /// twice this share; from 0 to 0.5.
    pub tail_share: f64,
    /// The observations of the validation pool in the tail from which on they are judged by themselves.
    pub pool_min: u64,
    /// Lets every candidate pass; the report says what would have become of it.
    pub force: bool,
    /// Seconds of live traffic that a candidate predicts beside the incumbent before it may serve; at most 3600.
    pub shadow_seconds: u64,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self { margin: 0.0, tail_share: 0.05, pool_min: 100, force: false, shadow_seconds: 0 }
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
        if !(0.0..=0.5).contains(&self.tail_share) {
            return wrong("gate.tail_share", "from 0 to 0.5", self.tail_share);
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

/// Two versions on the same observations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// How many.
    pub observations: u64,
    /// The candidate's loss, in the report's measure.
    pub candidate: f64,
    /// The incumbent's.
    pub incumbent: f64,
    /// The candidate's minus the incumbent's.
    pub difference: f64,
    /// The standard error of the difference.
    pub standard_error: f64,
}

impl Comparison {
    /// Whether the candidate misses the margin by more than `errors` standard errors. One whose loss is no number does.
    #[must_use]
    pub fn misses(&self, margin: f64, errors: f64) -> bool {
        let allowed = self.incumbent * (1.0 - margin) + errors * self.standard_error;
        !self.candidate.is_finite() || self.candidate > allowed
    }
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
    /// What losses are: `rmse`, `log_loss`, or `rank`, the share of drawn items that rank above the observed one.
    pub measure: String,
    /// The margin that was asked for.
    pub margin: f64,
    /// On the tail.
    pub tail: Option<Comparison>,
    /// On what of the tail belongs to the validation pool, where there is enough of it.
    pub pool: Option<Comparison>,
    /// On live traffic, where `gate.shadow_seconds` asks for it.
    #[serde(default)]
    pub shadow: Option<Comparison>,
    /// How long judging took.
    pub seconds: f64,
}

/// The name of the measure under a loss.
pub(crate) fn measure(loss: Loss) -> &'static str {
    match loss {
        Loss::Squared => "rmse",
        Loss::Logistic => "log_loss",
        Loss::Implicit => "rank",
    }
}

/// The held-out records: those drawn behind `from`, up to `to`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tail {
    pub(crate) from: Watermark,
    pub(crate) to: Watermark,
}

impl Tail {
    /// The part of a log of this extent that a share is drawn from: the newest records of each partition, in proportion
    /// to how many it has.
    pub(crate) fn of(to: Watermark, share: f64) -> Self {
        let records = to.records();
        let wanted = (records as f64 * share).round() as u64;
        let records_held =
            if share > 0.0 { wanted.clamp(TAIL_RECORDS_MIN, TAIL_RECORDS_MAX).min(records / TAIL_PART_MAX) } else { 0 };
        let records_newest = 2 * records_held;
        let mut from = to.clone();
        let mut seen: u64 = 0;
        let held_by = |seen: u64| (u128::from(records_newest) * u128::from(seen) / u128::from(records.max(1))) as u64;
        for partition in Partition::all() {
            let Sequence(last) = to.get(partition);
            let held = held_by(seen + last) - held_by(seen);
            seen += last;
            from.set(partition, Sequence(last - held));
        }
        Self { from, to }
    }

    /// Whether a record is held out.
    pub(crate) fn holds(&self, partition: Partition, sequence: Sequence) -> bool {
        sequence > self.from.get(partition) && sequence <= self.to.get(partition) && is_drawn(partition, sequence)
    }

    /// Who has observations in it.
    fn users(&self, storage: &Storage, config: &ModelConfig) -> Result<Vec<UserId>, ManagerError> {
        let mut users: BTreeMap<UserId, ()> = BTreeMap::new();
        for partition in Partition::all() {
            let (after, up_to) = (self.from.get(partition), self.to.get(partition));
            let range = LogRange { stream: config.stream.clone(), partition, after, up_to };
            let _whole: ControlFlow<()> = storage.scan(&range, |sequence, record| {
                if record.kind == RecordKind::Observe && self.holds(partition, sequence) {
                    users.insert(record.user, ());
                }
                ControlFlow::Continue(())
            })?;
        }
        let mut users: Vec<UserId> = users.into_keys().collect();
        // Where time runs out, what was judged is a sample and no end of the alphabet.
        rand::seq::SliceRandom::shuffle(&mut users[..], &mut ChaCha8Rng::seed_from_u64(RANKED_SEED));
        Ok(users)
    }
}

/// Whether the record at this place is one of the half that is held out while it is new: a bit of SplitMix64 (Steele, Lea
/// & Flood 2014).
fn is_drawn(partition: Partition, Sequence(sequence): Sequence) -> bool {
    let mut bits = (sequence + (u64::from(partition.index()) << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ (bits >> 31)) & 1 == 1
}

/// Losses of two versions on the same observations, summed up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paired {
    observations: u64,
    candidate: f64,
    incumbent: f64,
    /// By draw, whose observations hang together: their number and the sum of their differences.
    draws: Vec<(u64, f64)>,
}

impl Paired {
    /// Adds the losses of one draw, candidate's and incumbent's.
    pub(crate) fn add(&mut self, losses: impl IntoIterator<Item = (f64, f64)>) {
        let (mut count, mut sum) = (0, 0.0);
        for (candidate, incumbent) in losses {
            count += 1;
            sum += candidate - incumbent;
            self.candidate += candidate;
            self.incumbent += incumbent;
        }
        if count > 0 {
            self.observations += count;
            self.draws.push((count, sum));
        }
    }

    pub(crate) fn observations(&self) -> u64 {
        self.observations
    }

    /// The comparison, `None` of nothing. Squared errors become their root, and the error of their difference with them
    /// (to first order).
    pub(crate) fn comparison(&self, loss: Loss) -> Option<Comparison> {
        if self.observations == 0 {
            return None;
        }
        let count = self.observations as f64;
        let (candidate, incumbent) = (self.candidate / count, self.incumbent / count);
        let mean = candidate - incumbent;
        let squares: f64 = self.draws.iter().map(|(count, sum)| (sum - *count as f64 * mean).powi(2)).sum();
        let draws = self.draws.len() as f64;
        // One draw says nothing of how draws differ.
        let standard_error = if draws > 1.0 { (squares * draws / (draws - 1.0)).sqrt() / count } else { mean.abs() };
        let (candidate, incumbent, standard_error) = if loss == Loss::Squared {
            let (candidate, incumbent) = (candidate.sqrt(), incumbent.sqrt());
            let both = candidate + incumbent;
            (candidate, incumbent, if both > 0.0 { standard_error / both } else { 0.0 })
        } else {
            (candidate, incumbent, standard_error)
        };
        let difference = candidate - incumbent;
        Some(Comparison { observations: self.observations, candidate, incumbent, difference, standard_error })
    }
}

/// The log loss of a probability against a label from 0 to 1.
pub(crate) fn log_loss(probability: f64, label: f64) -> f64 {
    let probability = probability.clamp(PROBABILITY_MIN, 1.0 - PROBABILITY_MIN);
    -(label * probability.ln() + (1.0 - label) * (1.0 - probability).ln())
}

/// What a prediction cost; `None` where that cannot be told, as of implicit feedback that says nothing.
fn loss_of(loss: Loss, replayed: &Replayed) -> Option<f64> {
    Some(match loss {
        Loss::Squared => (f64::from(replayed.estimate.score) - f64::from(replayed.label)).powi(2),
        Loss::Logistic => {
            let probability = loss.probability(&replayed.estimate).unwrap_or(0.5);
            log_loss(f64::from(probability), f64::from(replayed.label))
        }
        Loss::Implicit if is_taken(replayed.label) => f64::from(replayed.outranked?),
        Loss::Implicit => return None,
    })
}

/// Two versions on a tail.
pub(crate) struct Judged {
    pub(crate) all: Paired,
    pub(crate) pool: Paired,
    pub(crate) users: Vec<UserId>,
}

impl Manager {
    /// Both versions' losses on a tail. Every user's history is read once and held alone, so memory is that of one.
    pub(crate) fn compare_on(
        &self,
        config: &ModelConfig,
        tail: &Tail,
        candidate: &ServingVersion,
        incumbent: &ServingVersion,
        progress: impl Fn(f32),
    ) -> Result<Judged, ManagerError> {
        let started = Instant::now();
        let users = tail.users(&self.storage, config)?;
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
            let held = |sequence| tail.holds(partition, sequence);
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
        tail: &Tail,
        candidate: &ServingVersion,
        progress: impl Fn(f32),
    ) -> Result<GateReport, ManagerError> {
        let started = Instant::now();
        let incumbent = self.predictor.active(&config.name)?;
        let judged = self.compare_on(config, tail, candidate, &incumbent, progress)?;
        let gate = &config.gate;
        let tail = judged.all.comparison(config.loss);
        let pool = judged.pool.comparison(config.loss).filter(|pool| pool.observations >= gate.pool_min.max(1));
        let mut report = GateReport {
            verdict: Verdict::Passed,
            why: String::new(),
            incumbent: incumbent.id,
            measure: measure(config.loss).to_owned(),
            margin: gate.margin,
            tail,
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
        let on = [("held-out tail", self.tail), ("validation pool", self.pool), ("live traffic", self.shadow)];
        let judged: Vec<(&str, Comparison)> = on
            .into_iter()
            .filter_map(|(name, comparison)| Some((name, comparison?)))
            .filter(|(_, comparison)| comparison.observations >= JUDGED_MIN || !comparison.candidate.is_finite())
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
            Some((name, Comparison { observations, candidate, incumbent, standard_error, .. })) => format!(
                "{} {candidate:.4} against {incumbent:.4} of version {} on {observations} observations of the {name} \
                 (standard error of the difference {standard_error:.4}, margin {})",
                self.measure, self.incumbent, gate.margin
            ),
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

    fn log(sequences: impl Fn(u64) -> u64) -> Watermark {
        let sequences: Vec<u64> = (0..64).map(sequences).collect();
        serde_json::from_value(serde_json::json!(sequences)).unwrap()
    }

    #[test]
    fn a_tail_is_half_of_the_newest_records_of_every_partition_within_its_bounds() {
        for (log, share, expected) in [
            (log(|partition| partition * 100), 0.05, 10_080),
            (log(|_| 10_000), 0.05, TAIL_RECORDS_MAX),
            (log(|partition| u64::from(partition < 5) * 100), 0.05, TAIL_RECORDS_MIN),
            (log(|partition| u64::from(partition == 7) * 20), 0.05, 4),
            (log(|_| 1000), 0.0, 0),
            (log(|_| 0), 0.05, 0),
        ] {
            let tail = Tail::of(log.clone(), share);
            assert_eq!(log.records() - tail.from.records(), 2 * expected);
            let records = Partition::all()
                .flat_map(|partition| (1..=log.get(partition).0).map(move |sequence| (partition, Sequence(sequence))));
            let held = records.filter(|(partition, sequence)| tail.holds(*partition, *sequence)).count() as f64;
            // Four standard deviations of so many tosses of a coin.
            let deviation = 4.0 * (2.0 * expected as f64).sqrt() / 2.0;
            assert!((held - expected as f64).abs() <= deviation, "{held} of {expected} are held out");
            for partition in Partition::all() {
                let (all, kept) = (log.get(partition).0, tail.from.get(partition).0);
                let part = 2.0 * expected as f64 * all as f64 / log.records().max(1) as f64;
                assert!((all - kept) as f64 >= part.floor() && (all - kept) as f64 <= part.ceil(), "in proportion");
            }
        }
    }

    fn judged(pairs: &[(f64, f64)], margin: f64) -> Verdict {
        let mut paired = Paired::default();
        for pair in pairs {
            paired.add([*pair]);
        }
        let mut report = GateReport {
            verdict: Verdict::Passed,
            why: String::new(),
            incumbent: VersionId(1),
            measure: "rmse".to_owned(),
            margin,
            tail: paired.comparison(Loss::Squared),
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
        assert_eq!(judged(&[(f64::NAN, 1.0)], 0.0), Verdict::Refused);
        // Differences of 1 and -0.9 in turn: a mean of 0.05 with a standard error of 0.095.
        let noisy: Vec<(f64, f64)> =
            (0..100).map(|index| if index % 2 == 0 { (2.0, 1.0) } else { (1.1, 2.0) }).collect();
        assert_eq!(judged(&noisy, 0.0), Verdict::Passed);
        assert_eq!(judged(&noisy, 0.2), Verdict::Refused);
    }
}
