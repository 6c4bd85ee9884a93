//! Observations: predicted, made durable and learnt from, visible to others in that order (Velox
//! §2.4, `observe`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use celeris_model::{
    DecisionFacts, ItemId, Joined, ModelId, ModelName, Observation, ObservationId, Prediction, Record, RecordKind,
    RecordedContext, Sequence, StreamFields, Timestamp, UserEpoch, UserId,
};
use celeris_storage::{AckMode, Append, Appended, Event, Existing, Placed, SourcePosition};

use super::learnt_features::learnt_features;
use super::{Ingest, check_id};
use crate::attribution::Target;
use crate::error::PredictorError;
use crate::exploration::RewardSource;
use crate::features::Resolved;
use crate::index::StreamCatalog;
use crate::loss::LossEvent;
use crate::models::{ServedModel, ShadowSample};
use crate::users::{Learner, Sources, Subject, UserEntry, UserState};
use crate::version::ServingVersion;

/// Result of an observation.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The user's epoch after this event; pass it as `min_epoch` to read your own writes.
    pub user_epoch: UserEpoch,
    /// Its position in its partition of the log.
    pub sequence: Sequence,
    /// Its id, from the client or the server.
    pub observation_id: ObservationId,
    /// Whether it existed already, so that nothing was learnt.
    pub duplicate: bool,
    /// The label that the addressed model predicted, before learning.
    pub predicted: Option<f32>,
    /// The label that is recorded, if it is not the one sent.
    pub clipped: Option<f32>,
    /// Outcome of its reference to a decision; `None` if it names none.
    pub joined: Option<Joined>,
}

/// An observation in the log's queue: learnt from in memory, not yet durable.
#[must_use = "an observation is not acknowledged before it is durable"]
pub struct PendingObservation {
    placed: Placed,
    entry: Arc<UserEntry>,
    /// The model or selection that was addressed.
    model: ModelName,
    model_id: ModelId,
    user: UserId,
    user_epoch: UserEpoch,
    label: f32,
    /// The label that is recorded, if it is not the one sent.
    clipped: Option<f32>,
    predictions: Vec<Prediction>,
    timestamp: Timestamp,
    pool: bool,
    joined: Option<Joined>,
    source: RewardSource,
    duplicate: bool,
    /// The catalog, and the item if this is its first observation there.
    unlisted: Option<Box<(Arc<StreamCatalog>, ItemId)>>,
}

/// The versions that learn from an observation, and the row of its item in each version's table.
struct Learners<'a> {
    versions: &'a [Arc<ServingVersion>],
    slots: &'a [Option<u32>],
    /// For each version with computed parts, its features of the item, computed before the user's lock is taken; empty if
    /// no version has parts.
    ahead: Vec<Option<Resolved<'a>>>,
}

/// What an observation names: the model, the user and the decision that it rewards.
pub(super) struct Addressed {
    /// The model or selection that was addressed.
    pub(super) model: ModelName,
    pub(super) model_id: ModelId,
    pub(super) subject: Subject,
    pub(super) decision: Option<Target>,
    /// The context to record: its own, or that of the decision if it turns out to be the user's.
    pub(super) context: Option<Box<RecordedContext>>,
    /// The label to record.
    pub(super) label: f32,
    /// Who gives the reward.
    pub(super) source: RewardSource,
    /// The message of a broker that it was in.
    pub(super) message: Option<SourcePosition>,
}

impl Ingest {
    /// Observes and waits until the record is durable.
    ///
    /// # Errors
    /// `UnknownModel`, `Model` for an invalid number, `ObservationConflict`, or `Storage`; nothing
    /// is learnt on error.
    pub async fn observe(&self, model: &ModelName, observation: Observation) -> Result<Observed, PredictorError> {
        self.retract_default_reward(model, None, &observation).await?;
        let addressed = self.address(model, None, &observation)?;
        self.users.load(&addressed.subject).await?;
        self.finish_observe(self.append(&addressed, &observation, AckMode::Wait)?).await
    }

