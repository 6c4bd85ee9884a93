//! What an evaluation reports while it runs.

use celeris_retrain::{Phase, Step};

use crate::EvaluateSettings;

/// Receives the stages of an evaluation, one after the other.
pub trait Progress: Sync {
    /// A stage begins; `count` is its number of elements, if they are counted.
    fn begin(&self, stage: &str, count: Option<u64>);

    /// This share of the stage is done, from 0 to 1.
    fn at(&self, share: f64);
}

/// Discards what is reported.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _stage: &str, _count: Option<u64>) {}

    fn at(&self, _share: f64) {}
}

/// The part of a training that chooses the settings, roughly.
const TUNING: f64 = 0.75;

/// One of several equal steps of a stage.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    progress: &'a dyn Progress,
    number: usize,
    of: usize,
}

impl Part<'_> {
    /// A step that is not reported.
    pub(crate) fn unreported() -> Self {
        Self { progress: &Silent, number: 0, of: 1 }
    }

    /// This share of the step is done, from 0 to 1.
    pub(crate) fn at(&self, share: f64) {
        self.progress.at((self.number as f64 + share) / self.of as f64);
    }
}

impl celeris_retrain::Progress for Part<'_> {
    fn report(&self, step: Step) {
        let share = f64::from(step.fraction);
        self.at(match step.phase {
            Phase::Reading => 0.0,
            Phase::Tuning => TUNING * share,
            Phase::Training => TUNING + (1.0 - TUNING) * share,
            Phase::Parts | Phase::Writing => 1.0,
        });
    }
}

impl<'a> EvaluateSettings<'a> {
    /// Begins a stage of one step.
    pub(crate) fn stage(&self, stage: &str, count: Option<usize>) -> Part<'a> {
        self.progress.begin(stage, count.map(|count| count as u64));
        self.part(0, 1)
    }

    /// The step `number`, from 0, of the current stage, which has `of` steps.
    pub(crate) fn part(&self, number: usize, of: usize) -> Part<'a> {
        Part { progress: self.progress, number, of }
    }
}
