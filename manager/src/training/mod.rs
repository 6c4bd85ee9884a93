//! The training step of a job: from the log to a version directory that has not been looked at yet.
//!
//! The built-in trainer reads the exported observations and writes the version. Another engine is given a job file of its
//! own and fewer observations, writes what it has learnt into a folder, and the built-in trainer finishes that into a
//! version: `docs/rfcs/003-trainer-contract.md`. All of them run confined ([`confined`]).

pub mod confined;
mod output;
mod process;
mod settings;
mod spark;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use celeris_retrain::{Algorithm, External, Job as TrainJob, JobLimits, Step};

pub use self::settings::{AllowedTrainers, Engine, SparkSettings, TrainerLimits, TrainerSettings};

use self::process::Run;
use crate::error::ManagerError;
use crate::export::{Export, ExportPlan, export};
use crate::jobs::JobId;
use crate::manager::Manager;
use crate::pause::{self, Step as PausedAt};
use crate::records::ModelRecord;
use crate::retraining::{TrainFrom, TrainPlan};
use crate::tail::Tail;

/// Every job trains from the same seed: equal data give an equal version.
const TRAIN_SEED: u64 = 1;

/// Where an engine writes, and where the version is written, in the folder of a job.
const RAW: &str = "raw";
const VERSION: &str = "version";

impl Manager {
    /// Exports the log into the job's folder `dir` and has a version made of it; returns its directory.
    ///
    /// # Errors
    /// `TrainerSetting` where the node does not allow the engine, `Trainer` where the trainer does not do its work,
    /// or what the export can fail with.
    pub(crate) async fn make_version(
        self: &Arc<Self>,
        record: &ModelRecord,
        TrainPlan { engine, from }: TrainPlan,
        id: &JobId,
        dir: &Path,
    ) -> Result<Made, ManagerError> {
        let settings = &record.config.trainer;
        // What the node allows may have changed since the model was configured.
        settings.check(engine, &self.options.allowed)?;
        if engine != Engine::Als && record.config.dim < 2 {
            let problem = "needs a model of dim 2 or more: one factor, and the constant".to_owned();
            return Err(ManagerError::TrainerSetting { field: "engine", problem });
        }
        let limits = settings.limits.on_this_machine();
        let files = {
            let (manager, record, id, dir) = (Arc::clone(self), record.clone(), id.clone(), dir.to_owned());
            blocking(move || {
                let progress = |share| manager.jobs.progress(&id, "export", share);
                progress(0.0);
                let trained = manager.trained_up_to(&record.config.name, record.active)?;
                let plan = ExportPlan { record: &record, engine, trained };
                let export = export(&manager.storage, plan, &dir, progress)?;
                let active = || manager.version_dir(&record, record.active);
                let warm_start = (from == TrainFrom::Active).then(active);
                let files = write_jobs(&record, Training { engine, limits, warm_start, export }, &dir)?;
                pause::at(PausedAt::Training);
                Ok(files)
            })
            .await?
        };
        if let Some(job_file) = &files.engine {
            let (command, environment) = match engine {
                Engine::Spark => spark::command(&settings.spark, limits, dir, job_file)?,
                _ => (with_job(settings.command.clone(), job_file), Vec::new()),
            };
            self.run_trainer(
                id,
                Some(engine),
                Run {
                    supervisor: self.options.trainer.clone(),
                    command,
                    environment,
                    folder: dir.to_owned(),
                    output: dir.join(RAW),
                    limits,
                },
            )
            .await?;
        }
        let own = vec![text_of(&self.options.trainer)?, "train".to_owned()];
        let run = Run {
            supervisor: self.options.trainer.clone(),
            command: with_job(own, &files.own),
            environment: Vec::new(),
            folder: dir.to_owned(),
            output: dir.join(VERSION),
            limits,
        };
        self.run_trainer(id, None, run).await?;
        Ok(Made { version: dir.join(VERSION), tail: files.tail })
    }