    /// Predicts, enqueues and learns. A decision named by the observation must be one of this
    /// model. If `expected` is given, `model` must still stand for the model or selection of this id.
    /// Later calls for the same user are ordered after this one, so a stream of observations
    /// can be sent without waiting for each to be durable: the user's lock is not held over the
    /// log's sync.
    ///
    /// # Errors
    /// As [`Ingest::observe`]; `Recreated` if it does not; `Storage(Overloaded)` if the log's queue is full,
    /// `Storage(ReservedId)` for an id reserved for the node.
    pub fn begin_observe(
        &self,
        model: &ModelName,
        expected: Option<ModelId>,
        observation: &Observation,
        ack: AckMode,
    ) -> Result<PendingObservation, PredictorError> {
        self.append(&self.address(model, expected, observation)?, observation, ack)
    }

    /// As [`Ingest::begin_observe`], for an observation that was in a message of a broker, whose position becomes durable
    /// with it.
    ///
    /// # Errors
    /// As [`Ingest::begin_observe`]; `Storage(MessageTaken)` if the log has the message already.
    pub fn begin_ingested(
        &self,
        model: &ModelName,
        observation: &Observation,
        message: SourcePosition,
    ) -> Result<PendingObservation, PredictorError> {
        let addressed = Addressed { message: Some(message), ..self.address(model, None, observation)? };
        self.append(&addressed, observation, AckMode::Gather)
    }

    /// Checks an observation, and looks up what it names.
    pub(super) fn address(
        &self,
        model: &ModelName,
        expected: Option<ModelId>,
        observation: &Observation,
    ) -> Result<Addressed, PredictorError> {
        let (model_id, served) = self.models.addressed(model)?;
        if expected.is_some_and(|expected| expected != model_id) {
            return Err(PredictorError::Recreated { model: model.clone() });
        }
        check_id(observation)?;
        let label = self.check(model, &served, observation)?;
        let subject = self.users.subject(served, &observation.user);
        let decision = observation.decision.as_ref().map(|id| self.attribution.target(model_id, id)).transpose()?;
        let context = self.context(&subject.model.catalog, observation, decision.as_ref())?;
        let model = model.clone();
        Ok(Addressed {
            model,
            model_id,
            subject,
            decision,
            context,
            label,
            source: RewardSource::Client,
            message: None,
        })
    }

    /// The context to record with an observation. Fields that are new to the stream are defined first, which blocks the
    /// thread. What does not fit the stream is refused in a context that the client sends with the observation, and left
    /// out of what it inherits: the ranking was answered, and its reward counts.
    pub(super) fn context(
        &self,
        catalog: &StreamCatalog,
        observation: &Observation,
        decision: Option<&Target>,
    ) -> Result<Option<Box<RecordedContext>>, PredictorError> {
        let (own, inherited) =
            (observation.context.as_deref(), decision.and_then(|target| target.context(&observation.user)));
        let Some(given) = own.or(inherited) else { return Ok(None) };
        let fitting = |fields: &StreamFields| match own {
            Some(own) => fields.check(own).map(|()| Cow::Borrowed(own)),
            None => Ok(Cow::Owned(fields.fitting(given))),
        };
        let mut fields = catalog.fields();
        let missing = fields.missing(&*fitting(&fields)?);
        if !missing.is_empty() {
            self.catalog.define_fields(catalog, &missing)?;
            fields = catalog.fields();
        }
        let context = fitting(&fields)?;
        if context.is_empty() {
            return Ok(None);
        }
        let undefined = || PredictorError::UndefinedFields { stream: catalog.stream.clone() };
        fields.numbered(&context).map(|context| Some(Box::new(context))).ok_or_else(undefined)
    }

    /// Checks the numbers of an observation of the model or selection `name`; returns the label to
    /// record.
    pub(super) fn check(
        &self,
        name: &ModelName,
        served: &ServedModel,
        observation: &Observation,
    ) -> Result<f32, PredictorError> {
        observation.validate(&self.accepted_times.now())?;
        self.models.accepted_label(name, served, observation.label)
    }

