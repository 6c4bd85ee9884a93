//! Life-cycle events: an append-only audit of what happened to a model, who or what did it, and why.
//!
//! An event is written into the registry, where possible in the same atomic write as the change that it tells of
//! ([`Manager::commit_noting`]), so that neither is ever found without the other. A model keeps its newest
//! [`EVENTS_MAX`] events; how many older ones were dropped is part of every answer. A model's events go with the model.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use celeris_model::{ModelId, ModelName, Timestamp, VersionId};
use celeris_storage::{RegistryBatch, RegistryKey, Storage, StorageError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::ManagerError;
use crate::manager::Manager;

/// How many events of one model are kept.
pub const EVENTS_MAX: u64 = 10_000;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The model was created.
    Created,
    /// A trigger asked for a retraining.
    Triggered,
    /// A retrain job was accepted.
    TrainingStarted,
    /// A retrain job made no version.
    TrainingFailed,
    /// A candidate was not better than the version that serves, and was kept without being activated.
    GateRefused,
    /// A candidate was better than the version that serves.
    GatePassed,
    /// Another version serves.
    Activated,
    /// The version that served before serves again.
    RolledBack,
    /// A version was pinned: it is not pruned, or not replaced.
    Pinned,
    /// A version is pinned no more.
    Unpinned,
    /// A version was removed.
    Pruned,
    /// A version that was trained elsewhere was registered.
    Registered,
    /// Settings of the model were changed.
    Configured,
}

impl EventKind {
    /// Its name, as JSON has it.
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
        }
    }
}

/// Who or what made it happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// Whoever called the API or the command line.
    Operator,
    /// A trigger.
    Trigger,
    /// The guard after a switch.
    Guard,
    /// A retrain job.
    Job,
}

/// One life-cycle event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When it happened.
    pub at: Timestamp,
    /// To which model.
    pub model: ModelName,
    /// The model's identity.
    pub model_id: ModelId,
    /// What happened.
    pub kind: EventKind,
    /// Who or what made it happen.
    pub by: Actor,
    /// Why, in words and figures.
    pub why: String,
    /// The version that served before.
    pub before: Option<VersionId>,
    /// The version that it led to.
    pub after: Option<VersionId>,
    /// What else belongs to it: the job, figures, settings.
    pub details: BTreeMap<String, serde_json::Value>,
}

impl Event {
    /// An event of now, without versions or details.
    pub fn now((model, model_id): (&ModelName, ModelId), kind: EventKind, by: Actor, why: impl Into<String>) -> Self {
        Self {
            at: SystemTime::now().into(),
            model: model.clone(),
            model_id,
            kind,
            by,
            why: why.into(),
            before: None,
            after: None,
            details: BTreeMap::new(),
        }
    }

    /// The same, having led from one version to another.
    #[must_use]
    pub fn between(mut self, before: Option<VersionId>, after: Option<VersionId>) -> Self {
        self.before = before;
        self.after = after;
        self
    }

    /// The version that serves from this event on; `None` where it changes nothing of that.
    #[must_use]
    pub fn serving(&self) -> Option<VersionId> {
        match self.kind {
            EventKind::Created | EventKind::Activated | EventKind::RolledBack => self.after,
            _ => None,
        }
    }

    /// The same with one more detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

/// An event with its place in its model's audit.
#[derive(Debug, Clone, PartialEq)]
pub struct NumberedEvent {
    /// Counts a model's events from 1.
    pub number: u64,
    /// The event.
    pub event: Event,
}

/// A page of a model's audit.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPage {
    /// Newest first.
    pub events: Vec<NumberedEvent>,
    /// Why events of the page that are there could not be read.
    pub unreadable: Vec<String>,
    /// How many older events the model has had that are kept no more.
    pub dropped: u64,
    /// Asked `before` this number, the next page begins; `None` on the last page.
    pub next: Option<u64>,
}

/// Which of a model's events are in the registry: those numbered from `first` up to, without, `end`.
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
    /// The numbers of the events that are there.
    fn found(storage: &Storage, model: ModelId) -> Result<Self, StorageError> {
        let keys = storage.registry_keys(&events_key(model)?)?;
        let mut numbers = keys.iter().filter_map(|key| key.parts().last()?.parse::<u64>().ok());
        let Some(first) = numbers.next() else { return Ok(Self::default()) };
        Ok(Self { first, end: numbers.next_back().unwrap_or(first) + 1 })
    }
}

/// The audits of all models.
pub(crate) struct Events {
    storage: Storage,
    /// By model; held while an event is numbered and written, so that numbers have no gaps.
    kept: Mutex<HashMap<ModelId, Kept>>,
}

impl Events {
    pub(crate) fn open(storage: Storage) -> Result<Self, StorageError> {
        let mut kept = HashMap::new();
        for (key, span) in storage.list_registry::<Kept>(&all_kept_key()?)? {
            // A key of another form is none of ours.
            let Some(Ok(model)) = key.parts().get(1).map(|id| id.parse().map(ModelId)) else { continue };
            let span = match span {
                Ok(span) if (1..=span.end).contains(&span.first) && span.end - span.first <= EVENTS_MAX => span,
                unusable => {
                    tracing::error!(%key, ?unusable, "which events there are is found from the events themselves");
                    Kept::found(&storage, model)?
                }
            };
            kept.insert(model, span);
        }
        Ok(Self { storage, kept: Mutex::new(kept) })
    }

