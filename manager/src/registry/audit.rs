//! Life-cycle events: an append-only audit log per model, with the actor and the reason of each
//! event.
//!
//! An event is written to the registry, where possible in the same atomic write as the change that
//! it describes ([`AuditLog::commit`]), so that neither exists without the other. The newest
//! [`EVENTS_MAX`] events of a model are kept; every page reports how many older ones were dropped.
//! The events of a model are deleted with the model.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::SystemTime;

use celeris_model::{ModelId, ModelName, StreamName, Timestamp, VersionId};
use celeris_storage::{RegistryBatch, RegistryKey, Storage, StorageError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::access::principal;
use crate::error::ManagerError;

/// Number of events kept per model.
pub const EVENTS_MAX: u64 = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    Created,
    /// A trigger requested a retraining.
    Triggered,
    TrainingStarted,
    /// A retrain job produced no version.
    TrainingFailed,
    /// A candidate did not pass the gate, and was kept without being activated.
    GateRefused,
    /// A candidate passed the gate.
    GatePassed,
    /// A version was activated.
    Activated,
    /// The previously active version was activated again.
    RolledBack,
    /// A version was pinned: it is not pruned, or not replaced.
    Pinned,
    Unpinned,
    Pruned,
    /// A version that was trained elsewhere was registered.
    Registered,
    /// Settings of the model were changed.
    Configured,
    /// A search for better settings began.
    StudyStarted,
    /// A search for better settings ended.
    StudyEnded,
    /// The observations that trials of a study read were sent to a worker on another machine.
    StudyDataSent,
    /// The model gets the settings that a study has found.
    Tuned,
}

impl EventKind {
    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Triggered => "triggered",
            Self::TrainingStarted => "training_started",
            Self::TrainingFailed => "training_failed",
            Self::GateRefused => "gate_refused",
            Self::GatePassed => "gate_passed",
            Self::Activated => "activated",
            Self::RolledBack => "rolled_back",
            Self::Pinned => "pinned",
            Self::Unpinned => "unpinned",
            Self::Pruned => "pruned",
            Self::Registered => "registered",
            Self::Configured => "configured",
            Self::StudyStarted => "study_started",
            Self::StudyEnded => "study_ended",
            Self::StudyDataSent => "study_data_sent",
            Self::Tuned => "tuned",
        }
    }
}

/// The cause of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// A user of the API or the command line.
    Operator,
    Trigger,
    /// The guard after a switch of versions.
    Guard,
    Job,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub at: Timestamp,
    pub model: ModelName,
    pub model_id: ModelId,
    pub kind: EventKind,
    pub by: Actor,
    /// Who asked for it, if the node knows: the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Reason, with figures.
    pub why: String,
    /// The version that was active before.
    pub before: Option<VersionId>,
    /// The version that is active after, or that the event created.
    pub after: Option<VersionId>,
    /// Further details: the job, figures, settings.
    pub details: BTreeMap<String, serde_json::Value>,
}

impl Event {
    /// An event at the current time, without versions or details.
    pub fn now((model, model_id): (&ModelName, ModelId), kind: EventKind, by: Actor, why: impl Into<String>) -> Self {
        Self {
            at: SystemTime::now().into(),
            model: model.clone(),
            model_id,
            kind,
            by,
            principal: principal(),
            why: why.into(),
            before: None,
            after: None,
            details: BTreeMap::new(),
        }
    }

    /// Sets the versions before and after the event.
    #[must_use]
    pub fn between(mut self, before: Option<VersionId>, after: Option<VersionId>) -> Self {
        self.before = before;
        self.after = after;
        self
    }

    /// Adds a detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

/// An event with its number in its model's audit log.
#[derive(Debug, Clone, PartialEq)]
pub struct NumberedEvent {
    /// Numbering starts at 1 for each model.
    pub number: u64,
    pub event: Event,
}

/// A page of a model's audit log.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPage {
    /// Newest first.
    pub events: Vec<NumberedEvent>,
    /// Errors of events of this page that could not be read.
    pub unreadable: Vec<String>,
    /// Number of older events that have been dropped.
    pub dropped: u64,
    /// Value of `before` for the next page; `None` on the last page.
    pub next: Option<u64>,
}

