//! Rewards and the decisions that they are the outcome of.
//!
//! An observation that names a decision is looked at in the light of it: whose it was, whether it showed the item, and
//! whether that slot has its reward already. What comes of that is in the observation's record, so that learners need
//! the log alone. Which slots have a reward is itself a view of the log: it is remembered for the latest decisions,
//! and read from the user's history for others.

use std::sync::Arc;
use std::time::SystemTime;

use celeris_model::{
    Decision, DecisionFacts, DecisionId, Joined, ModelName, Observation, ObservationId, Record, RecordKind, Sequence,
    StreamName, Timestamp, UserEpoch,
};
use celeris_storage::{HistorySpan, Lookup, Storage, StorageError};
use hashlink::LruCache;
use parking_lot::Mutex;

use crate::error::PredictorError;
use crate::node::{Predictor, compute};
use crate::users::UserKey;

/// Decisions whose rewarded slots are remembered: more than the log's queue holds records, so that a reward which the
/// log cannot tell of yet is among them.
const REMEMBERED_MAX: usize = 1 << 17;

/// The shortest wait for a default reward.
pub const DEFAULT_REWARD_WAIT_MIN_MS: i64 = 1_000;

/// What default rewards are called in the log, as clients call their kinds of feedback.
pub const DEFAULT_FEEDBACK: &str = "default";

/// The slots of recent decisions that have a reward.
pub(crate) struct Attribution {
    rewarded: Mutex<LruCache<DecisionId, Vec<u32>>>,
}

impl Attribution {
    pub(crate) fn new() -> Self {
        Self { rewarded: Mutex::new(LruCache::new(REMEMBERED_MAX)) }
    }

    fn slots(&self, id: &DecisionId) -> Option<Vec<u32>> {
        self.rewarded.lock().get(id).cloned()
    }

    /// Remembers the slots of a decision that have a reward.
    ///
    /// The caller guarantees that it holds the lock of the decision's user, and has held it since it asked for the slots.
    pub(crate) fn keep(&self, id: &DecisionId, slots: Vec<u32>) {
        self.rewarded.lock().insert(id.clone(), slots);
    }

    /// A slot has its reward: it is in the log's queue.
    ///
    /// The caller guarantees that it holds the user's lock, and has held it since it asked for the slots.
    pub(crate) fn reward(&self, facts: &DecisionFacts) {
        let Some(slot) = facts.slot else { return };
        let mut rewarded = self.rewarded.lock();
        // If rewards of more decisions than the log's queue holds records have pushed it out since the caller asked, the next
        // to ask reads the log.
        if let Some(slots) = rewarded.get_mut(&facts.id) {
            slots.push(slot);
        }
    }
}

/// The decision that an observation names.
pub(crate) enum Target {
    /// It cannot be joined.
    Absent(DecisionId, Joined),
    Found(Arc<Decision>),
}

/// Whose word a reward is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RewardSource {
    /// A client's.
    Client,
    /// Nobody's: none has come in time. It gives way to any other.
    Default,
}

/// How many events of its user a decision is followed by at most until rewards join it no more. What has joined is looked
/// for among these, so that finding it is bounded work however much a user does.
pub const FOLLOWED_MAX: u64 = 1 << 14;

/// The id of the observation that stands in for a reward which has not come.
#[must_use]
pub fn default_reward_id(decision: &DecisionId, slot: u32) -> ObservationId {
    ObservationId::of_default_reward(decision, slot).expect("ids of decisions that are logged are UUIDs")
}

/// Whether a record is the default reward of a slot of this decision: what is found by an id is acted upon only where it is
/// what the id says, and its user's.
fn is_default_reward(record: &Record, decision: &Decision, slot: u32) -> bool {
    let joins_it = |facts: &DecisionFacts| facts.id == decision.id && facts.slot == Some(slot);
    record.kind == RecordKind::Observe
        && record.user == decision.user
        && record.feedback.as_deref() == Some(DEFAULT_FEEDBACK)
        && record.decision.as_ref().is_some_and(joins_it)
}