    /// Commits a change together with the events that tell of it.
    fn commit(&self, mut batch: RegistryBatch, events: &[Event]) -> Result<(), StorageError> {
        let mut kept = self.kept.lock();
        let mut spans: HashMap<ModelId, Kept> = HashMap::new();
        for event in events {
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
        self.storage.commit_registry(&batch)?;
        kept.extend(spans);
        Ok(())
    }

    fn page(&self, model: ModelId, before: Option<u64>, limit: usize) -> Result<EventPage, StorageError> {
        let kept = self.kept.lock().get(&model).copied().unwrap_or_default();
        let end = before.unwrap_or(kept.end).clamp(kept.first, kept.end);
        let first = end.saturating_sub(limit as u64).max(kept.first);
        let mut events = Vec::with_capacity(usize::try_from(end - first).unwrap_or_default());
        let mut unreadable = Vec::new();
        for number in (first..end).rev() {
            match self.storage.registry::<Event>(&event_key(model, number)?) {
                Ok(Some(event)) => events.push(NumberedEvent { number, event }),
                // It has been dropped since the span was looked up.
                Ok(None) => {}
                Err(error @ StorageError::Document { .. }) => unreadable.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        let next = (first > kept.first).then_some(first);
        Ok(EventPage { events, unreadable, dropped: kept.first - 1, next })
    }

    /// Adds the removal of a model's audit to the write that deletes the model.
    pub(crate) fn delete(&self, model: ModelId, batch: &mut RegistryBatch) -> Result<(), StorageError> {
        let Some(kept) = self.kept.lock().get(&model).copied() else { return Ok(()) };
        for number in kept.first..kept.end {
            batch.delete(event_key(model, number)?);
        }
        batch.delete(kept_key(model)?);
        Ok(())
    }

    /// Forgets a model whose deletion has been written.
    pub(crate) fn forget(&self, model: ModelId) {
        self.kept.lock().remove(&model);
    }
}

impl Manager {
    /// Records an event. One that cannot be written is logged: what it tells of has happened all the same.
    #[expect(clippy::needless_pass_by_value, reason = "callers are done with an event once it is recorded")]
    pub fn note(&self, event: Event) {
        if let Err(error) = self.commit_noting(RegistryBatch::new(), std::slice::from_ref(&event)) {
            tracing::error!(model = %event.model, kind = event.kind.name(), %error, "cannot record an event");
        }
    }

    /// Makes all changes of a batch, and records the events that tell of them, in one atomic write.
    ///
    /// An event gets the detail `observations`, how many records the log of the model's stream held by then. One that says
    /// that another version serves ([`Event::serving`]) begins that version's quality anew.
    ///
    /// # Errors
    /// `Storage`; nothing is changed or recorded then.
    pub fn commit_noting(&self, mut batch: RegistryBatch, events: &[Event]) -> Result<(), ManagerError> {
        // Events of a deleted model are dropped.
        let is_known = |event: &&Event| self.monitors.position(event.model_id).is_some();
        let mut events: Vec<Event> = events.iter().filter(is_known).cloned().collect();
        let mut births = Vec::new();
        for event in &mut events {
            if let Some(position) = self.monitors.position(event.model_id) {
                event.details.entry("observations".to_owned()).or_insert_with(|| position.into());
            }
            let serving = event.serving().map(|version| self.monitors.birth(event.model_id, version));
            if let Some(birth) = serving.transpose()?.flatten() {
                birth.put(event.model_id, &mut batch)?;
                births.push((event.model_id, birth));
            }
        }
        self.events.commit(batch, &events)?;
        for (model, birth) in births {
            self.monitors.serve(model, birth);
        }
        for event in &events {
            let (model, kind) = (event.model.to_string(), event.kind.name());
            tracing::info!(%model, kind, why = %event.why, "life-cycle event");
            metrics::counter!("celeris_model_events_total", "model" => model, "kind" => kind).increment(1);
        }
        Ok(())
    }

    /// Events of a model, newest first: at most `limit`, and only those numbered below `before`.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn events(&self, model: &ModelName, before: Option<u64>, limit: usize) -> Result<EventPage, ManagerError> {
        Ok(self.events.page(self.model(model)?.id, before, limit)?)
    }
}

fn all_kept_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["events"])
}

fn kept_key(model: ModelId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["events".to_owned(), model.to_string()])
}

/// All events of one model.
fn events_key(model: ModelId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["event".to_owned(), model.to_string()])
}

/// The number is padded so that the registry's order is theirs.
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
        let events = Events::open(storage.clone()).unwrap();
        let many: Vec<Event> = (1..=EVENTS_MAX + 3).map(|why| event((&names[0], films), why)).collect();
        for part in many.chunks(500) {
            events.commit(RegistryBatch::new(), part).unwrap();
        }
        events.commit(RegistryBatch::new(), &[event((&names[1], books), 1)]).unwrap();

        // What a restart finds is what there was.
        for events in [events, Events::open(storage.clone()).unwrap()] {
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
            assert_eq!(seen, expected, "every event that is kept, once");
            assert_eq!(events.page(books, None, 10).unwrap().events.len(), 1, "each model has its own");
        }

        let events = Events::open(storage.clone()).unwrap();
        let mut batch = RegistryBatch::new();
        events.delete(films, &mut batch).unwrap();
        storage.commit_registry(&batch).unwrap();
        events.forget(films);
        assert_eq!(
            events.page(films, None, 10).unwrap(),
            EventPage { events: vec![], unreadable: vec![], dropped: 0, next: None }
        );
        assert_eq!(Events::open(storage).unwrap().page(books, None, 10).unwrap().events.len(), 1);
    }

    #[test]
    fn an_event_is_stored_as_existing_catalogs_hold_it() {
        let event = Event {
            at: Timestamp(1_700_000_000_000),
            model: ModelName::new("films").unwrap(),
            model_id: ModelId(7),
            kind: EventKind::RolledBack,
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
