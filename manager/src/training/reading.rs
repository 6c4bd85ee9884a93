//! What trainings under way have read of the log, and what the erasure of a user means for them.
//!
//! A training that has read what a user said begins again once the user is erased: its input is removed, its trainer
//! stopped, and what it makes from then on knows nothing of the user. Where erasures come faster than it trains, the last
//! of a few attempts is let through, and its version is one that knows of erased users, as every list of versions says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use celeris_model::{ModelName, StreamName, Timestamp};
use celeris_storage::Watermark;

use crate::erasures::{ErasedSpan, trained_on_erased};
use crate::error::ManagerError;
use crate::jobs::JobId;
use crate::manager::Manager;

/// Attempts of a job, of which the last is let through whoever is erased meanwhile.
pub(crate) const ATTEMPTS_MAX: u32 = 3;

/// How long a training that begins again may take to be rid of its input, while the node runs: a part of the export, and
/// the end of a trainer's processes.
const REMOVED_WITHIN_MS: i64 = 120_000;

/// A training's view of the log.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    model: ModelName,
    stream: StreamName,
    /// Up to where it reads.
    watermark: Watermark,
    /// When its input is gone at latest, where it is let through.
    let_through_until: Option<Timestamp>,
}

/// A training under way that has read what an erased user had said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadingTraining {
    /// The training.
    pub job: JobId,
    /// Its model.
    pub model: ModelName,
    /// When its input is removed at latest, while the node runs; a node that starts removes what there is.
    pub input_removed_by: Timestamp,
}

/// Which attempt at a training it is, and how long it may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    pub(crate) began: Timestamp,
    pub(crate) seconds_max: u64,
}

impl Attempt {
    fn let_through_until(self) -> Option<Timestamp> {
        // The export, and one trainer or two of them.
        let longest = i64::try_from(self.seconds_max.saturating_mul(3_000)).unwrap_or(i64::MAX);
        (self.number >= ATTEMPTS_MAX).then(|| Timestamp(self.began.0.saturating_add(longest)))
    }
}

/// A training that reads, until this is dropped.
pub(crate) struct ReadingJob {
    manager: Arc<Manager>,
    job: JobId,
    reading: Reading,
    /// Erasures of the node that have been looked at.
    looked_at: AtomicU64,
}

impl Drop for ReadingJob {
    fn drop(&mut self) {
        self.manager.readings.lock().remove(&self.job);
    }
}

impl ReadingJob {
    /// Begins to read up to where `up_to` says, of the log as it is now.
    pub(crate) fn begin(
        manager: &Arc<Manager>,
        (job, attempt): (&JobId, Attempt),
        (model, stream): (&ModelName, &StreamName),
        up_to: impl FnOnce(Watermark) -> Watermark,
    ) -> Arc<Self> {
        // Under the lock: an erasure that this does not find durable finds this.
        let mut readings = manager.readings.lock();
        let reading = Reading {
            model: model.clone(),
            stream: stream.clone(),
            watermark: up_to(manager.storage.watermark(stream)),
            let_through_until: attempt.let_through_until(),
        };
        readings.insert(job.clone(), reading.clone());
        Arc::new(Self { manager: manager.clone(), job: job.clone(), reading, looked_at: AtomicU64::new(u64::MAX) })
    }

    /// Refuses to go on where a user has been erased of whom the training has read.
    ///
    /// # Errors
    /// `Outdated`, or `Storage`.
    pub(crate) fn check(&self) -> Result<(), ManagerError> {
        if self.reading.let_through_until.is_some() {
            return Ok(());
        }
        let erasures = self.manager.storage.erasures(&self.reading.stream)?;
        if erasures.iter().any(|erasure| trained_on_erased(&self.reading.watermark, ErasedSpan::from(erasure))) {
            return Err(ManagerError::Outdated);
        }
        Ok(())
    }

    /// The same, cheap where nobody has been erased since it was last asked.
    pub(crate) fn is_outdated(&self) -> bool {
        let erased = self.manager.erased.load(Ordering::Acquire);
        // If erasures cannot be read now, `conclude` reads them again.
        self.looked_at.swap(erased, Ordering::AcqRel) != erased && matches!(self.check(), Err(ManagerError::Outdated))
    }

    /// Ends the reading by what `admit` makes a version of it. An erasure is either found here, or finds that version: a
    /// receipt that is being written waits.
    ///
    /// # Errors
    /// `Outdated`, or `Storage`, and nothing is admitted; or what `admit` fails with.
    pub(crate) fn conclude<T>(&self, admit: impl FnOnce() -> Result<T, ManagerError>) -> Result<T, ManagerError> {
        let mut readings = self.manager.readings.lock();
        self.check()?;
        let admitted = admit()?;
        readings.remove(&self.job);
        Ok(admitted)
    }
}

impl Manager {
    /// Trainings under way that have read what a user had said who was erased `at` a time.
    #[must_use]
    pub fn trainings_holding(&self, stream: &StreamName, erased: ErasedSpan, at: Timestamp) -> Vec<ReadingTraining> {
        let readings = self.readings.lock();
        let holding = readings
            .iter()
            .filter(|(_, reading)| reading.stream == *stream && trained_on_erased(&reading.watermark, erased));
        let training = |(job, reading): (&JobId, &Reading)| ReadingTraining {
            job: job.clone(),
            model: reading.model.clone(),
            input_removed_by: reading.let_through_until.unwrap_or(Timestamp(at.0.saturating_add(REMOVED_WITHIN_MS))),
        };
        let mut trainings: Vec<ReadingTraining> = holding.map(training).collect();
        trainings.sort_by(|a, b| a.job.cmp(&b.job));
        trainings
    }
}
