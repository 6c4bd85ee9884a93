//! Changes to the past: an observation gets another label or never happened, a user never existed.
//!
//! Each is an event of its user like any other: it takes an epoch, is appended to the log, and answered once durable.
//! The log carries it out on the records concerned in the same write, and the user's states are built afresh from what
//! remains, so they are what they would be had the past been so.

use std::sync::Arc;
use std::time::SystemTime;

use celeris_model::observation::check_label;
use celeris_model::{
    DecisionFacts, ModelName, ObservationId, Partition, Record, RecordKind, Sequence, StreamName, UserEpoch, UserId,
};
use celeris_storage::{AckMode, Append, Appended, Erasure, Lookup, Placed, StorageError, Ticket};

use crate::error::PredictorError;
use crate::node::{Predictor, RequestContext, compute};
use crate::users::{Amendment, UserKey};

/// A correction or retraction that is durable.
#[derive(Debug, Clone, PartialEq)]
pub struct Amended {
    /// Whose observation it was.
    pub user: UserId,
    /// The count of the user's events with this one.
    pub user_epoch: UserEpoch,
    /// The event's place in the user's partition; of a correction that changed nothing, the observation's own.
    pub sequence: Sequence,
    /// Whether the observation had that label already, so that nothing was written.
    pub duplicate: bool,
}

/// An erasure that is durable.
#[derive(Debug, Clone, PartialEq)]
pub struct Erased {
    /// The stream that the user was erased from.
    pub stream: StreamName,
    /// The count of the user's events with this one. It is kept, so that no epoch is used twice.
    pub user_epoch: UserEpoch,
    /// How many decisions were erased.
    pub decisions: u64,
    /// What the log keeps of it.
    pub erasure: Erasure,
}

/// An amendment in the log's queue.
struct Pending {
    subject: RequestContext,
    user_epoch: UserEpoch,
    placed: Placed,
}

/// What an amendment changes.
struct Change<'a> {
    amendment: Amendment,
    /// The reward that a retraction takes from a slot, and its epoch.
    reward: Option<(&'a DecisionFacts, UserEpoch)>,
}

/// What one try at an amendment comes to.
enum Attempt {
    Done(Pending),
    /// Something of the user is not durable yet, and an amendment only builds on what is.
    Wait(Ticket),
}

impl Predictor {
    /// Gives an observation another label: the user's states become what they would be had it come so at first.
    ///
    /// # Errors
    /// `UnknownModel`, `UnknownObservation`, `Model` for a bad label; `Storage`, with `ObservationForgotten` where it
    /// was retracted.
    pub async fn correct(&self, model: &ModelName, id: &ObservationId, label: f32) -> Result<Amended, PredictorError> {
        check_label(label)?;
        let model = &self.of_stream(model);
        self.active(model)?.learning.loss().check_label(label)?;
        self.amend_observation(model, id, Some(label)).await
    }

    /// Forgets an observation: the user's states become what they would be had it never come.
    ///
    /// # Errors
    /// `UnknownModel`, `UnknownObservation`; `Storage`, with `ObservationForgotten` where it was retracted before.
    pub async fn forget(&self, model: &ModelName, id: &ObservationId) -> Result<Amended, PredictorError> {
        self.amend_observation(&self.of_stream(model), id, None).await
    }

    async fn amend_observation(
        &self,
        model: &ModelName,
        id: &ObservationId,
        label: Option<f32>,
    ) -> Result<Amended, PredictorError> {
        loop {
            let (sequence, original) = compute(false, || self.find(model, id))?;
            let user = original.user.clone();
            if label.is_some_and(|label| label.to_bits() == original.label.to_bits()) {
                let subject = self.subject(model, &user)?;
                let moment = compute(false, || self.moment(&subject))?;
                self.settle(&subject, moment.pending.as_ref()).await?;
                return Ok(Amended { user, user_epoch: moment.epoch, sequence, duplicate: true });
            }
            let attempt = compute(false, || self.try_amend(model, sequence, &original, label))?;
            let pending = match attempt {
                Attempt::Done(pending) => pending,
                Attempt::Wait(ticket) => {
                    ticket.durable().await?;
                    continue;
                }
            };
            let user_epoch = pending.user_epoch;
            let sequence = self.finish_amendment(pending).await?;
            return Ok(Amended { user, user_epoch, sequence, duplicate: false });
        }
    }

    fn find(&self, model: &ModelName, id: &ObservationId) -> Result<(Sequence, Record), PredictorError> {
        let stream = &self.model(model)?.stream;
        match self.storage.observation(stream, id)? {
            Lookup::Found { sequence, record, .. } if record.kind == RecordKind::Observe => Ok((sequence, record)),
            Lookup::Forgotten => Err(StorageError::ObservationForgotten { id: id.as_str().to_owned() }.into()),
            Lookup::Found { .. } | Lookup::Unknown => Err(PredictorError::UnknownObservation { id: id.clone() }),
        }
    }

