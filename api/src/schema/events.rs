//! The audit of a model's life.

use std::collections::BTreeMap;

use celeris_manager::{self as manager, NumberedEvent};
use serde::Serialize;
use utoipa::ToSchema;

mirror_enum! {
    /// What happened.
    EventKind = manager::EventKind {
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
        /// A version was pinned.
        Pinned,
        /// A version is no longer pinned.
        Unpinned,
        /// A version was removed.
        Pruned,
        /// A version that was trained elsewhere was registered.
        Registered,
        /// Settings of the model were changed.
        Configured,
    }
}

mirror_enum! {
    /// What made it happen.
    Actor = manager::Actor {
        /// A call of the API or the command line.
        Operator,
        /// A trigger.
        Trigger,
        /// The guard after a switch.
        Guard,
        /// A retrain job.
        Job,
    }
}

/// One event of a model's life.
#[derive(Debug, Serialize, ToSchema)]
pub struct Event {
    /// Counts the model's events from 1.
    pub number: u64,
    /// When it happened, in Unix milliseconds.
    pub at: i64,
    pub kind: EventKind,
    pub by: Actor,
    /// Why, in words and figures.
    pub why: String,
    /// The version that served before.
    pub before: Option<u64>,
    /// The version that it led to.
    pub after: Option<u64>,
    /// What else belongs to it: figures, settings, ids. Free-form, since each kind of event has its own, and events are kept
    /// as they were written.
    pub details: BTreeMap<String, serde_json::Value>,
}

/// A page of events, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Events {
    pub events: Vec<Event>,
    /// Why events of the page that are there could not be read.
    pub unreadable: Vec<String>,
    /// Pass it as `before` to get the next page; null on the last one.
    pub next: Option<u64>,
    /// Older events that the model has had and that are kept no more.
    pub dropped: u64,
}

impl From<NumberedEvent> for Event {
    fn from(NumberedEvent { number, event }: NumberedEvent) -> Self {
        let manager::Event { at, model: _, model_id: _, kind, by, why, before, after, details } = event;
        Self {
            number,
            at: at.0,
            kind: kind.into(),
            by: by.into(),
            why,
            before: before.map(|version| version.0),
            after: after.map(|version| version.0),
            details,
        }
    }
}