impl Predictor {
    /// Finds the decision that an observation names. Reads the disk where it is not in memory.
    pub(crate) fn target(&self, decided_by: &ModelName, id: &DecisionId) -> Result<Target, PredictorError> {
        if self.is_expired(id) {
            return Ok(Target::Absent(id.clone(), Joined::Expired));
        }
        let decided_by = self.decides_as(decided_by)?;
        let found = match self.storage.unwritten_decision(decided_by, id) {
            Some(found) => Some(found),
            None => compute(false, || self.storage.decision(decided_by, id))?,
        };
        Ok(found.map_or_else(|| Target::Absent(id.clone(), Joined::Unknown), Target::Found))
    }

    /// Whether a decision of this id is older than decisions are kept, so that it makes no difference whether it has
    /// been deleted already.
    fn is_expired(&self, id: &DecisionId) -> bool {
        let kept = i64::try_from(self.storage.decision_retention().as_millis()).unwrap_or(i64::MAX);
        let now = Timestamp::from(SystemTime::now());
        id.made_at().is_some_and(|made| made.0.saturating_add(kept) < now.0)
    }

    /// What the record of an observation says of the decision that it names.
    ///
    /// The caller guarantees that it holds the user's lock, and that `epoch` is the user's.
    pub(crate) fn join(
        &self,
        stream: &StreamName,
        target: &Target,
        epoch: UserEpoch,
        observation: &Observation,
    ) -> Result<DecisionFacts, PredictorError> {
        let decision = match target {
            Target::Absent(id, joined) => return Ok(DecisionFacts::without_slot(id.clone(), *joined)),
            Target::Found(decision) => decision,
        };
        let without_slot = |joined| Ok(DecisionFacts::without_slot(decision.id.clone(), joined));
        // It may have been found before the user was erased.
        if self.storage.is_erased(decision) {
            return without_slot(Joined::Unknown);
        }
        if decision.user != observation.user {
            return without_slot(Joined::OtherUser);
        }
        let Some(slot) = decision.slot_of(&observation.item) else { return without_slot(Joined::NotShown) };
        if epoch.0.saturating_sub(decision.user_epoch.0) >= FOLLOWED_MAX {
            return without_slot(Joined::Expired);
        }
        let rewarded = match self.attribution.slots(&decision.id) {
            Some(slots) => slots,
            None => {
                let slots = rewarded_slots(&self.storage, stream, decision, epoch)?;
                self.attribution.keep(&decision.id, slots.clone());
                slots
            }
        };
        if rewarded.contains(&slot) {
            without_slot(Joined::Repeated)
        } else {
            Ok(DecisionFacts::of_slot(decision, slot))
        }
    }

    /// The slots of a decision that have a reward once the one with these facts, of that epoch, is retracted. All rewards
    /// of a decision are among the [`FOLLOWED_MAX`] events behind it, and so no further from one another.
    ///
    /// The caller guarantees that it holds the user's lock, and that everything of the user is durable.
    pub(crate) fn without_reward(
        &self,
        key: &UserKey,
        (facts, epoch): (&DecisionFacts, UserEpoch),
    ) -> Result<(DecisionId, Vec<u32>), PredictorError> {
        let mut slots = match self.attribution.slots(&facts.id) {
            Some(slots) => slots,
            None => {
                let mut slots = Vec::new();
                let near = HistorySpan {
                    after: UserEpoch(epoch.0.saturating_sub(FOLLOWED_MAX)),
                    up_to: UserEpoch(epoch.0.saturating_add(FOLLOWED_MAX)),
                };
                self.storage.scan_history(&key.stream, &key.user, near, |_, record| {
                    let named = record.decision.filter(|other| other.id == facts.id);
                    slots.extend(named.and_then(|other| other.slot));
                })?;
                slots
            }
        };
        slots.retain(|slot| Some(*slot) != facts.slot);
        Ok((facts.id.clone(), slots))
    }

