//! What a policy would have earned: off-policy evaluation over a model's own decisions.
//!
//! Decisions whose candidates were kept in full are shown to the policy again as they were, scores and uncertainty of
//! that moment, and the rewards that have joined them are read from the log of observations. The estimators are those
//! of [`celeris_bandits::ope`].

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
use celeris_predictor::{DecisionReplay, PredictorError, ReplayOutcome, ServingVersion, WhyNot};
use celeris_storage::DecisionRange;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::ManagerError;
use crate::manager::Manager;
use crate::switch::at_low_priority;

/// Which decisions a policy is judged on, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationRequest {
    /// The model that decided.
    pub model: ModelName,
    /// The policy that is judged.
    pub policy: PolicySpec,
    /// Decisions from this moment on; from the first one where there is none.
    pub from: Option<Timestamp>,
    /// Decisions before this moment; up to the last one where there is none.
    pub to: Option<Timestamp>,
    /// So many decisions at most: a random sample where there are more.
    pub decisions_max: usize,
    /// What a shown slot brought whose reward has not come. Where this is not said, it is the label of the model's default
    /// reward; where the model has none, decisions with such a slot are left out.
    pub missing_reward: Option<f64>,
    /// Of the estimators; the seed is that of the sample and of the reward model too.
    pub settings: OpeSettings,
    /// When to be done: decisions that are not reached by then are left out.
    pub deadline: Instant,
}

/// What the decisions say.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyEvaluation {
    /// The estimates; `None` where no decision could be used.
    pub evaluation: Option<Evaluation>,
    /// Decisions in the span of time, as far as they were read by the deadline.
    pub decisions: u64,
    /// Those that the estimates are over.
    pub used: usize,
    /// Slots of these.
    pub slots: usize,
    /// Slots of these with a reward.
    pub rewarded: usize,
    /// Of the decisions that could be shown to the policy again, the share with a reward for any slot; `None` where there
    /// were none.
    pub rewarded_share: Option<f64>,
    /// What slots without one counted as; `None` where decisions with such a slot are left out.
    pub missing_reward: Option<f64>,
    /// Those that are not, by reason.
    pub skipped: Skipped,
}

/// Decisions that say nothing, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Skipped {
    /// More than were asked for.
    pub not_sampled: u64,
    /// Not reached by the deadline.
    pub not_reached: u64,
    /// Only a digest of the candidates was kept.
    pub candidates_not_kept: u64,
    /// Propensities are not known (yet).
    pub propensity_unknown: u64,
    /// The caller of the ranking chose its seed, so that it was not drawn at random.
    pub seed_given: u64,
    /// A slot has no reward, and nothing says what that counts as.
    pub reward_missing: u64,
    /// Made so lately that rewards may still come: within the wait for the model's default reward.
    pub reward_may_come: u64,
    /// The user's history has been amended since.
    pub history_amended: u64,
    /// The version that scored is not kept any more.
    pub version_pruned: u64,
    /// The scene differs from what was recorded: what was known of a candidate has changed, or the weights by which several
    /// models answered together; or boosts or diversity of a request had a part in the order.
    pub scene_changed: u64,
}

