//! Replay of a decision: rebuilds the candidates and scores that its policy had, and draws the
//! ranking again.
//!
//! A user's state is a function of the version and of the user's records, and the decision records
//! the epoch at which it was made; so the scores are reproduced bit for bit, and with the recorded
//! seed the same ranking. Decisions whose inputs have changed since cannot be replayed, and the
//! reason is returned.

use celeris_bandits::{Candidates, PolicySpec, PoolShare};
use celeris_model::{Decision, Estimate, InputsDigest, ItemId, Record, RecordKind, Sequence, UserEpoch, UserModel};

use super::Explainer;
use super::replay::examples;
use crate::error::PredictorError;
use crate::features::{in_context, one_in_context};
use crate::ranking::{Draw, PolicyInputs, Seed, estimates, explored, inputs_digest, is_arranged};
use crate::version::ServingVersion;

/// Why a decision cannot be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyNot {
    /// The record has only a digest or the number of the candidates.
    CandidatesNotKept,
    /// Observations that the user's state had learnt from were corrected or retracted later.
    HistoryAmended,
    /// The version that scored was deleted.
    VersionPruned,
    /// This build does not know the recorded policy.
    UnknownPolicy,
    /// All arms of a selection answered together, with weights that the record does not contain.
    SeveralAnswered,
    /// Boosts or diversity influenced the order, and the record does not contain the boosted items.
    Arranged,
}

impl WhyNot {
    /// The reason as text.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::CandidatesNotKept => "the candidates were not kept in full",
            Self::HistoryAmended => "the user's history has been corrected or retracted in part since",
            Self::VersionPruned => "the version that scored is not kept any more",
            Self::SeveralAnswered => "several models answered together, by weights that have moved since",
            Self::Arranged => "boosts or diversity of the request had a part in the order",
            Self::UnknownPolicy => "this program does not know the recorded policy",
        }
    }
}

/// The result of a replay.
#[derive(Debug, Clone)]
pub enum ReplayOutcome {
    Rebuilt(Box<DecisionReplay>),
    /// The decision cannot be replayed reliably.
    Impossible(WhyNot),
}

/// Inputs of a decision: `n` candidates, scored for one user by the posterior at that time.
#[derive(Debug, Clone)]
pub struct DecisionReplay {
    /// The candidates, in the order that the policy received.
    pub items: Vec<ItemId>,
    pub inputs: PolicyInputs,
    /// Digest of these inputs, to compare with the recorded one.
    pub digest: InputsDigest,
    /// The posterior of the user's weights.
    pub posterior: UserModel,
    /// The recorded policy.
    pub policy: PolicySpec,
    /// See [`Decision::pool_share`].
    pub pool_share: Option<PoolShare>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReplayedSlot {
    pub item: ItemId,
    pub score: f32,
    pub std_error: f32,
    /// Its rank among all candidates by score, from 0.
    pub rank_by_score: u32,
    /// Whether greedy would have shown it in no slot.
    pub explored: bool,
    /// The probability of this item in this slot, given the slots above; `None` if there is no
    /// closed form.
    pub propensity: Option<f32>,
}

impl DecisionReplay {
    /// The inputs in the form that policies and estimators take. `version` is the one that they
    /// were rebuilt under.
    #[must_use]
    pub fn candidates<'a>(&'a self, version: &'a ServingVersion) -> Candidates<'a> {
        self.inputs.candidates(&self.posterior, &version.learning)
    }

    /// Whether the inputs match the record: all candidates have the same scores, to the bit, and
    /// the same features.
    #[must_use]
    pub fn is_of(&self, decision: &Decision) -> bool {
        self.digest == decision.inputs
    }

