//! Shadow mode: a candidate predicts live traffic alongside the active version before it may serve.
//!
//! In a cluster the samples are those of the users that the leading node owns, which are drawn by a
//! hash, so the comparison is unbiased and takes longer.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use celeris_model::{Loss, VersionId};
use celeris_predictor::{Predictor, ServingVersion, ShadowSample};
use celeris_storage::RegistryBatch;

use super::{Promotion, gate_event};
use crate::comparison::{Comparison, Paired};
use crate::error::ManagerError;
use crate::leadership::Term;
use crate::metric::Metric;
use crate::registry::{ModelRecord, VersionRecord, version_key};

/// Capacity of the queue of shadow samples.
pub(super) const WAITING_MAX: usize = 8192;

/// Time that the thread waits for a sample before it checks whether the guard is still needed.
const PATIENCE: Duration = Duration::from_millis(250);

/// Comparison of two versions on live traffic.
pub(super) struct LiveComparison<'a> {
    pub(super) predictor: &'a Predictor,
    pub(super) loss: Loss,
    /// The version that is not active.
    pub(super) other: &'a ServingVersion,
    /// The active version.
    pub(super) active: VersionId,
    /// Whether the other version is the candidate (before a switch) or the incumbent (after it).
    pub(super) other_is_candidate: bool,
    pub(super) paired: Paired,
}

impl LiveComparison<'_> {
    pub(super) fn add(&mut self, sample: &ShadowSample) -> Result<(), ManagerError> {
        if sample.version != self.active {
            return Ok(());
        }
        let other = match self.predictor.activation().shadow_prediction(self.other, sample) {
            // Another node has taken over the user's shard.
            Err(error) if error.is_of_other_node() => return Ok(()),
            other => other?,
        };
        let Some(other) = other else { return Ok(()) };
        let label = self.other.learning.limited(sample.label);
        let loss = |predicted| self.loss.prediction_loss(predicted, label);
        let (active, other) = (loss(sample.predicted), loss(other));
        self.paired.add([if self.other_is_candidate { (other, active) } else { (active, other) }]);
        Ok(())
    }

    fn comparison(&self) -> Option<Comparison> {
        self.paired.comparison(Metric::of(self.loss))
    }
}

/// Returns the next sample, `None` on a timeout, and an error once the channel is closed.
pub(super) fn next(queue: &Receiver<ShadowSample>) -> Result<Option<ShadowSample>, ()> {
    match queue.recv_timeout(PATIENCE) {
        Ok(sample) => Ok(Some(sample)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(()),
    }
}

impl Promotion {
    /// Runs a candidate in shadow mode on live traffic for the configured time and adds the
    /// comparison to its report. Returns whether the candidate may serve. `progress` receives the
    /// share of the time that has passed.
    ///
    /// # Errors
    /// `Predictor` or `Storage`, with `NotOwner` once the term is over.
    pub(crate) fn shadow(
        &self,
        (record, term): (&ModelRecord, &Term),
        candidate: &ServingVersion,
        version: &mut VersionRecord,
        progress: impl Fn(f32),
    ) -> Result<bool, ManagerError> {
        let config = &record.config;
        let started = Instant::now();
        let length = Duration::from_secs(config.gate.shadow_seconds);
        let queue = self.predictor.models().start_shadow(&config.name, candidate.id, WAITING_MAX)?;
        let mut live = LiveComparison {
            predictor: &self.predictor,
            loss: config.loss,
            other: candidate,
            active: self.predictor.models().active(&config.name)?.id,
            other_is_candidate: true,
            paired: Paired::default(),
        };
        while started.elapsed() < length && !term.is_over() {
            progress(started.elapsed().as_secs_f32() / length.as_secs_f32());
            match next(&queue) {
                Ok(Some(sample)) => live.add(&sample)?,
                Ok(None) => {}
                Err(()) => break,
            }
        }
        self.predictor.models().stop_shadow(record.identity(), candidate.id);
        term.check()?;
        let Some(report) = &mut version.gate else { return Ok(true) };
        report.shadow = live.comparison();
        report.decide(&config.gate);
        let passed = report.lets_pass();
        let mut events = Vec::new();
        if !passed {
            events.push(gate_event(record, live.active, version.version, report));
        }
        let mut batch = RegistryBatch::new();
        batch.put(version_key(&config.name, version.version)?, version)?;
        self.registry.audit().commit(batch, &events)?;
        Ok(passed)
    }
}
