//! Off-policy evaluation of a policy on a model's own decisions.
//!
//! Decisions whose candidates were recorded in full are replayed with the scores and standard
//! errors of their time, and the rewards attributed to them are read from the observation log. The
//! estimators are those of [`celeris_bandits::ope`].

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use celeris_bandits::ope::reward_model::RewardRow;
use celeris_bandits::ope::target::next_slot;
use celeris_bandits::ope::{
    Evaluation, Expectation, LoggedSlot, OpeSettings, RewardFeatures, RewardModel, Rounds, evaluate,
};
use celeris_bandits::{BanditError, PolicySpec};
use celeris_model::{Decision, DecisionId, ModelId, ModelName, ShownSlot, Timestamp, VersionId};
use celeris_predictor::{DecisionReplay, Predictor, PredictorError, ReplayOutcome, ServingVersion, WhyNot};
use celeris_storage::{DecisionRange, Storage};
use parking_lot::Mutex;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::ManagerError;
use crate::low_priority::at_low_priority;
use crate::registry::{Registry, VersionStore};

/// Parameters of a policy evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationRequest {
    /// The model that made the decisions.
    pub model: ModelName,
    /// The policy to evaluate.
    pub policy: PolicySpec,
    /// Start of the time range, inclusive; unbounded if `None`.
    pub from: Option<Timestamp>,
    /// End of the time range, exclusive; unbounded if `None`.
    pub to: Option<Timestamp>,
    /// Maximum number of decisions; a random sample is used if there are more.
    pub decisions_max: usize,
    /// Value of a shown slot without a reward. The default is the label of the model's default
    /// reward; if the model has none, decisions with such a slot are skipped.
    pub missing_reward: Option<f64>,
    /// Settings of the estimators; the seed is also used for the sample and the reward model.
    pub settings: OpeSettings,
    /// Decisions that are not processed by this time are skipped.
    pub deadline: Instant,
}

/// Result of a policy evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationReport {
    pub evaluation: Option<Evaluation>,
    /// Decisions in the time range, as far as they were read before the deadline.
    pub decisions: u64,
    /// Decisions used in the estimates.
    pub used: usize,
    /// Slots of the used decisions.
    pub slots: usize,
    /// Slots of the used decisions with a reward.
    pub rewarded: usize,
    /// Share of the replayable decisions with a reward for any slot; `None` if no decision could be
    /// replayed.
    pub rewarded_share: Option<f64>,
    /// Value that was used for slots without a reward; `None` if decisions with such a slot are
    /// skipped.
    pub missing_reward: Option<f64>,
    /// Number of skipped decisions, by reason.
    pub skipped: Skipped,
}

/// Number of skipped decisions, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Skipped {
    /// Above the maximum number of decisions.
    pub not_sampled: u64,
    pub not_reached: u64,
    /// Only a digest of the candidates was recorded.
    pub candidates_not_kept: u64,
    /// Propensities are unknown or not yet computed.
    pub propensity_unknown: u64,
    /// The seed was given in the ranking request, so the ranking was not random.
    pub seed_given: u64,
    /// A slot has no reward, and there is no value for missing rewards.
    pub reward_missing: u64,
    /// Too recent: made within the wait of the model's default reward, so rewards may still arrive.
    pub reward_may_come: u64,
    /// The user's history was amended after the decision.
    pub history_amended: u64,
    /// The version that computed the scores was pruned.
    pub version_pruned: u64,
    /// The replay differs from the record: the data of a candidate or the weights of an ensemble
    /// have changed, or boosts or diversity of the request affected the order.
    pub inputs_changed: u64,
}

/// Evaluates policies on the recorded decisions of models.
pub struct PolicyEvaluation {
    storage: Storage,
    predictor: Arc<Predictor>,
    registry: Arc<Registry>,
    versions: Arc<VersionStore>,
    /// Held during an evaluation.
    evaluating: Mutex<()>,
}

