//! The scene of a decision, rebuilt: what the policy saw, so that it can be asked again why it showed what it did.
//!
//! A user's state is a function of the version and of the user's records, and the decision says after how many of them
//! it was made; so the scores come out as they were, to the bit, and from the recorded seed the same ranking. What has
//! been changed since cannot be rebuilt, and the replay says so.

use celeris_bandits::{Candidates, PolicySpec, PoolShare};
use celeris_model::{Decision, Estimate, ItemId, Record, RecordKind, SceneDigest, Sequence, UserEpoch, UserModel};

use crate::drawing::{Draw, Seed, explored};
use crate::error::PredictorError;
use crate::features::Resolved;
use crate::node::Predictor;
use crate::recommend::arrangement::is_arranged;
use crate::replay::examples;
use crate::scoring;
use crate::topk::scene_digest;
use crate::version::ServingVersion;

/// Why the scene of a decision cannot be rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyNot {
    /// The record has a digest or the number of the candidates, not the candidates.
    CandidatesNotKept,
    /// Observations that the user's state had learnt from were corrected or retracted later.
    HistoryAmended,
    /// The version that scored is not there any more.
    VersionPruned,
    /// The recorded policy is one that this program does not know.
    UnknownPolicy,
    /// All arms of a selection answered together, by weights that are not part of the record.
    SeveralAnswered,
    /// Boosts or diversity of the request had a part in the order, and which items they were about is not part of the
    /// record.
    Arranged,
}

impl WhyNot {
    /// In words.
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

/// What there is of the scene of a decision.
#[derive(Debug, Clone)]
pub enum ReplayOutcome {
    /// All of it.
    Rebuilt(Box<DecisionReplay>),
    /// Nothing that could be relied on.
    Impossible(WhyNot),
}

/// What a policy saw: `n` candidates, scored for one user by the posterior of that moment.
#[derive(Debug, Clone)]
pub struct DecisionReplay {
    /// The candidates, in the order in which the policy saw them.
    pub items: Vec<ItemId>,
    /// Length `n`.
    pub scores: Vec<f32>,
    /// Length `n`: the standard errors of the scores.
    pub std_errors: Vec<f32>,
    /// Length `n`: the part of each score that does not depend on the user.
    pub offsets: Vec<f32>,
    /// Row-major `n x dim`.
    pub features: Vec<f32>,
    /// Of all of that which may differ from what the policy saw.
    pub digest: SceneDigest,
    /// The user's weights and their uncertainty.
    pub posterior: UserModel,
    /// The policy that was asked, and with it the share that the validation pool draws, where it takes part.
    pub policy: PolicySpec,
    /// See [`Decision::pool_share`].
    pub pool_share: Option<PoolShare>,
}

/// One slot of a replayed ranking.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayedSlot {
    /// What is shown there.
    pub item: ItemId,
    /// Its score.
    pub score: f32,
    /// The uncertainty of that.
    pub std_error: f32,
    /// Its place among all candidates by score, from 0: where greedy would have put it.
    pub rank_by_score: u32,
    /// Whether greedy would have shown it in none of the slots.
    pub explored: bool,
    /// The probability of this item in this slot, given the slots above; `None` where there is no closed form.
    pub propensity: Option<f32>,
}

impl DecisionReplay {
    /// The scene as policies and estimators take it. `version` is the one that it was rebuilt under.
    #[must_use]
    pub fn candidates<'a>(&'a self, version: &'a ServingVersion) -> Candidates<'a> {
        Candidates {
            scores: &self.scores,
            std_errors: &self.std_errors,
            offsets: &self.offsets,
            features: &self.features,
            posterior: &self.posterior,
            learning: &version.learning,
        }
    }

    /// Whether the policy saw just this: all candidates, shown or not, score to the bit what they did, by the same features.
    #[must_use]
    pub fn is_of(&self, decision: &Decision) -> bool {
        self.digest == decision.scene
    }

