//! The training step of a job: from the log to a version directory that is not yet validated.
//!
//! The built-in trainer reads the exported observations and writes the version. An external engine receives its own job
//! file and fewer observations, and writes its output into a folder, from which the built-in trainer makes a version:
//! `docs/rfcs/003-trainer-contract.md`. All trainers run confined (`celeris_sandbox`), with command lines from
//! the node's configuration (`commands.rs`).

mod commands;
mod process;
mod reading;
mod settings;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use celeris_retrain::{Algorithm, External, Job as TrainJob, JobLimits, Step};
use celeris_sandbox::{Limits, Run};

pub use self::commands::{CommandLine, Engine, TrainerName, Trainers};
pub use self::reading::ReadingTraining;
pub(crate) use self::reading::{ATTEMPTS_MAX, Attempt, Reading, ReadingJob};
pub use self::settings::{LowerLimits, TrainerLimits, TrainerSettings, TrainingOptions};

use self::commands::Places;
use self::process::result_of;
use crate::erasures::{ErasedSpan, began_with_erased};
use crate::error::ManagerError;
use crate::export::{Export, ExportPlan, export};
use crate::holdout::Holdout;
use crate::jobs::JobId;
use crate::manager::Manager;
use crate::pause::{self, Step as PausedAt};
use crate::records::ModelRecord;
use crate::retraining::{TrainFrom, TrainPlan};

/// Seed of every job: equal data gives an equal version.
const TRAIN_SEED: u64 = 1;

/// Folders of the engine's output and of the version within the folder of a job.
const RAW: &str = "raw";
const VERSION: &str = "version";

/// Spark script for command lines with its placeholder. It is written into the job's folder, so that only the binary
/// and Spark have to be installed.
const SPARK_SCRIPT: &str = include_str!("../../../retrain/engines/spark_als.py");
const SPARK_SCRIPT_FILE: &str = "spark_als.py";

impl Manager {
    /// Exports the log into the job's folder `dir` and trains a version on it. Returns the version's directory and
    /// removes everything else in the folder.
    ///
    /// # Errors
    /// `TrainerSetting` if the node does not have the trainer, `Trainer` if the trainer fails, `Outdated` if users were
    /// erased whose events it has read, or the errors of the export.
    pub(crate) async fn make_version(
        self: &Arc<Self>,
        record: &ModelRecord,
        plan: &TrainPlan,
        (id, attempt): (&JobId, u32),
        dir: &Path,
    ) -> Result<Made, ManagerError> {
        let (settings, node) = (&record.config.trainer, &self.options.training);
        // The node's configuration may have changed since the model was configured.
        let line = node.trainers.command_of(&plan.engine)?;
        if line.is_some() && record.config.dim < 2 {
            let problem = "needs a model of dim 2 or more: one factor, and the constant".to_owned();
            return Err(ManagerError::TrainerSetting { field: "engine", problem });
        }
        let limits = settings.limits.within(&node.limits, self.storage.dir());
        let attempt =
            Attempt { number: attempt, began: std::time::SystemTime::now().into(), seconds_max: limits.seconds };
        let (reading, files) = {
            let (manager, record, plan) = (Arc::clone(self), record.clone(), plan.clone());
            let (id, dir) = (id.clone(), dir.to_owned());
            blocking(move || manager.write_input(&record, (&plan, limits), (&id, attempt), &dir)).await?
        };
        let run = |command: Vec<String>, output: &str| {
            let reading = reading.clone();
            Run {
                supervisor: self.options.trainer.clone(),
                command,
                folder: dir.to_owned(),
                output: dir.join(output),
                limits,
                is_cancelled: Box::new(move || reading.is_outdated()),
            }
        };
        if let Some((line, job_file)) = line.zip(files.engine.as_ref()) {
            let spark_script = &dir.join(SPARK_SCRIPT_FILE);
            if line.wants_spark_script() {
                fs::write(spark_script, SPARK_SCRIPT).map_err(ManagerError::io(spark_script))?;
            }
            let command = line.filled(Places { job: job_file, folder: dir, spark_script })?;
            self.run_trainer(id, Some(&plan.engine), run(command, RAW)).await?;
        }
        let own = [text_of(&self.options.trainer)?, "train".to_owned(), "--job".to_owned(), text_of(&files.own)?];
        self.run_trainer(id, None, run(own.into(), VERSION)).await?;
        let dir = dir.to_owned();
        blocking(move || {
            remove_all_but(&dir, VERSION)?;
            reading.check()?;
            Ok(Made { version: dir.join(VERSION), holdout: files.holdout, reading })
        })
        .await
    }

    /// Writes the input of the trainers. Blocks the thread.
    fn write_input(
        self: &Arc<Self>,
        record: &ModelRecord,
        (plan, limits): (&TrainPlan, Limits),
        (id, attempt): (&JobId, Attempt),
        dir: &Path,
    ) -> Result<(Arc<ReadingJob>, JobFiles), ManagerError> {
        let config = &record.config;
        let trained = self.trained_up_to(&config.name, record.active)?;
        let mut holdout = None;
        let reading = ReadingJob::begin(self, (id, attempt), (&config.name, &config.stream), |log| {
            holdout.insert(Holdout::of(log, config.gate.holdout_share, &trained)).to.clone()
        });
        let holdout = holdout.expect("the log is asked for once");
        let progress = |share| {
            self.jobs.progress(id, "export", share);
            if reading.is_outdated() { Err(ManagerError::Outdated) } else { Ok(()) }
        };
        progress(0.0)?;
        let export = export(&self.storage, &ExportPlan { record, engine: &plan.engine, holdout, dir }, progress)?;
        let warm_start = self.warm_start(record, plan)?;
        let files = write_jobs(record, Training { engine: &plan.engine, limits, warm_start, export }, dir)?;
        pause::at(PausedAt::Training);
        Ok((reading, files))
    }