    /// Runs a trainer and notes its progress, with the engine's name before the phase where it is not ours.
    async fn run_trainer(self: &Arc<Self>, id: &JobId, engine: Option<Engine>, run: Run) -> Result<(), ManagerError> {
        let (manager, job) = (Arc::clone(self), id.clone());
        let tell = move |Step { phase, fraction }: Step| match engine {
            Some(engine) => manager.jobs.progress(&job, &format!("{}: {}", engine.name(), phase.name()), fraction),
            None => manager.jobs.progress(&job, phase.name(), fraction),
        };
        if let Some(engine) = engine {
            self.jobs.progress(id, engine.name(), 0.0);
        }
        run.finish(tell).await
    }
}

fn with_job(mut command: Vec<String>, job_file: &Path) -> Vec<String> {
    command.extend(["--job".to_owned(), job_file.display().to_string()]);
    command
}

fn text_of(path: &Path) -> Result<String, ManagerError> {
    let problem = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "the path is not UTF-8; move the program");
    path.to_str().map(str::to_owned).ok_or_else(|| ManagerError::io(path)(problem()))
}

/// What a training has made.
pub(crate) struct Made {
    /// The version directory.
    pub(crate) version: PathBuf,
    /// What it was not trained on.
    pub(crate) tail: Tail,
}

/// The job files of a training.
struct JobFiles {
    /// For an engine that is not built in.
    engine: Option<PathBuf>,
    /// For the built-in trainer, which does all of the work or finishes that of an engine.
    own: PathBuf,
    tail: Tail,
}

/// What the job files say beside the model.
struct Training {
    engine: Engine,
    limits: JobLimits,
    warm_start: Option<PathBuf>,
    export: Export,
}

fn write_jobs(record: &ModelRecord, training: Training, dir: &Path) -> Result<JobFiles, ManagerError> {
    let Training { engine, limits, warm_start, export } = training;
    let own = TrainJob {
        model: record.config.name.clone(),
        version: record.newest.next(),
        dim: record.config.dim,
        seed: TRAIN_SEED,
        threads: None,
        algorithm: Algorithm::default(),
        loss: record.config.loss,
        observations: export.observations,
        pinned_items: export.pinned_items,
        item_attributes: export.item_attributes,
        parent: Some(record.active),
        warm_start,
        watermark: serde_json::to_value(&export.watermark).expect("a watermark is an array of numbers"),
        limits: Some(limits),
        output: VERSION.into(),
    };
    if engine == Engine::Als {
        return Ok(JobFiles { engine: None, own: write_job(&own, dir, "job.json")?, tail: export.tail });
    }
    let spark = (engine == Engine::Spark).then_some(&record.config.trainer.spark);
    let external = External {
        engine: engine.name().to_owned(),
        rank: record.config.dim - 1,
        iterations: spark.map(|spark| spark.iterations),
        regularization: spark.map(|spark| spark.regularization),
        alpha: spark.map(|spark| spark.alpha),
        raw: None,
        held_out: None,
    };
    let for_engine = TrainJob { algorithm: Algorithm::External(external.clone()), output: RAW.into(), ..own.clone() };
    let finishing = External { raw: Some(RAW.into()), held_out: export.held_out, ..external };
    let own = TrainJob { algorithm: Algorithm::External(finishing), ..own };
    let raw = dir.join(RAW);
    fs::create_dir_all(&raw).map_err(ManagerError::io(&raw))?;
    let engine = Some(write_job(&for_engine, dir, "job.json")?);
    Ok(JobFiles { engine, own: write_job(&own, dir, "finish.json")?, tail: export.tail })
}

fn write_job(job: &TrainJob, dir: &Path, name: &str) -> Result<PathBuf, ManagerError> {
    let file = dir.join(name);
    let text = serde_json::to_vec_pretty(job).expect("a job is plain data");
    fs::write(&file, text).map_err(ManagerError::io(&file))?;
    Ok(file)
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ManagerError> + Send + 'static,
) -> Result<T, ManagerError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        // A job that panics has failed like any other; the panic itself is in the node's log.
        Err(panic) => Err(ManagerError::Trainer { reason: panic.to_string() }),
    }
}
