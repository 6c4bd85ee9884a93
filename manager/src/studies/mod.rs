//! Studies: the node searches for the settings of a model.
//!
//! A study ([`celeris_study::Study`]) proposes settings. For each proposal (`trial.rs`) the model is
//! trained with them in a confined process, as by any retrain job, and the posteriors that its
//! version would serve are evaluated on held-out records: all trials read the same part of the log
//! and leave out the same records. Nothing is registered. If the study has found settings with a
//! lower loss than the present ones, they can be applied: the model gets them, and the version that
//! is trained with them passes gate and guard as any other.
//!
//! The state of a study is a document of the registry, written at each message. A study of a node
//! that was killed goes on after the next start: running trials are abandoned then, and asked for
//! again with the same settings.
//!
//! Trials can run on other machines too: `remote.rs` takes the messages of workers there, `data.rs` is what they
//! are given, and [`TrialWorker`] is their side. What is trained there is not kept; its loss is.

mod data;
mod parameters;
mod record;
mod remote;
mod running;
mod trial;
mod worker;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use celeris_model::{ModelName, Timestamp};
use celeris_storage::{RegistryBatch, RegistryKey, Storage, StorageError, Watermark};
use celeris_study::settings::lease_seconds_default;
use celeris_study::{Collaborative, Sampler, Settings, Space, Study};
use parking_lot::Mutex;

pub use self::data::TrialData;
pub use self::parameters::SEARCHABLE;
pub use self::record::{Applied, StudyRecord};
pub use self::remote::{OfTrial, OutgoingData, RemoteAsked};
pub use self::worker::{RemoteTrial, TrialWorker};

use self::running::now;
use crate::error::ManagerError;
use crate::leadership::Term;
use crate::metric::Metric;
use crate::promotion::Holdout;
use crate::registry::{Actor, Event, EventKind, ModelRecord, Registry};
use crate::settings::{Engine, ModelConfig, ScheduledStudy, Then};
use crate::study_id::StudyId;
use crate::training::Training;

/// Number of studies kept in the registry.
pub const STUDIES_MAX: usize = 100;

/// File of the losses of trial 0 in the folder of a study.
const BASELINE: &str = "baseline.json";

/// Number of studies that run at a time on a node.
const RUNNING_MAX: usize = 4;

/// A study to start.
#[derive(Debug, Clone, PartialEq)]
pub struct NewStudy {
    pub space: Space,
    /// Number of trials besides that of the present settings.
    pub trials: u32,
    /// Seconds after which no trial begins.
    pub seconds: Option<u64>,
    /// Number of trials at a time of this node.
    pub workers: u32,
    /// Number of trials at a time of workers on other machines.
    pub remote_workers: u32,
    /// Seconds without a message after which a trial of such a worker is lost.
    pub lease_seconds: u32,
    pub sampler: Sampler,
    /// How trials continue from the best one so far; `None` if all start from nothing.
    pub collaborative: Option<Collaborative>,
    /// Complete trials in a row without a lower loss after which the study ends.
    pub patience: Option<u32>,
    /// What follows if better settings were found.
    pub then: Option<Then>,
    pub seed: u64,
    /// Reason, for the record.
    pub why: String,
}

impl NewStudy {
    /// The study that a model starts by itself, with a seed.
    pub(crate) fn scheduled(scheduled: &ScheduledStudy, seed: u64) -> Self {
        let ScheduledStudy {
            every: _,
            space,
            trials,
            seconds,
            workers,
            remote_workers,
            sampler,
            collaborative,
            patience,
            then,
        } = scheduled.clone();
        Self {
            space,
            trials,
            seconds,
            workers,
            remote_workers,
            lease_seconds: lease_seconds_default(),
            sampler,
            collaborative: collaborative.then(Collaborative::default),
            patience,
            then,
            seed,
            why: String::new(),
        }
    }
}