    fn try_amend(
        &self,
        model: &ModelName,
        target: Sequence,
        original: &Record,
        label: Option<f32>,
    ) -> Result<Attempt, PredictorError> {
        let (kind, amendment) = match label {
            Some(label) => (RecordKind::Correct, Amendment::Relabel(original.user_epoch, label)),
            None => (RecordKind::Retract, Amendment::Forget(original.user_epoch)),
        };
        // An observation may name a decision without being the reward of one of its slots: of another user's, for one.
        let rewards = |facts: &&DecisionFacts| label.is_none() && facts.slot.is_some();
        let reward = original.decision.as_ref().filter(rewards).map(|facts| (facts, original.user_epoch));
        let change = Change { amendment, reward };
        let record = |user_epoch| Record {
            item: original.item.clone(),
            label: label.unwrap_or_default(),
            targets: vec![target],
            ..event(kind, original.user.clone(), user_epoch)
        };
        self.append_amendment(self.subject(model, &original.user)?, &change, record)
    }

    /// Appends under the user's lock, once everything of the user is durable.
    fn append_amendment(
        &self,
        subject: RequestContext,
        change: &Change<'_>,
        record: impl FnOnce(UserEpoch) -> Record,
    ) -> Result<Attempt, PredictorError> {
        let entry = Arc::clone(&subject.entry);
        let sources = self.sources(&subject.key);
        let mut user = entry.lock(&sources, &subject.version)?;
        let state = user.state();
        if let Some(ticket) = state.pending() {
            return Ok(Attempt::Wait(ticket));
        }
        if !matches!(change.amendment, Amendment::ForgetAll) {
            state.read_back(&sources, &subject.version)?;
        }
        let taken_back = change.reward.map(|reward| self.without_reward(&subject.key, reward)).transpose()?;
        let user_epoch = state.epoch.next();
        let append = Append {
            stream: subject.model.stream.clone(),
            record: record(user_epoch),
            frozen: Vec::new(),
            ack: AckMode::Wait,
        };
        let placed = match self.storage.append(append)? {
            Appended::New(placed) => placed,
            Appended::Existing(_) => unreachable!("only an observation brings an id that may exist"),
        };
        state.amend(change.amendment, placed.ticket().clone());
        if let Some((decision, slots)) = taken_back {
            // Until the retraction is durable the log still tells of the reward.
            self.attribution.keep(&decision, slots);
        }
        drop(user);
        self.update_weight(&subject.key);
        subject.entry.changed.notify_waiters();
        Ok(Attempt::Done(Pending { subject, user_epoch, placed }))
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

    /// Erases a user of the model's stream: history, states, cached predictions and decisions. Every model of the
    /// stream forgets the user, one that is out of service too.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`; decisions may be erased then and the user not, and it can be tried again.
    pub async fn erase(&self, model: &ModelName, user: &UserId) -> Result<Erased, PredictorError> {
        let model = &self.of_stream(model);
        let stream = self.model(model)?.stream.clone();
        // Decisions have a database of their own. They go before the log says that the user is erased, and none is written
        // until it does, so that a crash in between leaves none of an erased user.
        let erasing = compute(false, || self.storage.erase_decisions(&self.all_on(&stream), user))?;
        let pending = loop {
            let subject = self.subject(model, user)?;
            let record = |user_epoch| event(RecordKind::Erase, user.clone(), user_epoch);
            let change = Change { amendment: Amendment::ForgetAll, reward: None };
            match compute(false, || self.append_amendment(subject, &change, record))? {
                Attempt::Done(pending) => break pending,
                Attempt::Wait(ticket) => {
                    ticket.durable().await?;
                }
            }
        };
        let user_epoch = pending.user_epoch;
        let at = self.finish_amendment(pending).await?;
        let decisions = erasing.finish(user_epoch);
        let erasures = compute(false, || self.storage.erasures(&stream))?;
        let place = (Partition::of(user), at);
        let erasure = erasures.into_iter().find(|erasure| (erasure.partition, erasure.at) == place);
        let erasure = erasure.expect("the log lists every erasure that is durable");
        self.predictions.purge(|key| key.user == *user);
        self.user_views.purge(user);
        self.seen.forget(&UserKey { stream: stream.clone(), user: user.clone() });
        self.purge_user(&stream, user);
        Ok(Erased { stream, user_epoch, decisions, erasure })
    }
}

/// An event that says nothing of its own.
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
        predictions: Vec::new(),
        targets: Vec::new(),
    }
}
