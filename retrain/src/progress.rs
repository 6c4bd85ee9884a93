//! How far a training run has come, for whoever waits for it.

use std::io::Write;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

/// The stages of a training run, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Reading and checking the input files.
    Reading,
    /// Choosing the settings on held-out ratings.
    Tuning,
    /// Training on everything with the chosen settings.
    Training,
    /// Writing the version directory.
    Writing,
}

impl Phase {
    /// Its name, as in progress lines and job records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Tuning => "tuning",
            Self::Training => "training",
            Self::Writing => "writing",
        }
    }
}

/// One report of progress: a line of the train job's standard output.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The stage.
    pub phase: Phase,
    /// How much of the stage is done, from 0 to 1; it never falls within a stage.
    pub fraction: f32,
}

/// Told of every step. Called from one thread at a time, at most some tens of times a second.
pub trait Progress: Sync {
    /// Takes note of a step.
    fn report(&self, step: Step);
}

/// For callers who do not wait.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn report(&self, _step: Step) {}
}

/// Steps as JSON lines, for a parent process to read.
#[derive(Debug)]
pub struct JsonLines<W> {
    out: Mutex<W>,
}

impl<W: Write> JsonLines<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out: Mutex::new(out) }
    }
}

impl<W: Write + Send> Progress for JsonLines<W> {
    fn report(&self, step: Step) {
        let line = serde_json::to_string(&step).expect("two plain fields always serialise");
        if let Ok(mut out) = self.out.lock() {
            // A parent that no longer listens is no reason to stop training: it may still come for the result.
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
    }
}
