//! Observations: predicted, made durable and learnt from, visible to others in that order (Velox §2.4, `observe`).

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use celeris_model::{
    Decision, DecisionFacts, Joined, ModelId, ModelName, Observation, ObservationId, Prediction, Record, RecordKind,
    Sequence, Timestamp, UserEpoch, UserId,
};
use celeris_storage::{AckMode, Append, Appended, Event, Existing, Placed, StorageError};

use crate::attribution::{DEFAULT_FEEDBACK, RewardSource, Target, check_id, default_reward_id};
use crate::error::PredictorError;
use crate::loss::LossEvent;
use crate::node::{Predictor, RequestContext, compute};
use crate::scoring::QUICK_MULTIPLICATIONS_MAX;
use crate::shadow::ShadowSample;
use crate::users::{Learner, LockedUser, UserEntry};
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
    predictions: Vec<Prediction>,
    timestamp: Timestamp,
    pool: bool,
    joined: Option<Joined>,
    source: RewardSource,
    duplicate: bool,
}

/// An observation to be appended.
struct Arrival<'a> {
    observation: &'a Observation,
    /// The decision that it names.
    target: Option<Target>,
    source: RewardSource,
    ack: AckMode,
}

/// The versions that learn from an observation, and the row of its item in each version's table.
#[derive(Clone, Copy)]
struct Taught<'a> {
    versions: &'a [Arc<ServingVersion>],
    slots: &'a [Option<u32>],
}

impl Predictor {
    /// Observes and waits until the record is durable.
    ///
    /// # Errors
    /// `UnknownModel`, `Model` for an invalid number, `ObservationConflict`, or `Storage`; nothing is learnt on error.
    pub async fn observe(&self, model: &ModelName, observation: Observation) -> Result<Observed, PredictorError> {
        self.retract_default_reward(model, &observation).await?;
        let pending = self.begin_observe(model, &observation, AckMode::Wait)?;
        self.finish_observe(pending).await
    }

    /// Predicts, enqueues and learns. A decision named by the observation must be one of this model. Later calls for
    /// the same user are ordered after this one, so a stream of observations can be sent without waiting for each to be
    /// durable: the user's lock is not held over the log's sync.
    ///
    /// # Errors
    /// As [`Predictor::observe`]; `Storage(Overloaded)` if the log's queue is full, `Storage(ReservedId)` for an id
    /// reserved for the node.
    pub fn begin_observe(
        &self,
        model: &ModelName,
        observation: &Observation,
        ack: AckMode,
    ) -> Result<PendingObservation, PredictorError> {
        check_id(observation)?;
        let target = observation.decision.as_ref().map(|id| self.target(model, id)).transpose()?;
        let arrival = Arrival { observation, target, source: RewardSource::Client, ack };
        let model_id = self.decides_as(model)?;
        let pending = self.begin(&self.of_stream(model), &arrival)?;
        Ok(PendingObservation { model: model.clone(), model_id, ..pending })
    }

    fn begin(&self, model: &ModelName, arrival: &Arrival<'_>) -> Result<PendingObservation, PredictorError> {
        let observation = arrival.observation;
        self.check_observation(observation)?;
        let subject = self.subject(model, &observation.user)?;
        subject.version.learning.loss().check_label(observation.label)?;
        let versions = self.learners(&subject.model.stream);
        let slots: Vec<Option<u32>> = versions.iter().map(|version| version.theta.slot(&observation.item)).collect();
        let warm = versions.iter().all(|version| subject.entry.is_warm(version));
        let quick = warm && arrival.target.is_none() && slots.iter().all(Option::is_some);
        let rebuilding = (!warm).then(Instant::now);
        let taught = Taught { versions: &versions, slots: &slots };
        let pending = compute(quick, || {
            let mut user = subject.entry.lock(&self.sources(&subject.key), &subject.version)?;
            self.learn(&subject, taught, &mut user, arrival)
        })?;
        if let Some(started) = rebuilding {
            self.record_user_load(started.elapsed());
        }
        self.update_weight(&subject.key);
        if !pending.duplicate {
            subject.entry.changed.notify_waiters();
        }
        Ok(pending)
    }

