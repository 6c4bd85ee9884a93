//! Messages of workers on other machines: they ask for trials, report that they are at work, and tell their results.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use celeris_storage::{CopyError, RegistryBatch};
use celeris_study::{Asked, Assignment, Outcome, StudyError, Worker};

use super::data::{PROGRAM, TrialData};
use super::record::StudyRecord;
use super::running::{now, outcome_name};
use super::trial::{model_of, read_baseline};
use super::{BASELINE, Studies};
use crate::error::ManagerError;
use crate::leadership::Term;
use crate::promotion::Holdout;
use crate::registry::{Actor, ErasedSpan, Event, EventKind, trained_on_erased};
use crate::study_id::StudyId;

/// The reply to a worker that asks for a trial.
#[derive(Debug, Clone, PartialEq)]
pub enum RemoteAsked {
    Trial {
        assignment: Assignment,
        /// In Unix milliseconds: when the trial is lost, unless the worker is heard of.
        lease_until: i64,
        /// The time until then.
        lease_seconds: u32,
        /// Which data the trial needs ([`TrialData::number`]).
        data: u64,
    },
    /// There is none now; ask again later.
    Wait {
        /// As of a trial.
        data: u64,
    },
    /// There will be none.
    Ended,
}

/// What a worker says of a trial that it has: whose trial, and which attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfTrial<'a> {
    pub study: &'a str,
    pub trial: u32,
    pub attempt: u32,
}

/// The data of a study, which can be written.
pub struct OutgoingData {
    studies: Arc<Studies>,
    head: TrialData,
}

impl OutgoingData {
    /// Writes all of it. Blocks the thread.
    ///
    /// # Errors
    /// Those of `into`, and of the store.
    pub fn write(&self, into: &mut dyn Write) -> io::Result<()> {
        self.head.write(into)?;
        self.studies.storage.write_copy(&self.head.copy(), into).map_err(|error| match error {
            CopyError::Transfer(error) => error,
            CopyError::Storage(error) => io::Error::other(error),
        })
    }
}

impl Studies {
    /// A worker on another machine asks for a trial.
    ///
    /// # Errors
    /// `UnknownStudy`, `Study` if it has no name, or `Storage`, with `NotOwner` unless this node leads.
    pub fn ask(&self, study: &str, worker: &str) -> Result<RemoteAsked, ManagerError> {
        let term = self.registry.term()?;
        let id = self.get(study)?.study;
        if self.has_erased.load(Ordering::Acquire) {
            // A trial that begins now reads no erased user, and need not be taken back for one.
            self.forget_erased(&id, &term)?;
        }
        let (record, asked) =
            self.update(&id, &term, |study| Ok(study.search.ask(Worker::Remote(worker), now())?))?;
        Ok(match asked {
            Asked::Trial(assignment) => {
                let lease_until = record.search.lease_until(now());
                let lease_seconds = record.search.settings().lease_seconds;
                RemoteAsked::Trial { assignment, lease_until, lease_seconds, data: record.erased_users }
            }
            Asked::Wait => RemoteAsked::Wait { data: record.erased_users },
            Asked::Ended => RemoteAsked::Ended,
        })
    }

    /// A worker reports that it is at work on its trial. Returns the end of its lease in Unix milliseconds.
    ///
    /// # Errors
    /// `UnknownStudy`; `Study` if the trial is not the worker's any more; or `Storage`, with `NotOwner` unless this node
    /// leads.
    pub fn report(&self, of: OfTrial<'_>) -> Result<i64, ManagerError> {
        let term = self.registry.term()?;
        let record = self.get(of.study)?;
        let (record, ()) = self.update(&record.study, &term, |study| {
            let of = remote_of(study, of)?;
            Ok(study.search.renew(of, now())?)
        })?;
        Ok(record.search.lease_until(now()))
    }

