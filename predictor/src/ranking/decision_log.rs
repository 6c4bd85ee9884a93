//! Records rankings as decisions, which later observations refer to.

use std::sync::Arc;
use std::time::SystemTime;

use celeris_bandits::{PoolShare, Slot};
use celeris_model::{
    CandidateDigest, Context, Decision, DecisionId, Estimate, InputsDigest, Partition, RecordedCandidates,
    SelectionFacts, ShownSlot, Timestamp, UserId,
};
use celeris_storage::{LateCandidates, Storage};

use super::arrangement::{Arrangement, recorded_policy};
use super::drawing::{Draw, explored};
use super::inputs::PolicyInputs;
use super::propensities::{Estimator, PendingPropensities};
use super::scorer::{ResolvedItems, ScoredCandidates, estimates};
use super::{Ranked, Ranking, Scored};
use crate::exploration::ExplorationCounts;
use crate::features::{Resolved, missing_parts};
use crate::users::{Persistence, Subject, UserSnapshot};
use crate::version::ServingVersion;

/// Approximate size of an id in a record, in bytes.
const ID_BYTES: usize = 16;

/// Which decisions are recorded, and with which candidates.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionLogging {
    pub enabled: bool,
    /// Decisions with at most this many candidates are recorded with all of them.
    pub candidates_in_full: usize,
    /// The share of decisions with more candidates that are recorded with all of them; the others
    /// store a digest.
    pub candidates_sampled: f64,
}

impl Default for DecisionLogging {
    fn default() -> Self {
        Self { enabled: true, candidates_in_full: 256, candidates_sampled: 0.01 }
    }
}

impl DecisionLogging {
    fn in_full(&self, count: usize) -> bool {
        count <= self.candidates_in_full || rand::random::<f64>() < self.candidates_sampled
    }
}

/// All candidates, looked up later by the writer: only their rows are copied here.
fn in_full_later(version: &Arc<ServingVersion>, items: &ResolvedItems<'_>) -> LateCandidates {
    let (version, (rows, outside)) = (Arc::clone(version), items.rows());
    let make = move || {
        let mut outside = outside.iter();
        let ids = version.theta.items();
        let id = |row: &Option<u32>| row.map_or_else(|| outside.next(), |row| ids.get(row as usize)).cloned();
        RecordedCandidates::Full(rows.iter().filter_map(id).collect())
    };
    LateCandidates { bytes: items.len() * ID_BYTES, make: Box::new(make) }
}

/// Everything that a decision depends on.
pub(crate) struct RankingInput<'a> {
    pub(crate) subject: &'a Subject,
    pub(crate) items: &'a ResolvedItems<'a>,
    pub(crate) draw: Draw<'a>,
    pub(crate) selection: Option<&'a SelectionFacts>,
    /// Boosts and diversity of the request.
    pub(crate) arrangement: Option<&'a Arrangement>,
    pub(crate) context: Option<&'a Context>,
}

/// A drawn ranking, before its decision is recorded.
pub(crate) struct RankedSlots {
    pub(crate) snapshot: UserSnapshot,
    pub(crate) pool: bool,
    pub(crate) shown: Vec<Ranked>,
    /// For each slot, whether greedy would have shown its item in no slot.
    pub(crate) explored: Vec<bool>,
    /// Digest of the policy's inputs.
    pub(crate) digest: InputsDigest,
    /// The computed parts that no candidate had.
    pub(crate) missing: Vec<String>,
    /// The candidates shown, by slot, and the policy's inputs, if the propensities are unknown.
    pub(crate) unknown: Option<(Vec<usize>, PolicyInputs)>,
}

impl RankedSlots {
    pub(crate) fn new(
        subject: &Subject,
        items: &ResolvedItems<'_>,
        scored: ScoredCandidates<'_>,
        ranking: &celeris_bandits::Ranking,
    ) -> Self {
        let shown = shown(subject, &scored, items, ranking);
        let explored = explored(&scored.inputs.scores, &ranking.slots);
        let digest = inputs_digest(&scored.inputs.scores, &scored.resolved);
        let missing = missing_parts(&subject.version, &scored.resolved);
        let is_unknown = ranking.slots.iter().any(|slot| slot.propensity.is_none());
        let order = || ranking.slots.iter().map(|slot| slot.candidate).collect();
        let unknown = is_unknown.then(|| (order(), scored.inputs));
        Self { snapshot: scored.snapshot, pool: ranking.pool, shown, explored, digest, missing, unknown }
    }
}

