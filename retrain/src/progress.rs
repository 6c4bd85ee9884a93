//! Progress reports of a training run.

use std::io::Write;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

/// The stages of a training run, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Reading and checking the input files.
    Reading,
    /// Choosing the settings on held-out ratings.
    Tuning,
    /// Training on all ratings with the chosen settings.
    Training,
    /// Fitting the computed parts of the features.
    Parts,
    /// Writing the version directory.
    Writing,
}

impl Phase {
    /// Its name in progress lines and job records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Tuning => "tuning",
            Self::Training => "training",
            Self::Parts => "parts",
            Self::Writing => "writing",
        }
    }
}

/// A progress report: one line of the train job's standard output.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub phase: Phase,
    /// Completed share of the stage, from 0 to 1; never decreases within a stage.
    pub fraction: f32,
}

/// Receives progress reports. Called from one thread at a time, at most some tens of times per
/// second.
pub trait Progress: Sync {
    fn report(&self, step: Step);
}

/// Discards progress reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn report(&self, _step: Step) {}
}

/// Writes progress reports as JSON lines for a parent process.
#[derive(Debug)]
pub struct JsonLines<W> {
    out: Mutex<W>,
}

impl<W: Write> JsonLines<W> {
    pub fn new(out: W) -> Self {
        Self { out: Mutex::new(out) }
    }
}

impl<W: Write + Send> Progress for JsonLines<W> {
    fn report(&self, step: Step) {
        let line = serde_json::to_string(&step).expect("two plain fields always serialise");
        if let Ok(mut out) = self.out.lock() {
            // A parent that closed the pipe may still read the result, so training goes on.
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
    }
}