    /// The version directory for a warm start; `None` for a cold start. A training starts cold if the factors to start
    /// from were learnt from users who have been erased since.
    fn warm_start(&self, record: &ModelRecord, plan: &TrainPlan) -> Result<Option<PathBuf>, ManagerError> {
        let (model, active) = (&record.config.name, record.active);
        if plan.from == TrainFrom::Nothing || plan.engine != Engine::Als {
            return Ok(None);
        }
        let erasures = self.storage.erasures(&record.config.stream)?;
        let erasures: Vec<ErasedSpan> = erasures.iter().map(ErasedSpan::from).collect();
        let erased = began_with_erased(&self.version(model, active)?, &erasures);
        if erased > 0 {
            tracing::info!(%model, version = %active, erased, "users were erased since: training starts cold");
            return Ok(None);
        }
        Ok(Some(self.version_dir(record, active)))
    }

    /// Runs a trainer and records its progress, with the engine's name before the phase if it is external.
    async fn run_trainer(self: &Arc<Self>, id: &JobId, engine: Option<&Engine>, run: Run) -> Result<(), ManagerError> {
        let (manager, job, engine) = (Arc::clone(self), id.clone(), engine.cloned());
        if let Some(engine) = &engine {
            self.jobs.progress(id, engine.name(), 0.0);
        }
        // A line that is not progress is kept as output.
        let report = move |line: &[u8]| {
            let Ok(Step { phase, fraction }) = serde_json::from_slice(line) else { return false };
            let fraction = fraction.clamp(0.0, 1.0);
            match &engine {
                Some(engine) => manager.jobs.progress(&job, &format!("{engine}: {}", phase.name()), fraction),
                None => manager.jobs.progress(&job, phase.name(), fraction),
            }
            true
        };
        let limits = run.limits;
        result_of(&run.finish(report).await?, &limits)
    }
}

fn text_of(path: &Path) -> Result<String, ManagerError> {
    let problem =
        || std::io::Error::new(std::io::ErrorKind::InvalidInput, "the path is not UTF-8; choose another folder");
    path.to_str().map(str::to_owned).ok_or_else(|| ManagerError::io(path)(problem()))
}

/// Removes the contents of a folder except one entry.
fn remove_all_but(dir: &Path, kept: &str) -> Result<(), ManagerError> {
    for entry in fs::read_dir(dir).map_err(ManagerError::io(dir))? {
        let entry = entry.map_err(ManagerError::io(dir))?;
        if entry.file_name() == kept {
            continue;
        }
        let (path, is_dir) = (entry.path(), entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(ManagerError::io(path))?;
    }
    Ok(())
}

/// Result of a training.
pub(crate) struct Made {
    pub(crate) version: PathBuf,
    /// The records that it was not trained on.
    pub(crate) holdout: Holdout,
    /// The registration of the training's read position.
    pub(crate) reading: Arc<ReadingJob>,
}

/// The job files of a training.
struct JobFiles {
    /// Of an external engine.
    engine: Option<PathBuf>,
    /// Of the built-in trainer, which does all the work or finishes that of an engine.
    own: PathBuf,
    holdout: Holdout,
}

/// Contents of the job files apart from the model.
struct Training<'a> {
    engine: &'a Engine,
    limits: Limits,
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
        limits: Some(job_limits(limits)),
        output: VERSION.into(),
    };
    if *engine == Engine::Als {
        return Ok(JobFiles { engine: None, own: write_job(&own, dir, "job.json")?, holdout: export.holdout });
    }
    let settings = &record.config.trainer;
    let external = External {
        engine: engine.name().to_owned(),
        rank: record.config.dim - 1,
        iterations: settings.iterations,
        regularization: settings.regularization,
        alpha: settings.alpha,
        raw: None,
        held_out: None,
    };
    let for_engine = TrainJob { algorithm: Algorithm::External(external.clone()), output: RAW.into(), ..own.clone() };
    let finishing = External { raw: Some(RAW.into()), held_out: export.held_out, ..external };
    let own = TrainJob { algorithm: Algorithm::External(finishing), ..own };
    let raw = dir.join(RAW);
    fs::create_dir_all(&raw).map_err(ManagerError::io(&raw))?;
    let engine = Some(write_job(&for_engine, dir, "job.json")?);
    Ok(JobFiles { engine, own: write_job(&own, dir, "finish.json")?, holdout: export.holdout })
}

/// The limits as the job file contains them.
fn job_limits(limits: Limits) -> JobLimits {
    let Limits { memory_bytes, seconds, heartbeat_seconds, processes, disk_bytes } = limits;
    JobLimits { memory_bytes, seconds, heartbeat_seconds, processes, disk_bytes }
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
        // A panic fails the job; the panic message is in the node's log.
        Err(panic) => Err(ManagerError::Trainer { reason: panic.to_string() }),
    }
}