impl PolicyEvaluation {
    pub(crate) fn new(
        storage: Storage,
        predictor: Arc<Predictor>,
        registry: Arc<Registry>,
        versions: Arc<VersionStore>,
    ) -> Self {
        Self { storage, predictor, registry, versions, evaluating: Mutex::default() }
    }

    /// Estimates the reward that `policy` would have earned in place of the logging policies. Reads
    /// decisions and histories from disk. A node runs one evaluation at a time. Blocks the thread
    /// until the deadline at most, plus the time of one decision.
    ///
    /// # Errors
    /// `UnknownModel`, `EvaluatingPolicy` while another evaluation is running, `Predictor` or
    /// `Storage`.
    pub fn evaluate(&self, request: &EvaluationRequest) -> Result<EvaluationReport, ManagerError> {
        let _evaluating = self.evaluating.try_lock().ok_or(ManagerError::EvaluatingPolicy)?;
        let record = self.registry.model(&request.model)?;
        let default_reward = record.config.default_reward;
        at_low_priority("celeris-ope", || {
            let mut skipped = Skipped::default();
            let ripe = default_reward
                .map_or(i64::MAX, |reward| Timestamp::from(SystemTime::now()).0.saturating_sub(reward.after_ms()));
            let (sample, decisions) = self.sample((request, record.id), ripe, &mut skipped)?;
            let missing_reward = request.missing_reward.or(default_reward.map(|reward| f64::from(reward.label)));
            let mut evaluator = Evaluator {
                predictor: &self.predictor,
                store: &self.versions,
                request,
                missing_reward,
                versions: HashMap::new(),
            };
            let mut replayed = ReplayedSlots::default();
            for (index, decision) in sample.iter().enumerate() {
                if Instant::now() >= request.deadline {
                    skipped.not_reached += (sample.len() - index) as u64;
                    break;
                }
                evaluator.add_decision(decision, &mut replayed, &mut skipped)?;
            }
            let rounds = replayed.rounds(request.settings.seed).map_err(PredictorError::from)?;
            Ok(EvaluationReport {
                decisions,
                used: replayed.rounds,
                slots: replayed.slots.len(),
                rewarded: replayed.rewarded,
                rewarded_share: (replayed.looked_at > 0)
                    .then(|| replayed.with_reward as f64 / replayed.looked_at as f64),
                missing_reward,
                skipped,
                evaluation: evaluate(&rounds, &request.settings),
            })
        })?
    }

