//! Amendments: correction and retraction of an observation, and erasure of a user.
//!
//! Each is an event of its user: it takes an epoch, is appended to the log, and is acknowledged
//! once durable. The log changes the affected records in the same write, and the user's states are
//! rebuilt from the remaining records, as if the history had always been so.

use std::sync::Arc;
use std::time::SystemTime;

use celeris_model::observation::check_label;
use celeris_model::{
    DecisionFacts, ModelName, ObservationId, Partition, Record, RecordKind, Sequence, StreamName, UserEpoch, UserId,
};
use celeris_storage::{AckMode, Append, Appended, Erasure, Lookup, Placed, StorageError, Ticket};

use super::Ingest;
use crate::error::PredictorError;
use crate::models::ServedModel;
use crate::users::{Amendment, Subject};

/// A durable correction or retraction.
#[derive(Debug, Clone, PartialEq)]
pub struct Amended {
    pub user: UserId,
    /// The user's epoch after this event.
    pub user_epoch: UserEpoch,
    /// The event's position in the user's partition; for a correction that changed nothing, the
    /// observation's own.
    pub sequence: Sequence,
    /// Whether the observation already had that label, so that nothing was written.
    pub duplicate: bool,
    /// The label that is recorded, if it is not the one sent.
    pub clipped: Option<f32>,
}

/// A durable erasure.
#[derive(Debug, Clone, PartialEq)]
pub struct Erased {
    /// The stream from which the user was erased.
    pub stream: StreamName,
    /// The user's epoch after this event. It is kept, so that no epoch is used twice.
    pub user_epoch: UserEpoch,
    /// Number of erased decisions.
    pub decisions: u64,
    /// The log's entry of the erasure.
    pub erasure: Erasure,
}

struct Pending {
    subject: Subject,
    user_epoch: UserEpoch,
    placed: Placed,
}

struct Change<'a> {
    amendment: Amendment,
    /// The facts and epoch of the slot reward that is retracted, if any.
    reward: Option<(&'a DecisionFacts, UserEpoch)>,
}

/// Result of one attempt at an amendment.
enum Attempt {
    Done(Pending),
    /// An earlier write of the user is not durable yet; amendments require that all are.
    Wait(Ticket),
}

impl Ingest {
    /// Corrects an observation's label: the user's states become as if it had always had this
    /// label. Without `user`, the id must be that of one user alone.
    ///
    /// # Errors
    /// `UnknownModel`, `UnknownObservation`, `Model` for an invalid label; `Storage`, with
    /// `AmbiguousId`, or `ObservationForgotten` if it was retracted.
    pub async fn correct(
        &self,
        model: &ModelName,
        user: Option<&UserId>,
        id: &ObservationId,
        label: f32,
    ) -> Result<Amended, PredictorError> {
        check_label(label)?;
        let served = self.models.on_stream_of(model)?;
        let accepted = self.models.accepted_label(model, &served, label)?;
        let amended = self.amend_observation(&served, (user, id), Some(accepted)).await?;
        Ok(Amended { clipped: (accepted.to_bits() != label.to_bits()).then_some(accepted), ..amended })
    }

    /// Retracts an observation: the user's states become as if it had never been made. Without
    /// `user`, the id must be that of one user alone.
    ///
    /// # Errors
    /// `UnknownModel`, `UnknownObservation`; `Storage`, with `AmbiguousId`, or
    /// `ObservationForgotten` if it was already retracted.
    pub async fn forget(
        &self,
        model: &ModelName,
        user: Option<&UserId>,
        id: &ObservationId,
    ) -> Result<Amended, PredictorError> {
        self.amend_observation(&self.models.on_stream_of(model)?, (user, id), None).await
    }

    async fn amend_observation(
        &self,
        model: &Arc<ServedModel>,
        target: (Option<&UserId>, &ObservationId),
        label: Option<f32>,
    ) -> Result<Amended, PredictorError> {
        loop {
            let (sequence, original) = self.find(&model.stream, target)?;
            let user = original.user.clone();
            if label.is_some_and(|label| label.to_bits() == original.label.to_bits()) {
                let subject = self.users.subject(Arc::clone(model), &user);
                let snapshot = self.users.snapshot(&subject)?;
                self.users.settle(&subject, snapshot.pending.as_ref()).await?;
                return Ok(Amended { user, user_epoch: snapshot.epoch, sequence, duplicate: true, clipped: None });
            }
            let attempt = self.try_amend(model, sequence, &original, label)?;
            let pending = match attempt {
                Attempt::Done(pending) => pending,
                Attempt::Wait(ticket) => {
                    ticket.durable().await?;
                    continue;
                }
            };
            let user_epoch = pending.user_epoch;
            let sequence = self.finish_amendment(pending).await?;
            return Ok(Amended { user, user_epoch, sequence, duplicate: false, clipped: None });
        }
    }

    fn find(
        &self,
        stream: &StreamName,
        (user, id): (Option<&UserId>, &ObservationId),
    ) -> Result<(Sequence, Record), PredictorError> {
        let log = self.storage.log();
        let found = match user {
            Some(user) => log.observation(stream, user, id)?,
            None => log.observation_of_any_user(stream, id)?,
        };
        match found {
            Lookup::Found { sequence, record, .. } if record.kind == RecordKind::Observe => Ok((sequence, record)),
            Lookup::Forgotten => Err(StorageError::ObservationForgotten { id: id.as_str().to_owned() }.into()),
            Lookup::Found { .. } | Lookup::Unknown => Err(PredictorError::UnknownObservation { id: id.clone() }),
        }
    }