    /// Draws the ranking again, with the recorded policy and seed.
    ///
    /// # Errors
    /// `Bandit`, if the policy fails.
    pub fn draw(&self, version: &ServingVersion, decision: &Decision) -> Result<Vec<ReplayedSlot>, PredictorError> {
        let seed = Seed { value: decision.seed, given: decision.seed_given };
        let draw = Draw { policy: &self.policy, pool_share: self.pool_share, k: decision.shown.len(), seed };
        let ranking = draw.draw(&self.candidates(version))?;
        let explored = explored(&self.inputs.scores, &ranking.slots);
        let above = |candidate: usize| {
            let score = self.inputs.scores[candidate];
            let earlier = self.inputs.scores[..candidate].iter().filter(|other| **other >= score).count();
            let later = self.inputs.scores[candidate..].iter().filter(|other| **other > score).count();
            u32::try_from(earlier + later).unwrap_or(u32::MAX)
        };
        let slots = ranking.slots.iter().zip(explored).map(|(slot, explored)| ReplayedSlot {
            item: self.items[slot.candidate].clone(),
            score: self.inputs.scores[slot.candidate],
            std_error: self.inputs.std_errors[slot.candidate],
            rank_by_score: above(slot.candidate),
            explored,
            propensity: slot.propensity,
        });
        Ok(slots.collect())
    }
}

/// Whether a replayed ranking equals the recorded one: items and scores to the bit.
#[must_use]
pub fn is_same(replayed: &[ReplayedSlot], decision: &Decision) -> bool {
    replayed.len() == decision.shown.len()
        && replayed.iter().zip(&decision.shown).all(|(replayed, shown)| {
            replayed.item == shown.item
                && replayed.score.to_bits() == shown.score.to_bits()
                && replayed.std_error.to_bits() == shown.std_error.to_bits()
        })
}

impl Explainer {
    /// Rebuilds the inputs of a decision under the version that scored, which need not serve. Reads
    /// the user's history and present attributes from disk; blocks the thread.
    ///
    /// The caller guarantees that `version` is [`Decision::version`] of the model
    /// [`Decision::scored_by`].
    ///
    /// # Errors
    /// `UnknownModel`, `Model` or `Storage`.
    pub fn replay_decision(
        &self,
        version: &ServingVersion,
        decision: &Decision,
    ) -> Result<ReplayOutcome, PredictorError> {
        let Some(items) = decision.candidates.items() else {
            return Ok(ReplayOutcome::Impossible(WhyNot::CandidatesNotKept));
        };
        if is_arranged(&decision.policy) {
            return Ok(ReplayOutcome::Impossible(WhyNot::Arranged));
        }
        let Ok(policy) = serde_json::from_str::<PolicySpec>(&decision.policy) else {
            return Ok(ReplayOutcome::Impossible(WhyNot::UnknownPolicy));
        };
        let pool_share = decision.pool_share.map(PoolShare::new).transpose()?;
        let stream = self.models.get(decision.scored_by())?.stream.clone();
        let history = self.storage.histories().of(&stream, &decision.user)?;
        let Some(history) = as_it_was(&history, decision) else {
            return Ok(ReplayOutcome::Impossible(WhyNot::HistoryAmended));
        };
        let untracked = self.features.untracked();
        let scope = untracked.scope_of(&stream, &decision.user);
        let resolve = |item: &ItemId| untracked.resolve(version, scope, item);
        let learnt = history.iter().map(|(item, record)| {
            let context = record.context.as_ref().map(|context| context.named());
            Ok(one_in_context(version, resolve(item)?, context.as_ref()))
        });
        let learnt = learnt.collect::<Result<Vec<_>, PredictorError>>()?;
        let examples = examples(history.iter().map(|(_, record)| *record).zip(&learnt));
        let attributes = self.storage.user_attributes().get(&stream, &decision.user)?;
        let pull = attributes.and_then(|attributes| version.profile(&attributes));
        let posterior = UserModel::rebuild(&version.learning, examples.as_slice(), examples.len() as u64)?;
        let posterior = posterior.with_profile(&version.learning, pull);
        let resolved = items.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
        let resolved = in_context(version, resolved, decision.context.as_deref());
        let estimates: Vec<Estimate> = estimates(&posterior, version, resolved.iter());
        let mut inputs = PolicyInputs::of_estimates(estimates.iter());
        inputs.add_rows(&resolved, version.dim());
        Ok(ReplayOutcome::Rebuilt(Box::new(DecisionReplay {
            digest: inputs_digest(&inputs.scores, &resolved),
            items: items.to_vec(),
            inputs,
            posterior,
            policy,
            pool_share,
        })))
    }
}

/// The observations that a decision's scores reflect; `None` if one of them was amended since.
fn as_it_was<'h>(history: &'h [(Sequence, Record)], decision: &Decision) -> Option<Vec<(&'h ItemId, &'h Record)>> {
    let (before, since): (Vec<_>, Vec<_>) =
        history.iter().partition(|(_, record)| record.user_epoch <= decision.user_epoch);
    let after = decision.user_epoch;
    if after == UserEpoch(0) {
        return Some(Vec::new());
    }
    // A retraction removes its observation from the history, and only its own record keeps the
    // position. A user's records are in the order of their epochs, so positions before the first
    // later record are earlier; if the last earlier record is still there, its position is the
    // bound.
    let end = match (before.last(), since.first()) {
        (Some((last, record)), _) if record.user_epoch == after => last.next(),
        (_, Some((first, _))) => *first,
        (_, None) => Sequence(u64::MAX),
    };
    let amends = |record: &Record| record.targets.iter().any(|target| *target < end);
    if since.iter().any(|(_, record)| amends(record)) {
        return None;
    }
    let observed = before.into_iter().filter(|(_, record)| record.kind == RecordKind::Observe);
    Some(observed.filter_map(|(_, record)| Some((record.item.as_ref()?, record))).collect())
}
