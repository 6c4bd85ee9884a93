//! Attribution of rewards to decisions.
//!
//! An observation that names a decision is checked against it: whether the user matches, whether
//! the decision showed the item, and whether that slot already has a reward. The result is stored
//! in the observation's record, so that learners need only the log. The set of rewarded slots is
//! itself a view of the log: kept in memory for the latest decisions, and read from the user's
//! history for others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use celeris_model::{
    Context, Decision, DecisionFacts, DecisionId, Joined, ModelId, ModelName, Observation, ObservationId, Record,
    RecordKind, Sequence, StreamName, UserEpoch, UserId,
};
use celeris_storage::{HistorySpan, Storage};
use hashlink::LruCache;
use parking_lot::Mutex;

use crate::error::PredictorError;
use crate::models::Models;
use crate::users::UserKey;

/// Number of decisions whose rewarded slots are kept in memory: more than the log's queue holds
/// records, so that it includes every reward that is not in the log yet.
const REMEMBERED_MAX: usize = 1 << 17;

/// Minimum wait before a default reward, in milliseconds.
pub const DEFAULT_REWARD_WAIT_MIN_MS: i64 = 1_000;

/// The `feedback` of default rewards in the log.
pub const DEFAULT_FEEDBACK: &str = "default";

pub(crate) enum Target {
    /// The decision is unavailable, and the reason.
    Absent(DecisionId, Joined),
    Found(Arc<Decision>),
}

impl Target {
    /// The context of the decision, which an observation of its user inherits.
    pub(crate) fn context(&self, user: &UserId) -> Option<&Context> {
        match self {
            Self::Found(decision) if decision.user == *user => decision.context.as_deref(),
            Self::Found(_) | Self::Absent(..) => None,
        }
    }
}

/// Maximum number of user events after a decision within which rewards can join it. It bounds the
/// cost of searching for its rewards.
pub const FOLLOWED_MAX: u64 = 1 << 14;

/// The reward of a slot of a decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlotReward {
    /// From 0.
    pub slot: u32,
    pub label: f32,
    /// Whether it was given because none had come in time.
    pub is_default: bool,
}

/// The observation id of a slot's default reward.
#[must_use]
pub fn default_reward_id(decision: &DecisionId, slot: u32) -> ObservationId {
    ObservationId::of_default_reward(decision, slot).expect("ids of decisions that are logged are UUIDs")
}

/// Checks the decisions that observations name, and knows the rewarded slots of recent decisions.
pub struct Attribution {
    storage: Storage,
    models: Arc<Models>,
    rewarded: Mutex<LruCache<DecisionId, Vec<u32>>>,
}

impl Attribution {
    pub(crate) fn new(storage: Storage, models: Arc<Models>) -> Self {
        Self { storage, models, rewarded: Mutex::new(LruCache::new(REMEMBERED_MAX)) }
    }

    fn slots(&self, id: &DecisionId) -> Option<Vec<u32>> {
        self.rewarded.lock().get(id).cloned()
    }

    /// Stores the rewarded slots of a decision.
    ///
    /// The caller guarantees that it has held the lock of the decision's user since it read the
    /// slots.
    pub(crate) fn keep(&self, id: &DecisionId, slots: Vec<u32>) {
        self.rewarded.lock().insert(id.clone(), slots);
    }

    /// Forgets the rewarded slots of a decision: another node has appended a reward or its retraction.
    pub(crate) fn forget(&self, id: &DecisionId) {
        self.rewarded.lock().remove(id);
    }

    /// Forgets all rewarded slots in memory, of which some are not in the log.
    pub(crate) fn forget_all(&self) {
        self.rewarded.lock().clear();
    }

    /// Adds a slot whose reward is in the log's queue.
    ///
    /// The caller guarantees that it has held the user's lock since it read the slots.
    pub(crate) fn reward(&self, facts: &DecisionFacts) {
        let Some(slot) = facts.slot else { return };
        let mut rewarded = self.rewarded.lock();
        // If the entry was evicted since the caller read it, by rewards of more decisions than the
        // log's queue holds records, the next reader uses the log.
        if let Some(slots) = rewarded.get_mut(&facts.id) {
            slots.push(slot);
        }
    }

    /// Finds the decision of the model or selection `decided_by` that an observation names. Reads
    /// from disk if it is not in memory.
    pub(crate) fn target(&self, decided_by: ModelId, id: &DecisionId) -> Result<Target, PredictorError> {
        if self.storage.decisions().is_expired(id, SystemTime::now().into()) {
            return Ok(Target::Absent(id.clone(), Joined::Expired));
        }
        let found = match self.storage.decisions().unwritten(decided_by, id) {
            Some(found) => Some(found),
            None => self.storage.decisions().get(decided_by, id)?,
        };
        Ok(found.map_or_else(|| Target::Absent(id.clone(), Joined::Unknown), Target::Found))
    }