    /// A worker tells the result of its trial: its loss, or why there is none.
    ///
    /// # Errors
    /// As [`Studies::report`].
    pub fn tell(
        self: &Arc<Self>,
        of: OfTrial<'_>,
        result: Result<Outcome, String>,
    ) -> Result<StudyRecord, ManagerError> {
        let term = self.registry.term()?;
        let id = self.get(of.study)?.study;
        let (record, ()) = self.update(&id, &term, |study| {
            let of = remote_of(study, of)?;
            result.as_ref().map_or(Ok(()), |outcome| study.metric.check(outcome.value))?;
            Ok(study.search.tell(of, result, now())?)
        })?;
        if let Some(trial) = record.search.trials().get(of.trial as usize) {
            self.count_trials(&record, outcome_name(trial.state), 1);
        }
        self.advance_soon();
        Ok(record)
    }

    /// The data that the trials of a study need, for a worker that asks for it; noted in the audit log, since
    /// observations leave the node.
    ///
    /// # Errors
    /// `UnknownStudy`; `StudyWithoutRemote` if the worker has no trial of it; or `Storage`, with `NotOwner` unless this
    /// node leads.
    pub fn data(self: &Arc<Self>, study: &str, worker: &str) -> Result<OutgoingData, ManagerError> {
        self.registry.term()?;
        let record = self.get(study)?;
        if !record.search.running().any(|trial| trial.remote && trial.worker == worker) {
            return Err(ManagerError::StudyWithoutRemote { study: study.to_owned() });
        }
        let Holdout { from: holdout_from, to: watermark } = record.holdout();
        let head = TrialData {
            program: PROGRAM.to_owned(),
            study: record.study.clone(),
            number: self.erased_users(&record)?,
            record: model_of(&self.registry, &record)?,
            metric: record.metric,
            baseline: read_baseline(&self.studies_dir().join(record.study.as_str()).join(BASELINE)),
            holdout_from,
            watermark,
        };
        let why = format!("worker {worker} makes trials of study {study}");
        let event = Event::now((&record.model, record.model_id), EventKind::StudyDataSent, Actor::Operator, why)
            .with("study", study)
            .with("worker", worker)
            .with("records", record.watermark.records());
        self.registry.audit().commit(RegistryBatch::new(), &[event])?;
        Ok(OutgoingData { studies: Arc::clone(self), head })
    }

    /// Number of users who were erased since a study began and whose events its trials may have read.
    pub(super) fn erased_users(&self, record: &StudyRecord) -> Result<u64, ManagerError> {
        let erasures = self.storage.log().erasures(&record.stream)?;
        let counts = |span| trained_on_erased(&record.watermark, span);
        Ok(erasures.iter().filter(|erasure| counts(ErasedSpan::from(*erasure))).count() as u64)
    }

    /// Ends the trials of workers that are not heard of any more.
    pub(super) fn expire(&self, study: &StudyId, term: &Term) -> Result<(), ManagerError> {
        let (record, expired) = self.update(study, term, |study| Ok(study.search.expire(now())))?;
        if expired > 0 {
            tracing::info!(%study, trials = expired, "workers were not heard of; their trials are lost");
            self.count_trials(&record, "failed", expired as u64);
        }
        Ok(())
    }

    pub(super) fn count_trials(&self, record: &StudyRecord, state: &'static str, count: u64) {
        let model = record.model.to_string();
        metrics::counter!("celeris_study_trials_total", "model" => model, "state" => state).increment(count);
    }
}

/// A trial that belongs to a worker on another machine: those of the node send no messages.
fn remote_of(study: &StudyRecord, OfTrial { trial, attempt, .. }: OfTrial<'_>) -> Result<(u32, u32), ManagerError> {
    let is_local = study.search.trials().get(trial as usize).is_some_and(|found| !found.remote);
    if is_local { Err(StudyError::NotRunning { trial, attempt }.into()) } else { Ok((trial, attempt)) }
}
