//! Rewards that the node gives if none arrives in time, and that a later one replaces.

use std::sync::Arc;
use std::time::SystemTime;

use celeris_model::{Decision, DecisionFacts, ModelId, ModelName, Observation, Record, RecordKind, Timestamp};
use celeris_storage::{AckMode, Lookup, StorageError};

use super::Ingest;
use super::observe::{Addressed, PendingObservation};
use crate::attribution::{DEFAULT_FEEDBACK, DEFAULT_REWARD_WAIT_MIN_MS, Target, default_reward_id};
use crate::error::PredictorError;
use crate::exploration::RewardSource;

/// The reward inserted if none arrives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DefaultReward {
    pub label: f32,
    /// End of the wait for a reward.
    pub due: Timestamp,
}

/// Whether a record is the default reward of this slot. Checked because an observation found by its
/// id is changed only if its content and user match the id.
fn is_default_reward(record: &Record, decision: &Decision, slot: u32) -> bool {
    let joins_it = |facts: &DecisionFacts| facts.id == decision.id && facts.slot == Some(slot);
    record.kind == RecordKind::Observe
        && record.user == decision.user
        && record.feedback.as_deref() == Some(DEFAULT_FEEDBACK)
        && record.decision.as_ref().is_some_and(joins_it)
}

impl Ingest {
    /// Begins to observe the default reward of a slot; `None` if the slot has a reward by now.
    ///
    /// # Errors
    /// As [`Ingest::begin_observe`].
    pub fn begin_default(
        &self,
        decision: &Arc<Decision>,
        slot: u32,
        reward: DefaultReward,
    ) -> Result<Option<PendingObservation>, PredictorError> {
        let Some(shown) = decision.shown.get(slot as usize) else { return Ok(None) };
        let observation = Observation {
            user: decision.user.clone(),
            item: shown.item.clone(),
            label: reward.label,
            weight: 1.0,
            timestamp: Some(reward.due),
            observation_id: Some(default_reward_id(&decision.id, slot)),
            feedback: Some(DEFAULT_FEEDBACK.to_owned()),
            decision: Some(decision.id.clone()),
            context: None,
        };
        let served = self.models.on_stream_of(decision.scored_by())?;
        let label = self.check(decision.scored_by(), &served, &observation)?;
        let target = Target::Found(Arc::clone(decision));
        let addressed = Addressed {
            model: served.name.clone(),
            model_id: served.id,
            context: self.context(&served.catalog, &observation, Some(&target))?,
            subject: self.users.subject(served, &observation.user),
            decision: Some(target),
            label,
            source: RewardSource::Default,
            message: None,
        };
        match self.append(&addressed, &observation, AckMode::Wait) {
            Ok(pending) => Ok(Some(pending)),
            // The slot has a reward, its default reward was replaced or retracted, or it can no
            // longer have one.
            Err(PredictorError::Rewarded | PredictorError::Storage(StorageError::ObservationForgotten { .. })) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Retracts the default reward of the slot that an observation rewards, if there is one. Call
    /// before [`Ingest::begin_observe`] for an observation that names a decision of this model.
    ///
    /// # Errors
    /// `UnknownModel`, `Model` for an invalid number, or `Storage`, with `ReservedId` for an id
    /// reserved for the node.
    pub async fn retract_default_reward(
        &self,
        model: &ModelName,
        expected: Option<ModelId>,
        observation: &Observation,
    ) -> Result<(), PredictorError> {
        let Some(id) = &observation.decision else { return Ok(()) };
        let now = Timestamp::from(SystemTime::now());
        if id.made_at().is_none_or(|made| now.0 < made.0 + DEFAULT_REWARD_WAIT_MIN_MS) {
            return Ok(());
        }
        let Addressed { subject, decision, .. } = self.address(model, expected, observation)?;
        let Some(Target::Found(decision)) = decision else { return Ok(()) };
        let slot = decision.slot_of(&observation.item).filter(|_| decision.user == observation.user);
        let Some(slot) = slot else { return Ok(()) };
        let default = default_reward_id(id, slot);
        let served = &subject.model;
        // A duplicate must not retract the default reward.
        if let Some(id) = &observation.observation_id
            && self.storage.log().observation(&served.stream, &observation.user, id)? != Lookup::Unknown
        {
            return Ok(());
        }
        let found = self.storage.log().observation(&served.stream, &observation.user, &default)?;
        let Lookup::Found { record: of_default, .. } = found else { return Ok(()) };
        if !is_default_reward(&of_default, &decision, slot) {
            return Ok(());
        }
        match self.forget(model, Some(&observation.user), &default).await {
            Ok(_) => {
                served.exploration.replaced(now);
                Ok(())
            }
            // A concurrent reward has already retracted it.
            Err(PredictorError::Storage(StorageError::ObservationForgotten { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