/// Numbers of the events of a model that are in the registry: from `first` up to, but not
/// including, `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    first: u64,
    end: u64,
}

impl Default for Kept {
    fn default() -> Self {
        Self { first: 1, end: 1 }
    }
}

impl Kept {
    fn is_plausible(self) -> bool {
        (1..=self.end).contains(&self.first) && self.end - self.first <= EVENTS_MAX
    }

    /// Derives the span from the event keys in the registry.
    fn found(storage: &Storage, model: ModelId) -> Result<Self, StorageError> {
        let keys = storage.registry().keys(&events_key(model)?)?;
        let mut numbers = keys.iter().filter_map(|key| key.parts().last()?.parse::<u64>().ok());
        let Some(first) = numbers.next() else { return Ok(Self::default()) };
        Ok(Self { first, end: numbers.next_back().unwrap_or(first) + 1 })
    }
}

/// The audit logs of all models.
pub struct AuditLog {
    storage: Storage,
    /// Streams of the models in service; events of other models are dropped.
    streams: Mutex<HashMap<ModelId, StreamName>>,
    /// By model; locked while an event is numbered and written, so that numbers have no gaps.
    kept: Mutex<HashMap<ModelId, Kept>>,
}

impl AuditLog {
    pub(super) fn open(storage: Storage) -> Result<Self, StorageError> {
        let kept = Self::all_kept(&storage)?;
        Ok(Self { storage, streams: Mutex::default(), kept: Mutex::new(kept) })
    }

