//! Trainings in progress and the part of the log that they have read, for the erasure of users.
//!
//! If a user is erased whose events a training has read, the training starts again: its input is
//! removed, its trainer is stopped, and the next attempt does not contain the user. If erasures are
//! more frequent than trainings, the last of a few attempts is completed anyway, and its version is
//! listed as trained on erased users.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use celeris_model::{ModelName, StreamName, Timestamp};
use celeris_storage::{Storage, Watermark};
use parking_lot::Mutex;

use crate::error::ManagerError;
use crate::job_id::JobId;
use crate::registry::{ErasedSpan, trained_on_erased};

/// Maximum number of attempts of a job; the last one is completed even if users are erased.
pub(super) const ATTEMPTS_MAX: u32 = 3;

/// Time limit for a restarted training to remove its input while the node runs: a part of the
/// export, and the end of a trainer's processes.
const REMOVED_WITHIN_MS: i64 = 120_000;

/// The part of the log that a training reads.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    model: ModelName,
    stream: StreamName,
    /// End of the part that it reads.
    watermark: Watermark,
    /// End of the log when it began: users who were erased by then are not in what it reads.
    began_at: Watermark,
    /// Latest time at which its input is removed, if it is the last attempt.
    let_through_until: Option<Timestamp>,
}

impl Reading {
    /// Whether it has read events of a user who was erased since it began.
    fn has_read(&self, erased: ErasedSpan) -> bool {
        trained_on_erased(&self.watermark, erased) && self.began_at.get(erased.partition) < erased.at
    }
}

/// A training in progress that has read events of an erased user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadingTraining {
    pub job: JobId,
    pub model: ModelName,
    /// Latest time at which its input is removed while the node runs; otherwise the next start
    /// removes it.
    pub input_removed_by: Timestamp,
}

/// Number of an attempt at a training, and its time limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) number: u32,
    pub(super) began: Timestamp,
    pub(super) seconds_max: u64,
}

impl Attempt {
    fn let_through_until(self) -> Option<Timestamp> {
        // The export, and one or two trainers.
        let longest = i64::try_from(self.seconds_max.saturating_mul(3_000)).unwrap_or(i64::MAX);
        (self.number >= ATTEMPTS_MAX).then(|| Timestamp(self.began.0.saturating_add(longest)))
    }
}

/// The parts of the log that running trainings have read.
pub struct Readings {
    storage: Storage,
    by_job: Mutex<HashMap<JobId, Reading>>,
    /// Number of users erased since the start.
    erased: AtomicU64,
}

impl Readings {
    pub(super) fn new(storage: Storage) -> Arc<Self> {
        Arc::new(Self { storage, by_job: Mutex::default(), erased: AtomicU64::new(0) })
    }

    /// Registers a training that reads the current log up to the result of `up_to`.
    pub(super) fn begin(
        self: &Arc<Self>,
        (job, attempt): (&JobId, Attempt),
        (model, stream): (&ModelName, &StreamName),
        up_to: impl FnOnce(Watermark) -> Watermark,
    ) -> Arc<ReadingJob> {
        // Under the lock: an erasure that is not yet durable here will see this entry.
        let mut readings = self.by_job.lock();
        let began_at = self.storage.log().watermark(stream);
        let reading = Reading {
            model: model.clone(),
            stream: stream.clone(),
            watermark: up_to(began_at.clone()),
            began_at,
            let_through_until: attempt.let_through_until(),
        };
        readings.insert(job.clone(), reading.clone());
        let looked_at = AtomicU64::new(u64::MAX);
        Arc::new(ReadingJob { readings: Arc::clone(self), job: job.clone(), reading, looked_at })
    }

    /// Has the running trainings check for erased users again.
    pub(crate) fn note_erasure(&self) {
        self.erased.fetch_add(1, Ordering::AcqRel);
    }

    /// Trainings in progress that have read events of a user who was erased at time `at`.
    #[must_use]
    pub fn of_erased(&self, stream: &StreamName, erased: ErasedSpan, at: Timestamp) -> Vec<ReadingTraining> {
        let readings = self.by_job.lock();
        let affected = readings.iter().filter(|(_, reading)| reading.stream == *stream && reading.has_read(erased));
        let training = |(job, reading): (&JobId, &Reading)| ReadingTraining {
            job: job.clone(),
            model: reading.model.clone(),
            input_removed_by: reading.let_through_until.unwrap_or(Timestamp(at.0.saturating_add(REMOVED_WITHIN_MS))),
        };
        let mut trainings: Vec<ReadingTraining> = affected.map(training).collect();
        trainings.sort_by(|a, b| a.job.cmp(&b.job));
        trainings
    }
}

/// A registered reading training; unregistered on drop.
pub(super) struct ReadingJob {
    readings: Arc<Readings>,
    job: JobId,
    reading: Reading,
    /// Number of erased users at the last check.
    looked_at: AtomicU64,
}

impl Drop for ReadingJob {
    fn drop(&mut self) {
        self.readings.by_job.lock().remove(&self.job);
    }
}

impl ReadingJob {
    /// Fails if a user was erased whose events the training has read.
    ///
    /// # Errors
    /// `Outdated`, or `Storage`.
    pub(super) fn check(&self) -> Result<(), ManagerError> {
        if self.reading.let_through_until.is_some() {
            return Ok(());
        }
        let erasures = self.readings.storage.log().erasures(&self.reading.stream)?;
        if erasures.iter().any(|erasure| self.reading.has_read(ErasedSpan::from(erasure))) {
            return Err(ManagerError::Outdated);
        }
        Ok(())
    }

    /// The same as a boolean; cheap if no user was erased since the last call.
    pub(super) fn is_outdated(&self) -> bool {
        let erased = self.readings.erased.load(Ordering::Acquire);
        // If erasures cannot be read now, `conclude` reads them again.
        self.looked_at.swap(erased, Ordering::AcqRel) != erased && matches!(self.check(), Err(ManagerError::Outdated))
    }

    /// Ends the reading and registers the version by `admit`, under the lock. An erasure is either
    /// found here, or finds the version: receipts in progress wait for the lock.
    ///
    /// # Errors
    /// `Outdated`, or `Storage`, without calling `admit`; or the error of `admit`.
    pub(super) fn conclude<T>(&self, admit: impl FnOnce() -> Result<T, ManagerError>) -> Result<T, ManagerError> {
        let mut readings = self.readings.by_job.lock();
        self.check()?;
        let admitted = admit()?;
        readings.remove(&self.job);
        Ok(admitted)
    }
}