/// The digest of candidates as a policy sees them. Features of trained items never change under a
/// version, so their scores suffice.
pub(crate) fn inputs_digest(scores: &[f32], resolved: &[Resolved<'_>]) -> InputsDigest {
    let changeable = resolved.iter().filter(|item| !item.is_trained());
    let numbers = changeable.flat_map(|item| std::iter::once(item.offset()).chain(item.features().iter().copied()));
    InputsDigest::of(scores, numbers)
}

/// A new id for a decision for this user. Ids ascend, also within a millisecond: they begin with the
/// time and a counter.
pub(crate) fn new_decision_id(user: &UserId) -> DecisionId {
    DecisionId::in_partition(uuid::Uuid::now_v7().as_u128(), Partition::of(user))
}

/// Records decisions in the background, as far as its settings demand.
pub(crate) struct DecisionLog {
    storage: Storage,
    logging: DecisionLogging,
    estimator: Estimator,
}

impl DecisionLog {
    pub(crate) fn new(storage: Storage, logging: DecisionLogging) -> Self {
        Self { estimator: Estimator::new(storage.clone()), storage, logging }
    }

    /// Records the decision and returns the answer.
    pub(crate) fn record(&self, input: &RankingInput<'_>, mut ranked: RankedSlots) -> Ranking {
        let RankingInput { subject, draw, .. } = input;
        let decision_id = new_decision_id(&subject.key.user);
        let timestamp = Timestamp::from(SystemTime::now());
        let unknown = ranked.unknown.take();
        let logged = self.logging.enabled && subject.persistence == Persistence::Kept && {
            let mut decision = decision_of(input, &ranked, decision_id.clone(), timestamp);
            let pending = unknown.map(|unknown| pending_propensities(input, &ranked, unknown, &decision));
            let logged = if self.logging.in_full(input.items.len()) {
                self.storage.decisions().record(decision, Some(in_full_later(&subject.version, input.items)))
            } else {
                let (count, digest) = (decision.candidates.count(), CandidateDigest::of(input.items.items()));
                decision.candidates = RecordedCandidates::Digest { count, digest };
                self.storage.decisions().record(decision, None)
            };
            if let Some(pending) = pending.filter(|_| logged) {
                self.estimator.offer(pending);
            }
            logged
        };
        subject.model.exploration.count(timestamp, &counts(&ranked, logged));
        Ranking {
            decision_id,
            logged,
            version: subject.version.id,
            loss: subject.version.learning.loss(),
            user_epoch: ranked.snapshot.epoch,
            cold: ranked.snapshot.model.observations() == 0,
            policy: draw.policy.clone(),
            seed: draw.seed.value,
            seed_given: draw.seed.given,
            pool: ranked.pool,
            items: ranked.shown,
            missing: ranked.missing,
            selected: None,
        }
    }
}

/// The record, with only the number of its candidates.
fn decision_of(input: &RankingInput<'_>, ranked: &RankedSlots, id: DecisionId, timestamp: Timestamp) -> Decision {
    let RankingInput { subject, items, draw, .. } = input;
    let selection = input.selection.cloned();
    Decision {
        id,
        model: selection.as_ref().map_or(&subject.model.name, |selection| &selection.model).clone(),
        model_id: selection.as_ref().map_or(subject.model.id, |selection| selection.model_id),
        version: subject.version.id,
        user: subject.key.user.clone(),
        user_epoch: ranked.snapshot.epoch,
        timestamp,
        seed: draw.seed.value,
        seed_given: draw.seed.given,
        policy: recorded_policy(draw.policy, input.arrangement),
        pool_share: draw.pool_share.map(PoolShare::into),
        pool: ranked.pool,
        shown: recorded_slots(ranked),
        candidates: RecordedCandidates::Count(u32::try_from(items.len()).unwrap_or(u32::MAX)),
        inputs: ranked.digest,
        selection,
        context: input.context.cloned().map(Box::new),
    }
}

/// The inputs for computing the decision's propensities.
fn pending_propensities(
    input: &RankingInput<'_>,
    ranked: &RankedSlots,
    (ranking, inputs): (Vec<usize>, PolicyInputs),
    decision: &Decision,
) -> PendingPropensities {
    PendingPropensities {
        decided_by: decision.model_id,
        id: decision.id.clone(),
        pool: decision.pool,
        seed: decision.seed,
        version: input.subject.version.clone(),
        posterior: ranked.snapshot.model.clone(),
        policy: input.draw.policy.clone(),
        pool_share: input.draw.pool_share,
        ranking,
        inputs,
    }
}

fn recorded_slots(ranked: &RankedSlots) -> Vec<ShownSlot> {
    let slot = |(shown, explored): (&Ranked, &bool)| ShownSlot {
        item: shown.scored.item.clone(),
        score: shown.scored.estimate.score,
        std_error: shown.scored.estimate.std_error,
        propensity: shown.propensity,
        propensity_std_error: None,
        explored: *explored,
    };
    ranked.shown.iter().zip(&ranked.explored).map(slot).collect()
}

fn counts(ranked: &RankedSlots, logged: bool) -> ExplorationCounts {
    ExplorationCounts {
        decisions: 1,
        logged: u64::from(logged),
        pool: u64::from(ranked.pool),
        slots: ranked.shown.len() as u64,
        explored: ranked.explored.iter().filter(|explored| **explored).count() as u64,
        ..ExplorationCounts::default()
    }
}

/// The slots with their estimates, computed here only if the policy did not need them.
fn shown(
    subject: &Subject,
    scored: &ScoredCandidates<'_>,
    items: &ResolvedItems<'_>,
    ranking: &celeris_bandits::Ranking,
) -> Vec<Ranked> {
    let resolved = ranking.slots.iter().map(|slot| &scored.resolved[slot.candidate]);
    let estimates: Vec<Estimate> = if scored.estimates.is_empty() {
        estimates(&scored.snapshot.model, &subject.version, resolved.clone())
    } else {
        ranking.slots.iter().map(|slot| scored.estimates[slot.candidate]).collect()
    };
    let ranked = |((slot, resolved), estimate): ((&Slot, &Resolved<'_>), Estimate)| Ranked {
        scored: Scored { item: items.item(slot.candidate).clone(), estimate, known: resolved.known() },
        propensity: slot.propensity,
    };
    ranking.slots.iter().zip(resolved).zip(estimates).map(ranked).collect()
}