    /// Reads again which events the registry has, after another node has written it.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) fn reload(&self) -> Result<(), StorageError> {
        // Locked while reading, so that what is read is not older than what is replaced.
        let mut kept = self.kept.lock();
        *kept = Self::all_kept(&self.storage)?;
        Ok(())
    }

    /// The same for one model.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) fn reload_of(&self, model: ModelId) -> Result<(), StorageError> {
        let mut kept = self.kept.lock();
        match self.storage.registry().get::<Kept>(&kept_key(model)?) {
            Ok(Some(span)) if span.is_plausible() => kept.insert(model, span),
            Ok(None) => kept.remove(&model),
            Ok(Some(_)) | Err(StorageError::Document { .. }) => kept.insert(model, Kept::found(&self.storage, model)?),
            Err(error) => return Err(error),
        };
        Ok(())
    }

    fn all_kept(storage: &Storage) -> Result<HashMap<ModelId, Kept>, StorageError> {
        let mut kept = HashMap::new();
        for (key, span) in storage.registry().list::<Kept>(&all_kept_key()?)? {
            // Ignore keys of another form.
            let Some(Ok(model)) = key.parts().get(1).map(|id| id.parse().map(ModelId)) else { continue };
            let span = match span {
                Ok(span) if span.is_plausible() => span,
                unusable => {
                    tracing::error!(%key, ?unusable, "unusable event span; derived from the keys");
                    Kept::found(storage, model)?
                }
            };
            kept.insert(model, span);
        }
        Ok(kept)
    }

    /// Accepts the events of a model from now on.
    pub(crate) fn begin(&self, model: ModelId, stream: &StreamName) {
        self.streams.lock().insert(model, stream.clone());
    }

    /// Commits all changes of a batch together with their events in one atomic write. Each event
    /// gets the detail `observations`, the number of records in the log of the model's stream at
    /// that time.
    ///
    /// # Errors
    /// Nothing is changed or recorded then.
    pub(crate) fn commit(&self, mut batch: RegistryBatch, events: &[Event]) -> Result<(), StorageError> {
        let events = self.of_models_in_service(events);
        let mut kept = self.kept.lock();
        let mut spans: HashMap<ModelId, Kept> = HashMap::new();
        for event in &events {
            let span =
                spans.entry(event.model_id).or_insert_with(|| kept.get(&event.model_id).copied().unwrap_or_default());
            batch.put(event_key(event.model_id, span.end)?, event)?;
            span.end += 1;
            if span.end - span.first > EVENTS_MAX {
                batch.delete(event_key(event.model_id, span.first)?);
                span.first += 1;
            }
        }
        for (model, span) in &spans {
            batch.put(kept_key(*model)?, span)?;
        }
        self.storage.registry().commit(&batch)?;
        kept.extend(spans);
        drop(kept);
        for event in &events {
            let (model, kind) = (event.model.to_string(), event.kind.name());
            tracing::info!(%model, kind, why = %event.why, "life-cycle event");
            metrics::counter!("celeris_model_events_total", "model" => model, "kind" => kind).increment(1);
        }
        Ok(())
    }

    /// The events of models in service, with the length of the model's log.
    fn of_models_in_service(&self, events: &[Event]) -> Vec<Event> {
        let streams = self.streams.lock();
        let with_position = |event: &Event| {
            let records = self.storage.log().watermark(streams.get(&event.model_id)?).records();
            let mut event = event.clone();
            event.details.entry("observations".to_owned()).or_insert_with(|| records.into());
            Some(event)
        };
        events.iter().filter_map(with_position).collect()
    }

    /// Events of a model, newest first: at most `limit`, with numbers below `before`.
    ///
    /// # Errors
    /// `Storage`.
    pub fn page(&self, model: ModelId, before: Option<u64>, limit: usize) -> Result<EventPage, ManagerError> {
        let kept = self.kept.lock().get(&model).copied().unwrap_or_default();
        let end = before.unwrap_or(kept.end).clamp(kept.first, kept.end);
        let first = end.saturating_sub(limit as u64).max(kept.first);
        let mut events = Vec::with_capacity(usize::try_from(end - first).unwrap_or_default());
        let mut unreadable = Vec::new();
        for number in (first..end).rev() {
            match self.storage.registry().get::<Event>(&event_key(model, number)?) {
                Ok(Some(event)) => events.push(NumberedEvent { number, event }),
                // Dropped since the span was read.
                Ok(None) => {}
                Err(error @ StorageError::Document { .. }) => unreadable.push(error.to_string()),
                Err(error) => return Err(error.into()),
            }
        }
        let next = (first > kept.first).then_some(first);
        Ok(EventPage { events, unreadable, dropped: kept.first - 1, next })
    }

    /// Adds the removal of a model's events to the write that deletes the model.
    pub(super) fn delete(&self, model: ModelId, batch: &mut RegistryBatch) -> Result<(), StorageError> {
        let Some(kept) = self.kept.lock().get(&model).copied() else { return Ok(()) };
        for number in kept.first..kept.end {
            batch.delete(event_key(model, number)?);
        }
        batch.delete(kept_key(model)?);
        Ok(())
    }

    /// Forgets the models that are not among these, which another node has deleted.
    pub(crate) fn retain(&self, models: &BTreeSet<ModelId>) {
        self.streams.lock().retain(|model, _| models.contains(model));
        self.kept.lock().retain(|model, _| models.contains(model));
    }

    /// Forgets a model whose deletion has been written, or whose creation has failed.
    pub(crate) fn forget(&self, model: ModelId) {
        self.streams.lock().remove(&model);
        self.kept.lock().remove(&model);
    }
}

fn all_kept_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["events"])
}

fn kept_key(model: ModelId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["events".to_owned(), model.to_string()])
}

fn events_key(model: ModelId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["event".to_owned(), model.to_string()])
}