    /// Draws the ranking again, with the policy and the seed of its record.
    ///
    /// # Errors
    /// `Bandit`, where the policy refuses.
    pub fn draw(&self, version: &ServingVersion, decision: &Decision) -> Result<Vec<ReplayedSlot>, PredictorError> {
        let seed = Seed { value: decision.seed, given: decision.seed_given };
        let draw = Draw { policy: &self.policy, pool_share: self.pool_share, k: decision.shown.len(), seed };
        let ranking = draw.draw(&self.candidates(version))?;
        let explored = explored(&self.scores, &ranking.slots);
        let above = |candidate: usize| {
            let score = self.scores[candidate];
            let earlier = self.scores[..candidate].iter().filter(|other| **other >= score).count();
            let later = self.scores[candidate..].iter().filter(|other| **other > score).count();
            u32::try_from(earlier + later).unwrap_or(u32::MAX)
        };
        let slots = ranking.slots.iter().zip(explored).map(|(slot, explored)| ReplayedSlot {
            item: self.items[slot.candidate].clone(),
            score: self.scores[slot.candidate],
            std_error: self.std_errors[slot.candidate],
            rank_by_score: above(slot.candidate),
            explored,
            propensity: slot.propensity,
        });
        Ok(slots.collect())
    }
}

/// Whether a replayed ranking is the recorded one: items and scores to the bit.
#[must_use]
pub fn is_same(replayed: &[ReplayedSlot], decision: &Decision) -> bool {
    replayed.len() == decision.shown.len()
        && replayed.iter().zip(&decision.shown).all(|(replayed, shown)| {
            replayed.item == shown.item
                && replayed.score.to_bits() == shown.score.to_bits()
                && replayed.std_error.to_bits() == shown.std_error.to_bits()
        })
}

impl Predictor {
    /// Rebuilds the scene of a decision under the version that scored, which need not serve any more. Reads the user's
    /// history from the disk; blocks the thread.
    ///
    /// The caller guarantees that `version` is [`Decision::version`] of the model [`Decision::scored_by`].
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
        let stream = self.model(decision.scored_by())?.stream.clone();
        let history = self.storage.history(&stream, &decision.user)?;
        let Some(history) = as_it_was(&history, decision) else {
            return Ok(ReplayOutcome::Impossible(WhyNot::HistoryAmended));
        };
        let features = self.features.untracked();
        let resolve = |item: &ItemId| features.resolve(version, &stream, item);
        let learnt = history.iter().map(|(item, _)| resolve(item)).collect::<Result<Vec<_>, _>>()?;
        let examples = examples(history.iter().map(|(_, record)| *record).zip(&learnt));
        let posterior = UserModel::rebuild(&version.learning, examples.as_slice(), examples.len() as u64)?;
        let resolved = items.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
        let estimates: Vec<Estimate> = scoring::estimates(&posterior, version, resolved.iter());
        let mut rows = Vec::with_capacity(resolved.len() * version.dim());
        resolved.iter().for_each(|item| rows.extend_from_slice(item.features()));
        let scores: Vec<f32> = estimates.iter().map(|estimate| estimate.score).collect();
        Ok(ReplayOutcome::Rebuilt(Box::new(DecisionReplay {
            digest: scene_digest(&scores, &resolved),
            items: items.to_vec(),
            scores,
            std_errors: estimates.iter().map(|estimate| estimate.std_error).collect(),
            offsets: resolved.iter().map(Resolved::offset).collect(),
            features: rows,
            posterior,
            policy,
            pool_share,
        })))
    }
}

/// The observations that a decision's scores reflect; `None` where one of them is not what it was then.
fn as_it_was<'h>(history: &'h [(Sequence, Record)], decision: &Decision) -> Option<Vec<(&'h ItemId, &'h Record)>> {
    let (before, since): (Vec<_>, Vec<_>) =
        history.iter().partition(|(_, record)| record.user_epoch <= decision.user_epoch);
    let after = decision.user_epoch;
    if after == UserEpoch(0) {
        return Some(Vec::new());
    }
    // A retraction leaves nothing in the history of what it is about, and only its own record tells where that was. A
    // user's records are in the order of their epochs, so what lies before the first of the later ones came earlier;
    // unless the last of the earlier ones is there to tell.
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