    /// The observations of a decision's user that name it, as the log has them now, among the [`FOLLOWED_MAX`] events that
    /// followed the decision: all that can have joined it. Reads the disk; blocks the thread.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn outcomes(&self, decision: &Decision) -> Result<Vec<(Sequence, Record)>, PredictorError> {
        outcomes(&self.storage, &self.model(&self.of_stream(decision.scored_by()))?.stream, decision)
    }

    /// Retracts the default reward of the slot that an observation is the true reward of, if it has one. To be called
    /// before [`Predictor::begin_observe`] for an observation that names a decision of this model.
    ///
    /// # Errors
    /// `UnknownModel`, `Model` for a bad number, or `Storage`, with `ReservedId` for an id that only a node gives.
    pub async fn retract_default_reward(
        &self,
        model: &ModelName,
        observation: &Observation,
    ) -> Result<(), PredictorError> {
        let Some(id) = &observation.decision else { return Ok(()) };
        let now = Timestamp::from(SystemTime::now());
        if id.made_at().is_none_or(|made| now.0 < made.0 + DEFAULT_REWARD_WAIT_MIN_MS) {
            return Ok(());
        }
        self.check_observation(observation)?;
        check_id(observation)?;
        let Target::Found(decision) = self.target(model, id)? else { return Ok(()) };
        let slot = decision.slot_of(&observation.item).filter(|_| decision.user == observation.user);
        let Some(slot) = slot else { return Ok(()) };
        let default = default_reward_id(id, slot);
        let served = self.model(&self.of_stream(model))?;
        // What will be refused, or was taken before, must not take the default reward away.
        served.active.load().learning.loss().check_label(observation.label)?;
        if let Some(id) = &observation.observation_id
            && compute(false, || self.storage.observation(&served.stream, id))? != Lookup::Unknown
        {
            return Ok(());
        }
        let found = compute(false, || self.storage.observation(&served.stream, &default))?;
        let Lookup::Found { record: of_default, .. } = found else { return Ok(()) };
        if !is_default_reward(&of_default, &decision, slot) {
            return Ok(());
        }
        match self.forget(model, &default).await {
            Ok(_) => {
                served.exploration.replaced(now);
                Ok(())
            }
            // Another reward of the slot was quicker.
            Err(PredictorError::Storage(StorageError::ObservationForgotten { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The slots of a decision that have a reward in the log.
fn rewarded_slots(
    storage: &Storage,
    stream: &StreamName,
    decision: &Decision,
    epoch: UserEpoch,
) -> Result<Vec<u32>, PredictorError> {
    if epoch <= decision.user_epoch {
        // The user has not said anything since.
        return Ok(Vec::new());
    }
    let joined = outcomes(storage, stream, decision)?;
    Ok(joined.into_iter().filter_map(|(_, record)| record.decision?.slot).collect())
}

/// The observations of a decision's user that name it, in their order, among the first [`FOLLOWED_MAX`] events behind it.
fn outcomes(
    storage: &Storage,
    stream: &StreamName,
    decision: &Decision,
) -> Result<Vec<(Sequence, Record)>, PredictorError> {
    let after = decision.user_epoch;
    let span = HistorySpan { after, up_to: UserEpoch(after.0.saturating_add(FOLLOWED_MAX)) };
    let names_it = |record: &Record| record.decision.as_ref().is_some_and(|facts| facts.id == decision.id);
    let mut found = Vec::new();
    storage.scan_history(stream, &decision.user, span, |sequence, record| {
        if record.kind == RecordKind::Observe && names_it(&record) {
            found.push((sequence, record));
        }
    })?;
    Ok(found)
}

/// Refuses the ids that the node itself gives.
pub(crate) fn check_id(observation: &Observation) -> Result<(), PredictorError> {
    match &observation.observation_id {
        Some(id) if id.is_reserved() => Err(StorageError::ReservedId { id: id.as_str().to_owned() }.into()),
        _ => Ok(()),
    }
}
