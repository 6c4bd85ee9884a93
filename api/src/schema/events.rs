//! The audit log of a model.

use std::collections::BTreeMap;

use celeris_manager::{self as manager, NumberedEvent};
use serde::Serialize;
use utoipa::ToSchema;

mirror_enum! {
    /// The kind of an event.
    EventKind = manager::EventKind {
        /// The model was created.
        Created,
        /// A trigger requested a retraining.
        Triggered,
        /// A retrain job was accepted.
        TrainingStarted,
        /// A retrain job failed without a version.
        TrainingFailed,
        /// A candidate was worse than the active version by more than the gate allows, and was kept
        /// without being activated.
        GateRefused,
        /// A candidate was not worse than the active version by more than the gate allows, or there was
        /// too little to compare them on.
        GatePassed,
        /// A version was activated.
        Activated,
        /// The model was rolled back to the previously active version.
        RolledBack,
        /// A version was pinned.
        Pinned,
        /// A version was unpinned.
        Unpinned,
        /// A version was removed.
        Pruned,
        /// A version that was trained externally was registered.
        Registered,
        /// Settings of the model were changed.
        Configured,
        /// A search for better settings began.
        StudyStarted,
        /// A search for better settings ended.
        StudyEnded,
        /// The observations that trials of a study read were sent to a worker on another machine.
        StudyDataSent,
        /// The model got the settings that a study has found.
        Tuned,
    }
}

mirror_enum! {
    /// The actor that caused an event.
    Actor = manager::Actor {
        /// A call of the API or a command.
        Operator,
        /// A trigger.
        Trigger,
        /// The guard after a promotion.
        Guard,
        /// A retrain job.
        Job,
    }
}

/// An event of a model.
#[derive(Debug, Serialize, ToSchema)]
pub struct Event {
    /// Number of the event, counted per model from 1.
    pub number: u64,
    /// Time of the event, in Unix milliseconds.
    pub at: i64,
    pub kind: EventKind,
    pub by: Actor,
    /// Who asked for it: the key, or the node that has forwarded the request. Null on a node that is open, and for what the node
    /// does by itself.
    pub principal: Option<String>,
    /// The reason, as text with figures.
    pub why: String,
    /// The previously active version.
    pub before: Option<u64>,
    /// The version that the event led to.
    pub after: Option<u64>,
    /// Further details: figures, settings, ids. Free-form, because each kind of event has its own
    /// and events are returned as they were recorded.
    pub details: BTreeMap<String, serde_json::Value>,
}

/// A page of events, newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EventPage)]
pub struct Events {
    pub events: Vec<Event>,
    /// Errors of events of this page that could not be read.
    pub unreadable: Vec<String>,
    /// The value of `before` for the next page; null on the last page.
    pub next: Option<u64>,
    /// Number of older events that are no longer kept.
    pub dropped: u64,
}

impl From<NumberedEvent> for Event {
    fn from(NumberedEvent { number, event }: NumberedEvent) -> Self {
        let manager::Event { at, model: _, model_id: _, kind, by, principal, why, before, after, details } = event;
        Self {
            number,
            at: at.0,
            kind: kind.into(),
            by: by.into(),
            principal,
            why,
            before: before.map(|version| version.0),
            after: after.map(|version| version.0),
            details,
        }
    }
}
