//! Feedback: predicted, made durable, learnt from, in that order as others see it (Velox §2.4, `observe`).

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use celeris_model::{
    Decision, DecisionFacts, Joined, ModelId, ModelName, Observation, ObservationId, Prediction, Record, RecordKind,
    Sequence, Timestamp, UserEpoch, UserId,
};
use celeris_storage::{Append, Appended, Event, Existing, Placed, StorageError, Then};

use crate::beside::Witnessed;
use crate::error::PredictorError;
use crate::joins::{DEFAULT_FEEDBACK, Giver, Target, check_id, default_reward_id};
use crate::loss::LossEvent;
use crate::node::{Predictor, Subject, compute};
use crate::scoring::QUICK_MULTIPLICATIONS_MAX;
use crate::users::{Learner, LockedUser, UserEntry};
use crate::version::ServingVersion;

/// What became of an observation.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The count of the user's events with this one; passed back as `min_epoch`, it reads the user's own writes.
    pub user_epoch: UserEpoch,
    /// Its place in its partition of the log.
    pub sequence: Sequence,
    /// Its id, the client's or the server's.
    pub observation_id: ObservationId,
    /// Whether it was there already, so that nothing was learnt now.
    pub duplicate: bool,
    /// What the addressed model expected before it learnt.
    pub predicted: Option<f32>,
    /// What became of its reference to a decision; `None` where it names none.
    pub joined: Option<Joined>,
}

/// An observation in the log's queue: learnt from in memory, and not yet durable.
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
    giver: Giver,
    duplicate: bool,
}

/// An observation on its way into the log.
struct Arrival<'a> {
    observation: &'a Observation,
    /// The decision it names.
    target: Option<Target>,
    giver: Giver,
    then: Then,
}

/// The versions that learn from an observation, and which row of each one's table its item has.
#[derive(Clone, Copy)]
struct Taught<'a> {
    versions: &'a [Arc<ServingVersion>],
    slots: &'a [Option<u32>],
}

impl Predictor {
    /// Observes and waits until it is durable.
    ///
    /// # Errors
    /// `UnknownModel`, `Model` for a bad number, `ObservationConflict`, or `Storage`; nothing is learnt on error.
    pub async fn observe(&self, model: &ModelName, observation: Observation) -> Result<Observed, PredictorError> {
        self.make_way(model, &observation).await?;
        let pending = self.begin_observe(model, &observation, Then::Waits)?;
        self.finish_observe(pending).await
    }

    /// Predicts, enqueues and learns. A decision that the observation names is one of this model. Later calls for the same
    /// user are ordered after this one, so a stream of observations need not wait for each to be durable before it sends
    /// the next.
    ///
    /// # Errors
    /// As [`Predictor::observe`]; `Storage(Overloaded)` where the log's queue is full, `Storage(ReservedId)` for an id that
    /// only a node gives.
    pub fn begin_observe(
        &self,
        model: &ModelName,
        observation: &Observation,
        then: Then,
    ) -> Result<PendingObservation, PredictorError> {
        check_id(observation)?;
        let target = observation.decision.as_ref().map(|id| self.target(model, id)).transpose()?;
        let arrival = Arrival { observation, target, giver: Giver::Client, then };
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
        self.reweigh(&subject.key);
        if !pending.duplicate {
            subject.entry.changed.notify_waiters();
        }
        Ok(pending)
    }

    fn learn(
        &self,
        subject: &Subject,
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
        if arrival.giver == Giver::Default && joined != Some(Joined::Slot) {
            return Err(PredictorError::Rewarded);
        }
        for version in versions {
            // Rebuilding a state resolves other items, whose locks must not be asked for while this item is held.
            state.model(version, &sources)?;
        }
        let (resolved, freeze) = self.features.freeze(versions, slots, stream, &observation.item)?;
        let mut predictions = Vec::with_capacity(versions.len());
        for (version, features) in versions.iter().zip(&resolved) {
            let model = state.model(version, &sources)?;
            let response = model.response(features.features());
            // The log comes first, and meanwhile the state comes near. Asked for sooner, it would keep the weights waiting.
            model.prefetch();
            let predicted = version.learning.loss().expected_label(features.offset() + response);
            predictions.push(Prediction { model: version.model_id, version: version.id, predicted });
        }
        // The first table's own copy of the id, where it has one, so that histories share it.
        let shared = versions.first().zip(slots.first().copied().flatten());
        let shared = shared.map(|(version, slot)| version.theta.items()[slot as usize].clone());
        let item = shared.unwrap_or_else(|| observation.item.clone());
        let user_epoch = state.epoch.next();
        let pool = facts.as_ref().is_some_and(|facts| facts.pool);
        let record = record(observation, user_epoch, facts.clone(), predictions.clone());
        let Record { label, weight, timestamp, .. } = record;
        let frozen = freeze.as_ref().map(|freeze| freeze.records()).unwrap_or_default();
        let append = Append { stream: stream.clone(), record, frozen, then: arrival.then };
        let placed = match self.storage.append(append)? {
            Appended::New(placed) => placed,
            Appended::Existing(existing) => return repeated(subject, observation, existing),
        };
        if let Some(facts) = &facts {
            self.joins.reward(facts);
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
            giver: arrival.giver,
            duplicate: false,
        })
    }

    /// Waits until a begun observation is durable.
    ///
    /// # Errors
    /// `Storage`: the observation is not acknowledged, and what memory learnt from it is forgotten.
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
                served.exploration.joined(SystemTime::now().into(), joined, pending.giver, pending.label);
            }
            let PendingObservation { label, timestamp, pool, user_epoch, .. } = pending;
            self.witness(&pending.predictions, |version, predicted| Witnessed {
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

    /// Begins to observe the reward of a slot for which none has come; `None` where it has one by now.
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
        let arrival = Arrival { observation: &observation, target, giver: Giver::Default, then: Then::Waits };
        match self.begin(&self.of_stream(decision.scored_by()), &arrival) {
            Ok(pending) => Ok(Some(pending)),
            // The slot has its reward, had this one and it was replaced or taken back, or can have none any more.
            Err(PredictorError::Rewarded | PredictorError::Storage(StorageError::ObservationForgotten { .. })) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// What stands in for a reward that has not come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DefaultReward {
    /// The label.
    pub label: f32,
    /// When the wait for another ended.
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

/// The first result again where an id comes back with the same body; a conflict where the body is another.
fn repeated(subject: &Subject, sent: &Observation, existing: Existing) -> Result<PendingObservation, PredictorError> {
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
        giver: Giver::Client,
        duplicate: true,
    })
}
