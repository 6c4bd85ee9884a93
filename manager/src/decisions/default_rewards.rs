//! Default rewards for slots that received no reward in time.
//!
//! The decisions of each model are read in the order of their ids, which is chronological, from a
//! cursor in the registry. After a crash between writing the rewards and moving the cursor, the
//! same decisions are read again without effect: the id of a default reward is derived from its
//! slot, and the log accepts an id only once. In a cluster each node goes over the decisions that it
//! has made itself (`progress.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use celeris_model::{Decision, DecisionId, ModelId, Timestamp};
use celeris_predictor::{DefaultReward as Given, PendingObservation, PredictorError};
use celeris_storage::{DecisionRange, RegistryBatch, StorageError};

use super::DecisionMaintenance;
use super::progress::Turn;
use crate::error::ManagerError;
use crate::registry::{cursor_key, cursors_key, names_by_id};
use crate::settings::DefaultReward;

/// Decisions processed between two writes of the cursor.
const DECISIONS_AT_ONCE: usize = 256;

/// Whether a failed operation may succeed later: the model is out of service, or the store is
/// temporarily unable to write or read.
fn may_pass(error: &PredictorError) -> bool {
    let error = match error {
        PredictorError::UnknownModel { .. } => return true,
        PredictorError::Storage(error) => error,
        _ => return false,
    };
    matches!(
        error,
        StorageError::Overloaded { .. }
            | StorageError::StorageFull { .. }
            | StorageError::Poisoned { .. }
            | StorageError::Closed
            | StorageError::Database { .. }
            | StorageError::Io { .. }
    )
}

/// Default rewards that were permanently rejected.
#[derive(Default)]
struct Refused {
    count: usize,
    last: Option<PredictorError>,
}

impl Refused {
    fn count(&mut self, error: PredictorError) {
        self.count += 1;
        self.last = Some(error);
    }

    fn report(self, model: ModelId) {
        if let Self { count, last: Some(error) } = self {
            tracing::warn!(%model, count, %error, "default rewards were rejected; their slots stay without a reward");
        }
    }
}

impl DecisionMaintenance {
    /// Writes the default rewards that are due.
    pub(super) async fn give_default_rewards(&self, now: Timestamp) -> Result<(), ManagerError> {
        if let Some(progress) = &self.progress {
            progress.lock().look(Instant::now());
        }
        let wanted = self.default_rewards_wanted(now)?;
        for (model, (reward, cursor)) in wanted {
            // An error of one model does not affect the other models.
            let Err(error) = self.give_due(model, reward, cursor, now).await else { continue };
            if error.is_of_other_node() {
                tracing::info!(%model, %error, "default rewards wait for the shard of their user");
            } else {
                tracing::warn!(%model, %error, "could not write the default rewards of a model; retrying");
            }
        }
        Ok(())
    }

    /// Writes the default rewards of one model that are due.
    async fn give_due(
        &self,
        model: ModelId,
        reward: DefaultReward,
        mut cursor: DecisionId,
        now: Timestamp,
    ) -> Result<(), ManagerError> {
        while let Some(reached) = self.give_some(model, reward, &cursor, now).await? {
            cursor = reached;
        }
        Ok(())
    }