    /// Returns the decisions in the time range that are usable according to their records, in
    /// random order, and the total number of decisions.
    fn sample(
        &self,
        (request, model): (&EvaluationRequest, ModelId),
        ripe: i64,
        skipped: &mut Skipped,
    ) -> Result<(Vec<Decision>, u64), ManagerError> {
        let mut rng = ChaCha8Rng::seed_from_u64(request.settings.seed);
        let mut sample: Vec<Decision> = Vec::new();
        let (mut all, mut usable) = (0, 0);
        let range = DecisionRange {
            model,
            after: request.from.map(DecisionId::first_at),
            before: request.to.unwrap_or(Timestamp(i64::MAX)),
        };
        let outcome: ControlFlow<()> = self.storage.decisions().scan_in(&range, |decision| {
            all += 1;
            if decision.candidates.items().is_none() {
                skipped.candidates_not_kept += 1;
            } else if decision.shown.is_empty() || decision.shown.iter().any(|slot| slot.propensity.is_none()) {
                skipped.propensity_unknown += 1;
            } else if decision.seed_given {
                skipped.seed_given += 1;
            } else if decision.timestamp.0 > ripe {
                skipped.reward_may_come += 1;
            } else {
                usable += 1;
                // Reservoir sampling: every usable decision is in the sample with the same
                // probability (Vitter 1985, algorithm R).
                if sample.len() < request.decisions_max {
                    sample.push(decision);
                } else {
                    let place = rng.random_range(0..usable);
                    if place < sample.len() {
                        sample[place] = decision;
                    }
                    skipped.not_sampled += 1;
                }
            }
            if Instant::now() < request.deadline { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if outcome.is_break() {
            // The decisions read so far are the oldest ones, not a random sample.
            skipped.not_reached += sample.len() as u64;
            sample.clear();
        }
        // Shuffled, so that the decisions processed before a deadline are a random sample too.
        sample.shuffle(&mut rng);
        Ok((sample, all))
    }
}

/// State of one evaluation.
struct Evaluator<'a> {
    predictor: &'a Predictor,
    store: &'a VersionStore,
    request: &'a EvaluationRequest,
    missing_reward: Option<f64>,
    /// The versions that made the decisions, `None` if pruned; a model has few.
    versions: HashMap<(ModelName, VersionId), Option<Arc<ServingVersion>>>,
}

impl Evaluator<'_> {
    /// Replays a decision under the policy and adds its slots to the sample.
    fn add_decision(
        &mut self,
        decision: &Decision,
        replayed: &mut ReplayedSlots,
        skipped: &mut Skipped,
    ) -> Result<(), ManagerError> {
        let Some(version) = self.version(decision)? else {
            skipped.version_pruned += 1;
            return Ok(());
        };
        let replay = match self.predictor.explainer().replay_decision(&version, decision)? {
            ReplayOutcome::Rebuilt(replay) => replay,
            ReplayOutcome::Impossible(why) => {
                match why {
                    WhyNot::CandidatesNotKept => skipped.candidates_not_kept += 1,
                    WhyNot::HistoryAmended => skipped.history_amended += 1,
                    WhyNot::VersionPruned => skipped.version_pruned += 1,
                    // An unknown policy has propensities, but its record was written by another
                    // program. Where several models answered together, their weights have changed
                    // since. Boosts and diversity of a request are not recorded.
                    WhyNot::UnknownPolicy | WhyNot::SeveralAnswered | WhyNot::Arranged => skipped.inputs_changed += 1,
                }
                return Ok(());
            }
        };
        let Some(shown) = shown(decision, &replay) else {
            skipped.inputs_changed += 1;
            return Ok(());
        };
        let joined = self.rewards(decision)?;
        replayed.looked_at += 1;
        replayed.with_reward += usize::from(joined.iter().any(Option::is_some));
        let rewards: Option<Vec<f64>> = joined.iter().map(|reward| reward.or(self.missing_reward)).collect();
        let Some(rewards) = rewards else {
            skipped.reward_missing += 1;
            return Ok(());
        };
        // For the logging policy itself the recorded propensity is used: a second estimate would
        // only add noise.
        let is_own =
            replay.policy == self.request.policy && replay.pool_share.is_none_or(|share| f64::from(share) == 0.0);
        let candidates = replay.candidates(&version);
        let mut weight_above = 1.0;
        for (position, candidate) in shown.iter().enumerate() {
            let likely = next_slot(self.request.policy.policy(), &candidates, &shown[..position], decision.seed)
                .map_err(PredictorError::from)?;
            let features = |candidate: usize| {
                [f64::from(replay.inputs.scores[candidate]), f64::from(replay.inputs.std_errors[candidate])]
            };
            let mut mean = [0.0; FEATURES];
            for (other, probability) in likely.iter().enumerate() {
                for (sum, feature) in mean.iter_mut().zip(features(other)) {
                    *sum += probability * feature;
                }
            }
            // Decisions without a propensity are not in the sample.
            let propensity = decision.shown[position].propensity.map_or(1.0, f64::from);
            let logged = LoggedSlot {
                reward: rewards[position],
                propensity,
                target: if is_own { propensity } else { likely[*candidate] },
                expected: 0.0,
                expected_target: 0.0,
                leverage: 0.0,
                leverage_switched: 0.0,
            };
            let weight = weight_above * logged.ratio();
            let kept_weight = self.request.settings.kept(weight);
            let row = RewardRow { round: replayed.rounds, position, reward: logged.reward, weight_above, kept_weight };
            replayed.slots.push(ReplayedSlot { row, logged, shown: features(*candidate), mean });
            weight_above = weight;
        }
        replayed.rounds += 1;
        replayed.rewarded += joined.iter().flatten().count();
        Ok(())
    }

    fn version(&mut self, decision: &Decision) -> Result<Option<Arc<ServingVersion>>, ManagerError> {
        let key = (decision.scored_by().clone(), decision.version);
        if let Some(version) = self.versions.get(&key) {
            return Ok(version.clone());
        }
        let version = self.store.of_decision(decision)?;
        self.versions.insert(key, version.clone());
        Ok(version)
    }

    /// The reward attributed to each slot.
    fn rewards(&self, decision: &Decision) -> Result<Vec<Option<f64>>, ManagerError> {
        let mut rewards = vec![None; decision.shown.len()];
        for (_, record) in self.predictor.attribution().outcomes(decision)? {
            let slot = record.decision.as_ref().and_then(|facts| facts.slot);
            if let Some(reward) = slot.and_then(|slot| rewards.get_mut(slot as usize)) {
                *reward = Some(f64::from(record.label));
            }
        }
        Ok(rewards)
    }
}

/// Indexes of the shown items among the candidates; `None` if the replay differs from the record
/// for any candidate.
fn shown(decision: &Decision, replay: &DecisionReplay) -> Option<Vec<usize>> {
    if !replay.is_of(decision) {
        return None;
    }
    let place = |slot: &ShownSlot| {
        let place = replay.items.iter().position(|item| *item == slot.item)?;
        (replay.inputs.scores[place].to_bits() == slot.score.to_bits()).then_some(place)
    };
    decision.shown.iter().map(place).collect()
}

/// Number of features of the reward model apart from the position: the score and its standard error
/// at that time.
const FEATURES: usize = 2;

struct ReplayedSlot {
    row: RewardRow,
    /// Without the estimates of the reward model.
    logged: LoggedSlot,
    /// Features of the shown item, and their mean under the evaluated policy.
    shown: [f64; FEATURES],
    mean: [f64; FEATURES],
}

/// Replayed decisions as input of the estimators.
#[derive(Default)]
struct ReplayedSlots {
    rounds: usize,
    rewarded: usize,
    /// Replayed decisions, and those with any reward.
    looked_at: usize,
    with_reward: usize,
    slots: Vec<ReplayedSlot>,
}

impl RewardFeatures for ReplayedSlots {
    fn dim(&self) -> usize {
        FEATURES
    }

    fn write(&self, slot: usize, shown: &mut [f64], target: &mut [f64]) {
        shown.copy_from_slice(&self.slots[slot].shown);
        target.copy_from_slice(&self.slots[slot].mean);
    }
}

impl ReplayedSlots {
    fn rounds(&self, seed: u64) -> Result<Rounds, BanditError> {
        let rows: Vec<RewardRow> = self.slots.iter().map(|slot| slot.row).collect();
        let expectations = RewardModel { seed, ..RewardModel::default() }.cross_fit(&rows, self)?;
        let mut expectations = expectations.into_iter();
        let mut rounds = Rounds::default();
        for round in self.slots.chunk_by(|left, right| left.row.round == right.row.round) {
            let modelled = |(slot, found): (&ReplayedSlot, Expectation)| LoggedSlot {
                expected: found.expected,
                expected_target: found.expected_target,
                leverage: found.leverage,
                leverage_switched: found.leverage_switched,
                ..slot.logged
            };
            let slots: Vec<LoggedSlot> = round.iter().zip(expectations.by_ref()).map(modelled).collect();
            rounds.push(&slots)?;
        }
        Ok(rounds)
    }
}