/// Studies of a node.
pub struct Studies {
    storage: Storage,
    registry: Arc<Registry>,
    training: Arc<Training>,
    /// Held while the document of a study is read, changed and written.
    changing: Mutex<()>,
    /// Studies that are not closed, with the flag that stops their trials.
    open: Mutex<HashMap<StudyId, Arc<AtomicBool>>>,
    /// Whether users may have been erased whose events running trials read.
    has_erased: AtomicBool,
}

impl Studies {
    pub(crate) fn new(storage: Storage, registry: Arc<Registry>, training: Arc<Training>) -> Arc<Self> {
        Arc::new(Self {
            storage,
            registry,
            training,
            changing: Mutex::default(),
            open: Mutex::default(),
            has_erased: AtomicBool::new(true),
        })
    }

    /// Starts a study on request, or by a trigger, whose event is recorded with the start. Its trials run on the
    /// current tokio runtime.
    ///
    /// # Errors
    /// `Study` with the field, `StudyRunning` or `TooManyStudies`, `NoObservations`, `TrainerSetting`,
    /// or `Storage`, with `NotOwner` unless this node leads.
    pub fn start(
        self: &Arc<Self>,
        model: &ModelName,
        new: NewStudy,
        trigger: Option<Event>,
    ) -> Result<StudyRecord, ManagerError> {
        let term = self.registry.term()?;
        let record = self.registry.model(model)?;
        let config = &record.config;
        let now = Timestamp::from(SystemTime::now());
        let search = Study::new(self.checked_settings(config, &new)?, now.0)?;
        let log = self.storage.log().watermark(&config.stream);
        if log.records() == 0 {
            return Err(ManagerError::NoObservations { stream: config.stream.clone() });
        }
        let Holdout { from, to } = Holdout::of(log, config.gate.holdout_share, &Watermark::start());
        let study = StudyRecord {
            study: StudyId::new(),
            model: config.name.clone(),
            model_id: record.id,
            stream: config.stream.clone(),
            engine: config.trainer.engine.clone(),
            why: new.why,
            then: new.then,
            metric: Metric::of_replay(config.loss),
            present: parameters::present(config, &new.space),
            holdout_from: from,
            watermark: to,
            erased_users: 0,
            search,
            error: None,
            applied: None,
            created: now,
            finished: None,
            closed: false,
        };
        self.register(&record, &study, (trigger, &term))?;
        self.advance_soon();
        Ok(study)
    }

    /// Checks that a model can have the study that it starts by itself.
    ///
    /// # Errors
    /// As [`Studies::start`]; the field is that of the study.
    pub(crate) fn check_scheduled(&self, config: &ModelConfig) -> Result<(), ManagerError> {
        let Some(scheduled) = &config.triggers.study else { return Ok(()) };
        let settings = self.checked_settings(config, &NewStudy::scheduled(scheduled, 1))?;
        Ok(settings.check()?)
    }

    /// The settings of the search, if the model can have all values of the space.
    fn checked_settings(&self, config: &ModelConfig, new: &NewStudy) -> Result<Settings, ManagerError> {
        config.trainer.check(&config.trainer.engine, self.training.options())?;
        parameters::check(config, &new.space, |changed| {
            changed.trainer.check(&changed.trainer.engine, self.training.options())
        })?;
        if config.gate.holdout_share <= 0.0 {
            let problem = "is 0, so no records are held out that trials could be judged on; set gate.holdout_share";
            return Err(ManagerError::TrainerSetting { field: "gate.holdout_share", problem: problem.to_owned() });
        }
        settings_of(new, config)
    }