    fn try_amend(
        &self,
        model: &Arc<ServedModel>,
        target: Sequence,
        original: &Record,
        label: Option<f32>,
    ) -> Result<Attempt, PredictorError> {
        let (kind, amendment) = match label {
            Some(label) => (RecordKind::Correct, Amendment::Relabel(original.user_epoch, label)),
            None => (RecordKind::Retract, Amendment::Forget(original.user_epoch)),
        };
        // An observation may name a decision without being the reward of one of its slots, for
        // example another user's.
        let rewards = |facts: &&DecisionFacts| label.is_none() && facts.slot.is_some();
        let reward = original.decision.as_ref().filter(rewards).map(|facts| (facts, original.user_epoch));
        let change = Change { amendment, reward };
        let record = |user_epoch| Record {
            item: original.item.clone(),
            label: label.unwrap_or_default(),
            targets: vec![target],
            ..event(kind, original.user.clone(), user_epoch)
        };
        self.append_amendment(self.users.subject(Arc::clone(model), &original.user), &change, record)
    }

    /// Appends under the user's lock, once all writes of the user are durable.
    fn append_amendment(
        &self,
        subject: Subject,
        change: &Change<'_>,
        record: impl FnOnce(UserEpoch) -> Record,
    ) -> Result<Attempt, PredictorError> {
        let appended = self.users.with_state(&subject, |state, sources| {
            if let Some(ticket) = state.pending() {
                return Ok(Err(ticket));
            }
            if !matches!(change.amendment, Amendment::ForgetAll) {
                state.read_back(sources, &subject.version)?;
            }
            let taken_back =
                change.reward.map(|reward| self.attribution.without_reward(&subject.key, reward)).transpose()?;
            let user_epoch = state.epoch.next();
            let append = Append {
                stream: subject.model.stream.clone(),
                record: record(user_epoch),
                frozen: Vec::new(),
                notes_item: false,
                source: None,
                ack: AckMode::Wait,
            };
            let placed = match self.storage.log().append(append)? {
                Appended::New(placed) => placed,
                Appended::Existing(_) => unreachable!("only an observation brings an id that may exist"),
            };
            state.amend(change.amendment, placed.ticket().clone());
            if let Some((decision, slots)) = taken_back {
                // Until the retraction is durable the log still contains the reward.
                self.attribution.keep(&decision, slots);
            }
            Ok(Ok((user_epoch, placed)))
        })?;
        Ok(match appended {
            Ok((user_epoch, placed)) => {
                subject.entry.changed.notify_waiters();
                Attempt::Done(Pending { subject, user_epoch, placed })
            }
            Err(ticket) => Attempt::Wait(ticket),
        })
    }

    async fn finish_amendment(&self, pending: Pending) -> Result<Sequence, PredictorError> {
        match pending.placed.durable().await {
            Ok(committed) => Ok(committed.sequence),
            Err(error) => {
                pending.subject.entry.discard();
                Err(error.into())
            }
        }
    }

    /// Erases the history and the decisions of a user of the model's stream, for every model of the
    /// stream, including models out of service. What caches hold of the user is left to the caller.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`; decisions may then be erased while the user is not, and the
    /// call can be retried.
    pub(crate) async fn erase(&self, model: &ModelName, user: &UserId) -> Result<Erased, PredictorError> {
        let model = self.models.on_stream_of(model)?;
        let stream = &model.stream;
        // Decisions have their own database. They are deleted before the erasure is logged, and
        // none is written until it is, so that a crash in between leaves no decision of an erased
        // user.
        let erasing = self.storage.decisions().erase(&self.models.all_on(stream), user)?;
        let pending = loop {
            let subject = self.users.subject(Arc::clone(&model), user);
            let record = |user_epoch| event(RecordKind::Erase, user.clone(), user_epoch);
            let change = Change { amendment: Amendment::ForgetAll, reward: None };
            match self.append_amendment(subject, &change, record)? {
                Attempt::Done(pending) => break pending,
                Attempt::Wait(ticket) => {
                    ticket.durable().await?;
                }
            }
        };
        let user_epoch = pending.user_epoch;
        let at = self.finish_amendment(pending).await?;
        let decisions = erasing.finish(user_epoch);
        let erasures = self.storage.log().erasures(stream)?;
        let place = (Partition::of(user), at);
        let erasure = erasures.into_iter().find(|erasure| (erasure.partition, erasure.at) == place);
        let erasure = erasure.expect("the log lists every erasure that is durable");
        Ok(Erased { stream: stream.clone(), user_epoch, decisions, erasure })
    }

    /// Erases the decisions of a user whom another node has erased from a stream by this record.
    ///
    /// # Errors
    /// Those of the store; some decisions may remain then, and the call can be repeated.
    pub(crate) fn erase_decisions(&self, stream: &StreamName, erasure: &Record) -> Result<(), StorageError> {
        let erasing = self.storage.decisions().erase(&self.models.all_on(stream), &erasure.user)?;
        let _ = erasing.finish(erasure.user_epoch);
        Ok(())
    }
}

/// A record of this kind with all other fields empty.
fn event(kind: RecordKind, user: UserId, user_epoch: UserEpoch) -> Record {
    Record {
        kind,
        user,
        user_epoch,
        item: None,
        label: 0.0,
        first_label: None,
        weight: 1.0,
        feedback: None,
        timestamp: SystemTime::now().into(),
        observation_id: None,
        decision: None,
        context: None,
        predictions: Vec::new(),
        targets: Vec::new(),
    }
}