    /// Predicts an observation that was checked, enqueues it and learns from it.
    pub(super) fn append(
        &self,
        addressed: &Addressed,
        observation: &Observation,
        ack: AckMode,
    ) -> Result<PendingObservation, PredictorError> {
        let subject = &addressed.subject;
        let versions = self.models.learners(&subject.model.stream);
        let slots: Vec<Option<u32>> = versions.iter().map(|version| version.theta.slot(&observation.item)).collect();
        let context = addressed.context.as_deref();
        let ahead = self.computed_ahead((&versions, &slots), subject, (&observation.item, context))?;
        let learners = Learners { versions: &versions, slots: &slots, ahead };
        let pending = self.users.with_state(subject, |state, sources| {
            self.learn(addressed, learners, (state, sources), observation, ack)
        })?;
        if !pending.duplicate {
            subject.entry.changed.notify_waiters();
        }
        Ok(pending)
    }

    fn learn(
        &self,
        addressed: &Addressed,
        Learners { versions, slots, ahead }: Learners<'_>,
        (state, sources): (&mut UserState, &Sources<'_>),
        observation: &Observation,
        ack: AckMode,
    ) -> Result<PendingObservation, PredictorError> {
        let Addressed { model, model_id, subject, decision, context, label, source, message } = addressed;
        let stream = &subject.model.stream;
        let join = |target| self.attribution.join(stream, target, state.epoch, observation);
        let facts = decision.as_ref().map(join).transpose()?;
        let joined = facts.as_ref().map(|facts| facts.joined);
        if *source == RewardSource::Default && joined != Some(Joined::Slot) {
            return Err(PredictorError::Rewarded);
        }
        for version in versions {
            // Rebuilding a state locks other items, so it must happen before this item is locked.
            state.model(version, sources)?;
        }
        // The user of the decision may have been erased since it was found.
        let is_given = observation.context.is_some() || joined != Some(Joined::Unknown);
        let context = context.clone().filter(|_| is_given);
        let (resolved, freeze) = self.features.freeze(versions, slots, sources.scope(), &observation.item)?;
        let ahead = ahead.into_iter().map(|ahead| ahead.filter(|_| is_given));
        let resolved = learnt_features(versions, resolved, ahead, context.as_deref());
        let mut predictions = Vec::with_capacity(versions.len());
        for (version, features) in versions.iter().zip(&resolved) {
            let model = state.model(version, sources)?;
            let response = model.response(features.features());
            // Prefetch the state while the log record is built; prefetching earlier evicts the
            // weights.
            model.prefetch();
            let predicted = version.learning.loss().expected_label(features.offset() + response);
            predictions.push(Prediction { model: version.model_id, version: version.id, predicted });
        }
        // Use the first table's copy of the id, if it has one, so that histories share it.
        let shared = versions.first().zip(slots.first().copied().flatten());
        let shared = shared.map(|(version, slot)| version.theta.items()[slot as usize].clone());
        let item = shared.unwrap_or_else(|| observation.item.clone());
        let user_epoch = state.epoch.next();
        let pool = facts.as_ref().is_some_and(|facts| facts.pool);
        let event_context = context.as_ref().map(|context| Box::new(context.numbers()));
        let record = record((observation, *label), user_epoch, facts.clone(), predictions.clone());
        let record = Record { context, ..record };
        let Record { weight, timestamp, .. } = record;
        let frozen = freeze.as_ref().map(|freeze| freeze.records()).unwrap_or_default();
        let catalog = &subject.model.catalog;
        let notes_item = !catalog.is_observed(&item);
        let unlisted = notes_item.then(|| Box::new((Arc::clone(catalog), item.clone())));
        let append = Append { stream: stream.clone(), record, frozen, notes_item, source: message.clone(), ack };
        let placed = match self.storage.log().append(append)? {
            Appended::New(placed) => placed,
            Appended::Existing(existing) => return repeated(addressed, observation, existing),
        };
        if let Some(facts) = &facts {
            self.attribution.reward(facts);
        }
        if let Some(freeze) = freeze {
            freeze.enqueued(placed.ticket());
        }
        let learners: Vec<Learner> =
            versions.iter().zip(resolved).map(|(version, newest)| Learner { version, newest }).collect();
        let event = Event { item, label: *label, weight, timestamp, epoch: user_epoch, context: event_context };
        state.advance(event, placed.ticket().clone(), learners, sources);
        Ok(PendingObservation {
            placed,
            entry: subject.entry.clone(),
            model: model.clone(),
            model_id: *model_id,
            user: subject.key.user.clone(),
            user_epoch,
            label: *label,
            clipped: clipped(observation, *label),
            predictions,
            timestamp,
            pool,
            joined,
            source: *source,
            duplicate: false,
            unlisted,
        })
    }

    /// Waits until a pending observation is durable.
    ///
    /// # Errors
    /// `Storage`: the observation is not acknowledged, and the user's state in memory is discarded.
    pub async fn finish_observe(&self, pending: PendingObservation) -> Result<Observed, PredictorError> {
        let committed = match pending.placed.durable().await {
            Ok(committed) => committed,
            Err(error) => {
                pending.entry.discard();
                return Err(error.into());
            }
        };
        if let Some((catalog, item)) = pending.unlisted.as_deref() {
            self.catalog.list_observed(catalog, item)?;
        }
        let predicted = pending.predictions.iter().find(|prediction| prediction.model == pending.model_id);
        let predicted = predicted.map(|prediction| prediction.predicted);
        if !pending.duplicate {
            if let (Some(joined), Ok(served)) = (pending.joined, self.models.get(&pending.model)) {
                served.exploration.joined(SystemTime::now().into(), joined, pending.source, pending.label);
            }
            let PendingObservation { label, timestamp, pool, user_epoch, .. } = pending;
            self.models.send_shadow_samples(&pending.predictions, |version, predicted| ShadowSample {
                user: pending.user.clone(),
                user_epoch,
                version,
                predicted,
                label,
            });
            for Prediction { model, version, predicted } in pending.predictions {
                let user = pending.user.clone();
                self.send_loss(LossEvent { model, version, user, user_epoch, predicted, label, timestamp, pool });
            }
        }
        Ok(Observed {
            user_epoch: pending.user_epoch,
            sequence: committed.sequence,
            observation_id: committed.observation_id,
            duplicate: pending.duplicate,
            predicted,
            clipped: pending.clipped,
            joined: pending.joined,
        })
    }
}

fn clipped(sent: &Observation, label: f32) -> Option<f32> {
    (sent.label.to_bits() != label.to_bits()).then_some(label)
}

fn record(
    (observation, label): (&Observation, f32),
    user_epoch: UserEpoch,
    decision: Option<DecisionFacts>,
    predictions: Vec<Prediction>,
) -> Record {
    Record {
        kind: RecordKind::Observe,
        user: observation.user.clone(),
        user_epoch,
        item: Some(observation.item.clone()),
        label,
        weight: observation.weight,
        feedback: observation.feedback.clone(),
        timestamp: observation.timestamp.unwrap_or_else(|| SystemTime::now().into()),
        observation_id: observation.observation_id.clone(),
        decision,
        context: None,
        predictions,
        first_label: None,
        targets: Vec::new(),
    }
}

/// The first result if an id is sent again with the same body; a conflict if the body differs.
fn repeated(
    addressed: &Addressed,
    sent: &Observation,
    existing: Existing,
) -> Result<PendingObservation, PredictorError> {
    let first = existing.record;
    let same = first.user == sent.user
        && first.item.as_ref() == Some(&sent.item)
        && first.first_label.unwrap_or(first.label).to_bits() == addressed.label.to_bits()
        && first.weight.to_bits() == sent.weight.to_bits()
        && first.feedback == sent.feedback
        && first.decision.as_ref().map(|facts| &facts.id) == sent.decision.as_ref()
        && sent.context.as_ref().is_none_or(|sent| first.context.as_ref().is_some_and(|first| first.is(sent)))
        && sent.timestamp.is_none_or(|time| time == first.timestamp);
    if !same {
        let id = sent.observation_id.clone().expect("only a given id can exist already");
        return Err(PredictorError::ObservationConflict { id });
    }
    Ok(PendingObservation {
        placed: existing.placed,
        entry: addressed.subject.entry.clone(),
        model: addressed.model.clone(),
        model_id: addressed.model_id,
        user: first.user,
        user_epoch: first.user_epoch,
        label: first.label,
        clipped: clipped(sent, addressed.label),
        predictions: first.predictions,
        timestamp: first.timestamp,
        pool: first.decision.as_ref().is_some_and(|facts| facts.pool),
        joined: first.decision.map(|facts| facts.joined),
        source: RewardSource::Client,
        duplicate: true,
        unlisted: None,
    })
}