    /// Writes a new study, with the event of its start.
    fn register(
        &self,
        record: &ModelRecord,
        study: &StudyRecord,
        (trigger, term): (Option<Event>, &Term),
    ) -> Result<(), ManagerError> {
        let _changing = self.changing.lock();
        term.check()?;
        let all = self.all()?;
        let unfinished = || all.iter().filter(|study| study.finished.is_none());
        if let Some(running) = unfinished().find(|running| running.model_id == record.id) {
            return Err(ManagerError::StudyRunning { model: running.model.clone(), study: running.study.clone() });
        }
        if unfinished().count() >= RUNNING_MAX {
            return Err(ManagerError::TooManyStudies { max: RUNNING_MAX });
        }
        let settings = study.search.settings();
        let names: Vec<&str> = settings.space.names().collect();
        let by = if trigger.is_some() { Actor::Trigger } else { Actor::Operator };
        let started = Event::now(record.identity(), EventKind::StudyStarted, by, study.why.as_str())
            .with("study", study.study.as_str())
            .with("trials", settings.trials)
            .with("sampler", settings.sampler.name())
            .with("settings", names);
        let mut batch = RegistryBatch::new();
        batch.put(study_key(study.study.as_str())?, study)?;
        let excess = (all.len() + 1).saturating_sub(STUDIES_MAX);
        for old in all.iter().rev().filter(|study| study.closed).take(excess) {
            batch.delete(study_key(old.study.as_str())?);
        }
        let events: Vec<Event> = trigger.into_iter().chain([started]).collect();
        self.registry.audit().commit(batch, &events)?;
        self.open.lock().insert(study.study.clone(), Arc::default());
        Ok(())
    }

    /// All studies, the latest first. One that cannot be read is left out.
    fn all(&self) -> Result<Vec<StudyRecord>, ManagerError> {
        let mut studies = Vec::new();
        for (_, study) in self.storage.registry().list::<StudyRecord>(&studies_key()?)? {
            match study {
                Ok(study) => studies.push(study),
                Err(error) => tracing::error!(%error, "cannot read a study"),
            }
        }
        studies.sort_unstable_by(|a, b| b.study.cmp(&a.study));
        Ok(studies)
    }