/// The number is padded, so that keys sort numerically.
fn event_key(model: ModelId, number: u64) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["event".to_owned(), model.to_string(), format!("{number:020}")])
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_storage::StorageOptions;

    use super::*;

    fn event(model: (&ModelName, ModelId), why: u64) -> Event {
        Event::now(model, EventKind::Configured, Actor::Operator, why.to_string())
    }

    #[test]
    fn the_newest_events_are_kept_in_order_and_what_was_dropped_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
        let names = ["films", "books"].map(|name| ModelName::new(name).unwrap());
        let [films, books] = [ModelId(1), ModelId(2)];
        let events = AuditLog::open(storage.clone()).unwrap();
        for (id, name) in [(films, "films"), (books, "books")] {
            events.begin(id, &StreamName::new(name).unwrap());
        }
        let many: Vec<Event> = (1..=EVENTS_MAX + 3).map(|why| event((&names[0], films), why)).collect();
        for part in many.chunks(500) {
            events.commit(RegistryBatch::new(), part).unwrap();
        }
        events.commit(RegistryBatch::new(), &[event((&names[1], books), 1)]).unwrap();

        // A reopened registry holds the same events.
        for events in [events, AuditLog::open(storage.clone()).unwrap()] {
            let page = events.page(films, None, 2).unwrap();
            let whys: Vec<&str> = page.events.iter().map(|numbered| numbered.event.why.as_str()).collect();
            assert_eq!(whys, ["10003", "10002"]);
            assert_eq!((page.dropped, page.next), (3, Some(10_002)));
            let mut seen = Vec::new();
            let mut before = None;
            loop {
                let page = events.page(films, before, 999).unwrap();
                seen.extend(page.events.iter().map(|numbered| numbered.number));
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
            let expected: Vec<u64> = (4..=EVENTS_MAX + 3).rev().collect();
            assert_eq!(seen, expected, "every kept event exactly once");
            assert_eq!(events.page(books, None, 10).unwrap().events.len(), 1, "each model has its own");
        }

        let events = AuditLog::open(storage.clone()).unwrap();
        let mut batch = RegistryBatch::new();
        events.delete(films, &mut batch).unwrap();
        storage.registry().commit(&batch).unwrap();
        events.forget(films);
        assert_eq!(
            events.page(films, None, 10).unwrap(),
            EventPage { events: vec![], unreadable: vec![], dropped: 0, next: None }
        );
        assert_eq!(AuditLog::open(storage).unwrap().page(books, None, 10).unwrap().events.len(), 1);
    }

    #[test]
    fn events_are_recorded_for_models_in_service_only() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
        let name = ModelName::new("films").unwrap();
        let events = AuditLog::open(storage).unwrap();
        let recorded = |why| {
            events.commit(RegistryBatch::new(), &[event((&name, ModelId(1)), why)]).unwrap();
            events.page(ModelId(1), None, 10).unwrap().events
        };
        assert_eq!(recorded(1), []);
        events.begin(ModelId(1), &StreamName::of_model(&name));
        let page = recorded(2);
        assert_eq!((page.len(), page[0].event.why.as_str()), (1, "2"));
        assert_eq!(page[0].event.details["observations"], 0, "the log of the stream is empty");
        events.forget(ModelId(1));
        assert_eq!(recorded(3), []);
    }

    #[test]
    fn the_stored_format_of_an_event_is_unchanged() {
        let event = Event {
            at: Timestamp(1_700_000_000_000),
            model: ModelName::new("films").unwrap(),
            model_id: ModelId(7),
            kind: EventKind::RolledBack,
            principal: None,
            by: Actor::Guard,
            why: "worse".to_owned(),
            before: Some(VersionId(3)),
            after: Some(VersionId(2)),
            details: BTreeMap::from([("rmse".to_owned(), 1.5.into())]),
        };
        let text = r#"{"at":1700000000000,"model":"films","model_id":7,"kind":"rolled_back","by":"guard","why":"worse","before":3,"after":2,"details":{"rmse":1.5}}"#;
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
        assert_eq!(serde_json::from_str::<Event>(text).unwrap(), event);
        let kinds: Vec<EventKind> = serde_json::from_str(
            r#"["created","triggered","training_started","training_failed","gate_refused","gate_passed","activated",
                "rolled_back","pinned","unpinned","pruned","registered","configured"]"#,
        )
        .unwrap();
        for kind in kinds {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{:?}", kind.name()));
        }
    }
}