impl Manager {
    /// Estimates what `policy` would have earned had it ranked in the place of those that did. Reads decisions and
    /// histories from disk, one evaluation of this node at a time; blocks the thread until the deadline at most, by one
    /// decision.
    ///
    /// # Errors
    /// `UnknownModel`, `Judging` while another evaluation is under way, `Predictor` or `Storage`.
    pub fn judge_policy(&self, request: &EvaluationRequest) -> Result<PolicyEvaluation, ManagerError> {
        let _judging = self.judging.try_lock().ok_or(ManagerError::EvaluatingPolicy)?;
        let record = self.model(&request.model)?;
        let default_reward = record.config.default_reward;
        at_low_priority("celeris-judge", || {
            let mut skipped = Skipped::default();
            let ripe = default_reward
                .map_or(i64::MAX, |reward| Timestamp::from(SystemTime::now()).0.saturating_sub(reward.after_ms()));
            let (sample, decisions) = self.sample((request, record.id), ripe, &mut skipped)?;
            let missing_reward = request.missing_reward.or(default_reward.map(|reward| f64::from(reward.label)));
            let mut judge = Evaluator { manager: self, request, missing_reward, versions: HashMap::new() };
            let mut seen = Seen::default();
            for (index, decision) in sample.iter().enumerate() {
                if Instant::now() >= request.deadline {
                    skipped.not_reached += (sample.len() - index) as u64;
                    break;
                }
                judge.see(decision, &mut seen, &mut skipped)?;
            }
            let rounds = seen.rounds(request.settings.seed).map_err(PredictorError::from)?;
            Ok(PolicyEvaluation {
                decisions,
                used: seen.rounds,
                slots: seen.slots.len(),
                rewarded: seen.rewarded,
                rewarded_share: (seen.looked_at > 0).then(|| seen.with_reward as f64 / seen.looked_at as f64),
                missing_reward,
                skipped,
                evaluation: evaluate(&rounds, &request.settings),
            })
        })?
    }

    /// Decisions of the span of time that can be used as far as their records tell, in random order, and how many there
    /// are in all.
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
        let outcome: ControlFlow<()> = self.storage.scan_decisions_in(&range, |decision| {
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
                // Every usable decision is in the sample with the same probability (Vitter 1985, algorithm R).
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
            // What was read is the oldest, and no sample of the whole.
            skipped.not_reached += sample.len() as u64;
            sample.clear();
        }
        // In no order, so that what is reached by a deadline is a random sample too.
        sample.shuffle(&mut rng);
        Ok((sample, all))
    }
}

/// The policy, and what it is shown.
struct Evaluator<'a> {
    manager: &'a Manager,
    request: &'a EvaluationRequest,
    missing_reward: Option<f64>,
    /// Those that decisions were made under, as far as they are kept; a model has few.
    versions: HashMap<(ModelName, VersionId), Option<Arc<ServingVersion>>>,
}

impl Evaluator<'_> {
    /// Shows the policy a decision, and notes what comes of it.
    fn see(&mut self, decision: &Decision, seen: &mut Seen, skipped: &mut Skipped) -> Result<(), ManagerError> {
        let Some(version) = self.version(decision)? else {
            skipped.version_pruned += 1;
            return Ok(());
        };
        let scene = match self.manager.predictor.replay_decision(&version, decision)? {
            ReplayOutcome::Rebuilt(scene) => scene,
            ReplayOutcome::Impossible(why) => {
                match why {
                    WhyNot::CandidatesNotKept => skipped.candidates_not_kept += 1,
                    WhyNot::HistoryAmended => skipped.history_amended += 1,
                    WhyNot::VersionPruned => skipped.version_pruned += 1,
                    // Of the logging policy only the propensities count, but its record is from another program; and where
                    // several models answered together, what they said has moved with their weights.
                    // What a request asked to be put forward is no part of the record either.
                    WhyNot::UnknownPolicy | WhyNot::SeveralAnswered | WhyNot::Arranged => skipped.scene_changed += 1,
                }
                return Ok(());
            }
        };
        let Some(shown) = shown(decision, &scene) else {
            skipped.scene_changed += 1;
            return Ok(());
        };
        let joined = self.rewards(decision)?;
        seen.looked_at += 1;
        seen.with_reward += usize::from(joined.iter().any(Option::is_some));
        let rewards: Option<Vec<f64>> = joined.iter().map(|reward| reward.or(self.missing_reward)).collect();
        let Some(rewards) = rewards else {
            skipped.reward_missing += 1;
            return Ok(());
        };
        // What the log itself was drawn by needs no second estimate, which would differ from the first by its noise.
        let is_own =
            scene.policy == self.request.policy && scene.pool_share.is_none_or(|share| f64::from(share) == 0.0);
        let candidates = scene.candidates(&version);
        let mut weight_above = 1.0;
        for (position, candidate) in shown.iter().enumerate() {
            let likely = next_slot(self.request.policy.policy(), &candidates, &shown[..position], decision.seed)
                .map_err(PredictorError::from)?;
            let features =
                |candidate: usize| [f64::from(scene.scores[candidate]), f64::from(scene.std_errors[candidate])];
            let mut mean = [0.0; FEATURES];
            for (other, probability) in likely.iter().enumerate() {
                for (sum, feature) in mean.iter_mut().zip(features(other)) {
                    *sum += probability * feature;
                }
            }
            // Decisions without it are not in the sample.
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
            let row = RewardRow { round: seen.rounds, position, reward: logged.reward, weight_above, kept_weight };
            seen.slots.push(SeenSlot { row, logged, shown: features(*candidate), mean });
            weight_above = weight;
        }
        seen.rounds += 1;
        seen.rewarded += joined.iter().flatten().count();
        Ok(())
    }

    fn version(&mut self, decision: &Decision) -> Result<Option<Arc<ServingVersion>>, ManagerError> {
        let key = (decision.scored_by().clone(), decision.version);
        if let Some(version) = self.versions.get(&key) {
            return Ok(version.clone());
        }
        let version = self.manager.version_of_decision(decision)?;
        self.versions.insert(key, version.clone());
        Ok(version)
    }

    /// What has joined each slot.
    fn rewards(&self, decision: &Decision) -> Result<Vec<Option<f64>>, ManagerError> {
        let mut rewards = vec![None; decision.shown.len()];
        for (_, record) in self.manager.predictor.outcomes(decision)? {
            let slot = record.decision.as_ref().and_then(|facts| facts.slot);
            if let Some(reward) = slot.and_then(|slot| rewards.get_mut(slot as usize)) {
                *reward = Some(f64::from(record.label));
            }
        }
        Ok(rewards)
    }
}