    /// The studies of a model that are kept, the latest first.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn of_model(&self, model: &ModelName) -> Result<Vec<StudyRecord>, ManagerError> {
        let id = self.registry.model(model)?.id;
        let mut studies = self.all()?;
        studies.retain(|study| study.model_id == id);
        Ok(studies)
    }

    /// # Errors
    /// `UnknownStudy`, or `Storage` if its document is damaged.
    pub fn get(&self, study: &str) -> Result<StudyRecord, ManagerError> {
        let unknown = || ManagerError::UnknownStudy { study: study.to_owned() };
        let key = study_key(study).map_err(|_no_key| unknown())?;
        self.storage.registry().get::<StudyRecord>(&key)?.ok_or_else(unknown)
    }

    /// Ends a study. Its running trials are stopped. No effect if it has ended.
    ///
    /// # Errors
    /// `UnknownStudy`, or `Storage`, with `NotOwner` unless this node leads.
    pub fn stop(self: &Arc<Self>, study: &str) -> Result<StudyRecord, ManagerError> {
        let term = self.registry.term()?;
        let id = self.get(study)?.study;
        let (stopped, _) = self.update(&id, &term, |study| {
            // Nothing follows a study that was stopped.
            if study.finished.is_none() {
                study.search.stop();
                study.then = None;
                // Trials of this node end by the flag below.
                study.search.abandon_where(|trial| trial.remote, now());
            }
            Ok(())
        })?;
        if let Some(flag) = self.open.lock().get(&id) {
            flag.store(true, Ordering::Release);
        }
        self.advance_soon();
        Ok(stopped)
    }

    /// Fails if the model has an unfinished study.
    pub(crate) fn check_idle(&self, model: &ModelName) -> Result<(), ManagerError> {
        let running = self.all()?.into_iter().find(|study| study.model == *model && study.finished.is_none());
        match running {
            Some(running) => Err(ManagerError::StudyRunning { model: running.model, study: running.study }),
            None => Ok(()),
        }
    }

    /// Changes a study and writes it, unless the change fails or changes nothing. Returns the study
    /// and the change's result.
    fn update<T>(
        &self,
        id: &StudyId,
        term: &Term,
        change: impl FnOnce(&mut StudyRecord) -> Result<T, ManagerError>,
    ) -> Result<(StudyRecord, T), ManagerError> {
        let _changing = self.changing.lock();
        term.check()?;
        let mut study = self.get(id.as_str())?;
        let before = study.clone();
        let result = change(&mut study)?;
        if study != before {
            let mut batch = RegistryBatch::new();
            batch.put(study_key(id.as_str())?, &study)?;
            let ended = study.finished.is_some() && before.finished.is_none();
            let event = ended.then(|| study.ended_event());
            self.registry.audit().commit(batch, event.as_slice())?;
        }
        Ok((study, result))
    }

    /// Takes over the studies of the registry when this node begins to lead: their running trials
    /// have died with the node that led before. Those of other machines go on.
    ///
    /// # Errors
    /// `Storage` or `Io`.
    pub(crate) fn resume(&self, term: &Term) -> Result<(), ManagerError> {
        let open: Vec<StudyRecord> = self.all()?.into_iter().filter(|study| !study.closed).collect();
        let now = Timestamp::from(SystemTime::now());
        let mut flags = HashMap::new();
        for study in &open {
            let (study, ()) = self.update(&study.study, term, |study| {
                study.search.abandon_where(|trial| !trial.remote, now.0);
                study.search.renew_all(now.0);
                Ok(())
            })?;
            let flag = AtomicBool::new(study.search.ended().is_some());
            flags.insert(study.study.clone(), Arc::new(flag));
        }
        self.remove_files_except(&flags.keys().cloned().collect())?;
        *self.open.lock() = flags;
        self.has_erased.store(true, Ordering::Release);
        Ok(())
    }

    /// Notes that a user was erased: results that were trained on the user are dropped.
    pub(crate) fn note_erasure(&self) {
        self.has_erased.store(true, Ordering::Release);
    }

    /// Folder of the results of all studies.
    fn studies_dir(&self) -> PathBuf {
        self.storage.dir().join("studies")
    }

    /// Removes the folders of all studies but these.
    fn remove_files_except(&self, kept: &BTreeSet<StudyId>) -> Result<(), ManagerError> {
        let dir = self.studies_dir();
        let entries = match std::fs::read_dir(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(ManagerError::io(&dir))?,
        };
        for entry in entries {
            let path = entry.map_err(ManagerError::io(&dir))?.path();
            let is_kept = kept.iter().any(|study| path.file_name().is_some_and(|name| name == study.as_str()));
            if !is_kept {
                crate::directories::remove_dir(&path)?;
            }
        }
        Ok(())
    }
}

/// The settings of the search.
fn settings_of(new: &NewStudy, config: &ModelConfig) -> Result<Settings, ManagerError> {
    let engine = &config.trainer.engine;
    if new.remote_workers > 0 && config.features.computed().next().is_some() {
        let problem = format!("the computed parts of {} are on this node alone; leave it out", config.name);
        return Err(celeris_study::StudyError::Field { field: "remote_workers".to_owned(), problem }.into());
    }
    if new.collaborative.is_some() && *engine != Engine::Als {
        let problem = format!("the trainer {engine} cannot continue from an earlier training; leave it out");
        return Err(celeris_study::StudyError::Field { field: "collaborative".to_owned(), problem }.into());
    }
    let same = parameters::SAME.map(str::to_owned).to_vec();
    Ok(Settings {
        space: new.space.clone(),
        trials: new.trials,
        seconds: new.seconds,
        workers: new.workers,
        remote_workers: new.remote_workers,
        lease_seconds: new.lease_seconds,
        sampler: new.sampler,
        patience: new.patience,
        collaborative: new.collaborative.clone().map(|collaborative| Collaborative { same, ..collaborative }),
        seed: new.seed,
    })
}

fn studies_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["study"])
}

fn study_key(study: &str) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["study", study])
}