    /// The decision facts for the record of an observation.
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
        // The decision may have been found before the user was erased.
        if self.storage.decisions().is_erased(decision) {
            return without_slot(Joined::Unknown);
        }
        if decision.user != observation.user {
            return without_slot(Joined::OtherUser);
        }
        let Some(slot) = decision.slot_of(&observation.item) else { return without_slot(Joined::NotShown) };
        if epoch.0.saturating_sub(decision.user_epoch.0) >= FOLLOWED_MAX {
            return without_slot(Joined::Expired);
        }
        let rewarded = match self.slots(&decision.id) {
            Some(slots) => slots,
            None => {
                let slots = rewarded_slots(&self.storage, stream, decision, epoch)?;
                self.keep(&decision.id, slots.clone());
                slots
            }
        };
        if rewarded.contains(&slot) {
            without_slot(Joined::Repeated)
        } else {
            Ok(DecisionFacts::of_slot(decision, slot))
        }
    }

    /// The rewarded slots of a decision after retracting the reward with these facts and this
    /// epoch. All rewards of a decision are within the [`FOLLOWED_MAX`] events after it, and so
    /// within that distance of each other.
    ///
    /// The caller guarantees that it holds the user's lock, and that all writes of the user are
    /// durable.
    pub(crate) fn without_reward(
        &self,
        key: &UserKey,
        (facts, epoch): (&DecisionFacts, UserEpoch),
    ) -> Result<(DecisionId, Vec<u32>), PredictorError> {
        let mut slots = match self.slots(&facts.id) {
            Some(slots) => slots,
            None => {
                let mut slots = Vec::new();
                let near = HistorySpan {
                    after: UserEpoch(epoch.0.saturating_sub(FOLLOWED_MAX)),
                    up_to: UserEpoch(epoch.0.saturating_add(FOLLOWED_MAX)),
                };
                self.storage.histories().scan(&key.stream, &key.user, near, |_, record| {
                    let named = record.decision.filter(|other| other.id == facts.id);
                    slots.extend(named.and_then(|other| other.slot));
                })?;
                slots
            }
        };
        slots.retain(|slot| Some(*slot) != facts.slot);
        Ok((facts.id.clone(), slots))
    }

    /// The rewards of the slots of these decisions, as the log has them now. Reads from disk; blocks the thread.
    ///
    /// The caller guarantees that they were made for this user, and scored by this model.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn rewards(
        &self,
        (scored_by, user): (&ModelName, &UserId),
        decisions: &[(DecisionId, UserEpoch)],
    ) -> Result<HashMap<DecisionId, Vec<SlotReward>>, PredictorError> {
        let mut rewards: HashMap<DecisionId, Vec<SlotReward>> =
            decisions.iter().map(|(id, _)| (id.clone(), Vec::new())).collect();
        let stream = &self.models.on_stream_of(scored_by)?.stream;
        let mut epochs: Vec<u64> = decisions.iter().map(|(_, epoch)| epoch.0).collect();
        epochs.sort_unstable();
        // Decisions that lie close together are searched for at once, and events between others not at all.
        for near in epochs.chunk_by(|one, next| next.saturating_sub(*one) < FOLLOWED_MAX) {
            let (Some(after), Some(last)) = (near.first(), near.last()) else { continue };
            let span = HistorySpan { after: UserEpoch(*after), up_to: UserEpoch(last.saturating_add(FOLLOWED_MAX)) };
            self.storage.histories().scan(stream, user, span, |_, record| {
                let Some(DecisionFacts { id, slot: Some(slot), .. }) = record.decision.as_ref() else { return };
                if let Some(of) = rewards.get_mut(id).filter(|_| record.kind == RecordKind::Observe) {
                    let is_default = record.feedback.as_deref() == Some(DEFAULT_FEEDBACK);
                    of.push(SlotReward { slot: *slot, label: record.label, is_default });
                }
            })?;
        }
        Ok(rewards)
    }

    /// The current log records of the observations that name a decision, by its user, within the
    /// [`FOLLOWED_MAX`] events after it: all that can have joined it. Reads from disk; blocks the
    /// thread.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn outcomes(&self, decision: &Decision) -> Result<Vec<(Sequence, Record)>, PredictorError> {
        outcomes(&self.storage, &self.models.on_stream_of(decision.scored_by())?.stream, decision)
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
        // The user has no events since the decision.
        return Ok(Vec::new());
    }
    let joined = outcomes(storage, stream, decision)?;
    Ok(joined.into_iter().filter_map(|(_, record)| record.decision?.slot).collect())
}

/// The observations that name a decision, by its user, in order, among the first [`FOLLOWED_MAX`]
/// events after it.
fn outcomes(
    storage: &Storage,
    stream: &StreamName,
    decision: &Decision,
) -> Result<Vec<(Sequence, Record)>, PredictorError> {
    let after = decision.user_epoch;
    let span = HistorySpan { after, up_to: UserEpoch(after.0.saturating_add(FOLLOWED_MAX)) };
    let names_it = |record: &Record| record.decision.as_ref().is_some_and(|facts| facts.id == decision.id);
    let mut found = Vec::new();
    storage.histories().scan(stream, &decision.user, span, |sequence, record| {
        if record.kind == RecordKind::Observe && names_it(&record) {
            found.push((sequence, record));
        }
    })?;
    Ok(found)
}