    fn learn(
        &self,
        subject: &RequestContext,
        Taught { versions, slots }: Taught<'_>,
        user: &mut LockedUser<'_>,
        arrival: &Arrival<'_>,
    ) -> Result<PendingObservation, PredictorError> {
        let observation = arrival.observation;
        let stream = &subject.model.stream;
        let sources = self.sources(&subject.key);
        let state = user.state();
        let join = |target| self.join(stream, target, state.epoch, observation);
        let facts = arrival.target.as_ref().map(join).transpose()?;
        let joined = facts.as_ref().map(|facts| facts.joined);
        if arrival.source == RewardSource::Default && joined != Some(Joined::Slot) {
            return Err(PredictorError::Rewarded);
        }
        for version in versions {
            // Rebuilding a state locks other items, so it must happen before this item is locked.
            state.model(version, &sources)?;
        }
        let (resolved, freeze) = self.features.freeze(versions, slots, stream, &observation.item)?;
        let mut predictions = Vec::with_capacity(versions.len());
        for (version, features) in versions.iter().zip(&resolved) {
            let model = state.model(version, &sources)?;
            let response = model.response(features.features());
            // Prefetch the state while the log record is built; prefetching earlier evicts the weights.
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
        let record = record(observation, user_epoch, facts.clone(), predictions.clone());
        let Record { label, weight, timestamp, .. } = record;
        let frozen = freeze.as_ref().map(|freeze| freeze.records()).unwrap_or_default();
        let append = Append { stream: stream.clone(), record, frozen, ack: arrival.ack };
        let placed = match self.storage.append(append)? {
            Appended::New(placed) => placed,
            Appended::Existing(existing) => return repeated(subject, observation, existing),
        };
        if let Some(facts) = &facts {
            self.attribution.reward(facts);
        }
        if let Some(freeze) = freeze {
            freeze.enqueued(placed.ticket().position());
        }
        let learners: Vec<Learner> =
            versions.iter().zip(resolved).map(|(version, newest)| Learner { version, newest }).collect();
        let event = Event { item, label, weight, timestamp, epoch: user_epoch };
        let is_quick = state.advance_multiplications(&event, &learners) <= QUICK_MULTIPLICATIONS_MAX as u64;
        compute(is_quick, || state.advance(event, placed.ticket().clone(), learners, &sources));
        Ok(PendingObservation {
            placed,
            entry: subject.entry.clone(),
            model: subject.model.name.clone(),
            model_id: subject.model.id,
            user: subject.key.user.clone(),
            user_epoch,
            label,
            predictions,
            timestamp,
            pool,
            joined,
            source: arrival.source,
            duplicate: false,
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
        let predicted = pending.predictions.iter().find(|prediction| prediction.model == pending.model_id);
        let predicted = predicted.map(|prediction| prediction.predicted);
        if !pending.duplicate {
            if let (Some(joined), Ok(served)) = (pending.joined, self.model(&pending.model)) {
                served.exploration.joined(SystemTime::now().into(), joined, pending.source, pending.label);
            }
            let PendingObservation { label, timestamp, pool, user_epoch, .. } = pending;
            self.send_shadow_samples(&pending.predictions, |version, predicted| ShadowSample {
                user: pending.user.clone(),
                user_epoch,
                version,
                predicted,
                label,
            });
            for Prediction { model, version, predicted } in pending.predictions {
                let user = pending.user.clone();
                self.report(LossEvent { model, version, user, user_epoch, predicted, label, timestamp, pool });
            }
        }
        Ok(Observed {
            user_epoch: pending.user_epoch,
            sequence: committed.sequence,
            observation_id: committed.observation_id,
            duplicate: pending.duplicate,
            predicted,
            joined: pending.joined,
        })
    }

    /// Begins to observe the default reward of a slot; `None` if the slot has a reward by now.
    ///
    /// # Errors
    /// As [`Predictor::begin_observe`].
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
        };
        let target = Some(Target::Found(Arc::clone(decision)));
        let arrival = Arrival { observation: &observation, target, source: RewardSource::Default, ack: AckMode::Wait };
        match self.begin(&self.of_stream(decision.scored_by()), &arrival) {
            Ok(pending) => Ok(Some(pending)),
            // The slot has a reward, its default reward was replaced or retracted, or it can no longer have one.
            Err(PredictorError::Rewarded | PredictorError::Storage(StorageError::ObservationForgotten { .. })) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The reward inserted if none arrives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DefaultReward {
    pub label: f32,
    /// End of the wait for a reward.
    pub due: Timestamp,
}

fn record(
    observation: &Observation,
    user_epoch: UserEpoch,
    decision: Option<DecisionFacts>,
    predictions: Vec<Prediction>,
) -> Record {
    Record {
        kind: RecordKind::Observe,
        user: observation.user.clone(),
        user_epoch,
        item: Some(observation.item.clone()),
        label: observation.label,
        weight: observation.weight,
        feedback: observation.feedback.clone(),
        timestamp: observation.timestamp.unwrap_or_else(|| SystemTime::now().into()),
        observation_id: observation.observation_id.clone(),
        decision,
        predictions,
        first_label: None,
        targets: Vec::new(),
    }
}

/// The first result if an id is sent again with the same body; a conflict if the body differs.
fn repeated(
    subject: &RequestContext,
    sent: &Observation,
    existing: Existing,
) -> Result<PendingObservation, PredictorError> {
    let first = existing.record;
    let same = first.user == sent.user
        && first.item.as_ref() == Some(&sent.item)
        && first.first_label.unwrap_or(first.label).to_bits() == sent.label.to_bits()
        && first.weight.to_bits() == sent.weight.to_bits()
        && first.feedback == sent.feedback
        && first.decision.as_ref().map(|facts| &facts.id) == sent.decision.as_ref()
        && sent.timestamp.is_none_or(|time| time == first.timestamp);
    if !same {
        let id = sent.observation_id.clone().expect("only a given id can exist already");
        return Err(PredictorError::ObservationConflict { id });
    }
    Ok(PendingObservation {
        placed: existing.placed,
        entry: subject.entry.clone(),
        model: subject.model.name.clone(),
        model_id: subject.model.id,
        user: first.user,
        user_epoch: first.user_epoch,
        label: first.label,
        predictions: first.predictions,
        timestamp: first.timestamp,
        pool: first.decision.as_ref().is_some_and(|facts| facts.pool),
        joined: first.decision.map(|facts| facts.joined),
        source: RewardSource::Client,
        duplicate: true,
    })
}