    /// The models with a default reward and their cursors. An unreadable cursor is reset to the
    /// current time, and the cursor of a model without the setting is removed, unless another node
    /// writes the registry.
    fn default_rewards_wanted(
        &self,
        now: Timestamp,
    ) -> Result<BTreeMap<ModelId, (DefaultReward, DecisionId)>, ManagerError> {
        let mut cursors = BTreeMap::new();
        for (key, cursor) in self.storage.registry().list::<DecisionId>(&cursors_key()?)? {
            match cursor {
                Ok(cursor) => drop(cursors.insert(key, cursor)),
                Err(error) => tracing::error!(%error, "unreadable cursor; default rewards start from now"),
            }
        }
        let mut wanted = BTreeMap::new();
        let mut changes = RegistryBatch::new();
        let mut changed = false;
        let models = self.registry.models()?.into_iter().map(|record| (record.id, record.config.default_reward));
        let selections = self.registry.selections()?.into_iter().map(|record| (record.id, record.default_reward));
        let mut in_service = BTreeSet::new();
        for (model, reward) in models.chain(selections) {
            in_service.insert(model);
            let Some(reward) = reward else { continue };
            let key = cursor_key(model)?;
            let cursor = match cursors.remove(&key) {
                Some(cursor) => cursor,
                None => {
                    let begin = DecisionId::first_at(now);
                    changes.put(key, &begin)?;
                    changed = true;
                    begin
                }
            };
            let cursor = match &self.progress {
                Some(progress) => progress.lock().of(model, cursor),
                None => cursor,
            };
            wanted.insert(model, (reward, cursor));
        }
        // Read the registry only if there are such cursors, since this runs twice a second.
        let all = if cursors.is_empty() { BTreeMap::new() } else { names_by_id(&self.storage)? };
        for key in cursors.into_keys() {
            let id = key.parts().get(1).and_then(|id| id.parse().ok()).map(ModelId);
            // A model out of service continues from its cursor once it is back in service.
            if !id.is_some_and(|id| all.contains_key(&id) && !in_service.contains(&id)) {
                changes.delete(key);
                changed = true;
            }
        }
        if changed && self.registry.is_leading() {
            self.storage.registry().commit(&changes)?;
        }
        if let Some(progress) = &self.progress {
            let out = self.predictor.models().out_of_service();
            let is_out = |model| out.values().any(|out| out.id == Some(model));
            progress.lock().retain(|model| wanted.contains_key(&model) || is_out(model));
        }
        Ok(wanted)
    }

    /// Writes the default rewards of a batch of decisions behind `cursor` and moves the cursor.
    /// Returns `None` if none are due.
    async fn give_some(
        &self,
        model: ModelId,
        reward: DefaultReward,
        cursor: &DecisionId,
        now: Timestamp,
    ) -> Result<Option<DecisionId>, ManagerError> {
        let before = Timestamp(now.0.saturating_sub(reward.after_ms()));
        let range = DecisionRange { model, after: Some(cursor.clone()), before };
        let due = self.due(&range)?;
        let mut reached = None;
        let mut pending: Vec<PendingObservation> = Vec::new();
        let mut refused = Refused::default();
        'due: for decision in &due {
            match self.turn(decision) {
                Turn::Give => {}
                Turn::Wait => break,
                Turn::Skip => {
                    metrics::counter!("celeris_default_rewards_left_total").increment(1);
                    reached = Some(decision.id.clone());
                    continue;
                }
            }
            // What was not shown says nothing of its user.
            if self.storage.decisions().awaits_activation(model, &decision.id)? {
                reached = Some(decision.id.clone());
                continue;
            }
            let given = Given { label: reward.label, due: Timestamp(decision.timestamp.0 + reward.after_ms()) };
            let slots = reward.slots.min(u32::try_from(decision.shown.len()).unwrap_or(u32::MAX));
            for slot in 0..slots {
                match self.predictor.ingest().begin_default(decision, slot, given) {
                    Ok(begun) => pending.extend(begun),
                    // The shard has moved since; the next check waits for it, or passes it over.
                    Err(error) if error.is_of_other_node() => break 'due,
                    Err(error) if may_pass(&error) => return Err(error.into()),
                    // A retry would be rejected again, and the cursor would never move past this
                    // decision.
                    Err(error) => refused.count(error),
                }
            }
            reached = Some(decision.id.clone());
        }
        refused.report(model);
        for observation in pending {
            self.predictor.ingest().finish_observe(observation).await?;
        }
        if let Some(reached) = &reached {
            self.moved(model, reached)?;
        }
        Ok(reached)
    }

    fn turn(&self, decision: &Decision) -> Turn {
        let Some(progress) = &self.progress else { return Turn::Give };
        progress.lock().turn(self.storage.log().shard_of(&decision.user), Instant::now())
    }

    fn moved(&self, model: ModelId, reached: &DecisionId) -> Result<(), ManagerError> {
        if let Some(progress) = &self.progress {
            return progress.lock().moved(model, reached.clone());
        }
        let mut moved = RegistryBatch::new();
        moved.put(cursor_key(model)?, reached)?;
        Ok(self.storage.registry().commit(&moved)?)
    }

    fn due(&self, range: &DecisionRange) -> Result<Vec<Arc<Decision>>, ManagerError> {
        let mut due = Vec::new();
        // A scan that stops early is continued by the next call.
        let _full_or_done = self.storage.decisions().scan_in(range, |decision| {
            due.push(Arc::new(decision));
            if due.len() < DECISIONS_AT_ONCE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(due)
    }
}