/// The places among the candidates of what was shown; `None` where the scene is not the one that was recorded, of whatever
/// candidate.
fn shown(decision: &Decision, scene: &DecisionReplay) -> Option<Vec<usize>> {
    if !scene.is_of(decision) {
        return None;
    }
    let place = |slot: &ShownSlot| {
        let place = scene.items.iter().position(|item| *item == slot.item)?;
        (scene.scores[place].to_bits() == slot.score.to_bits()).then_some(place)
    };
    decision.shown.iter().map(place).collect()
}

/// What rewards are modelled by beside the position: the score and its uncertainty at that moment.
const FEATURES: usize = 2;

struct SeenSlot {
    row: RewardRow,
    /// But for what a model expects.
    logged: LoggedSlot,
    /// Features of what was shown, and their mean over what the policy would have shown.
    shown: [f64; FEATURES],
    mean: [f64; FEATURES],
}

/// Decisions as the estimators take them.
#[derive(Default)]
struct Seen {
    rounds: usize,
    rewarded: usize,
    /// Decisions that could be rebuilt, and those of them with any reward.
    looked_at: usize,
    with_reward: usize,
    slots: Vec<SeenSlot>,
}

impl RewardFeatures for Seen {
    fn dim(&self) -> usize {
        FEATURES
    }

    fn write(&self, slot: usize, shown: &mut [f64], target: &mut [f64]) {
        shown.copy_from_slice(&self.slots[slot].shown);
        target.copy_from_slice(&self.slots[slot].mean);
    }
}

impl Seen {
    fn rounds(&self, seed: u64) -> Result<Rounds, BanditError> {
        let rows: Vec<RewardRow> = self.slots.iter().map(|slot| slot.row).collect();
        let expectations = RewardModel { seed, ..RewardModel::default() }.cross_fit(&rows, self)?;
        let mut expectations = expectations.into_iter();
        let mut rounds = Rounds::default();
        for round in self.slots.chunk_by(|left, right| left.row.round == right.row.round) {
            let modelled = |(slot, found): (&SeenSlot, Expectation)| LoggedSlot {
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
