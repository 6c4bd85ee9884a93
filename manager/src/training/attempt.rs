//! The training step of a job: from the log to a version directory that is not yet validated.
//!
//! The built-in trainer reads the exported observations and writes the version. An external engine
//! receives its own job file and fewer observations, and writes its output into a folder, from
//! which the built-in trainer makes a version: `docs/rfcs/003-trainer-contract.md`. All trainers
//! run confined (`celeris_sandbox`), with command lines from the node's configuration
//! ([`crate::settings::Trainers`]).

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use celeris_retrain::{Algorithm, External, Job as TrainJob, JobLimits, JobPart, Step};
use celeris_sandbox::{Limits, Run};
use celeris_storage::{SPANS, faults};
use tracing::Instrument;

use super::export::{Export, ExportPlan, export};
use super::process::result_of;
use super::reading::{Attempt, ReadingJob};
use super::{TrainPlan, Training, blocking};
use crate::error::ManagerError;
use crate::job_id::JobId;
use crate::leadership::Term;
use crate::promotion::Holdout;
use crate::registry::{ErasedSpan, ModelRecord, began_with_erased};
use crate::settings::{Engine, Places, TrainerSettings, text_of};

/// Seed of every job: equal data gives an equal version.
const TRAIN_SEED: u64 = 1;

/// Folders of the engine's output and of the version within the folder of a job.
const RAW: &str = "raw";
const VERSION: &str = "version";

/// Folder of the objects of computed parts within the folder of a job.
const OBJECTS: &str = "objects";

/// Spark script for command lines with its placeholder. It is written into the job's folder, so
/// that only the binary and Spark have to be installed.
const SPARK_SCRIPT: &str = include_str!("../../../retrain/engines/spark_als.py");
const SPARK_SCRIPT_FILE: &str = "spark_als.py";

impl Training {
    /// Exports the log into the job's folder `dir` and trains a version on it. Removes everything
    /// else in the folder.
    ///
    /// # Errors
    /// `TrainerSetting` if the node does not have the trainer, `Trainer` if the trainer fails,
    /// `Outdated` if users were erased whose events it has read or the term is over, or the errors of
    /// the export.
    pub(super) async fn train(
        self: &Arc<Self>,
        record: &ModelRecord,
        plan: &TrainPlan,
        Work { job: id, attempt: number, term, dir }: Work<'_>,
    ) -> Result<Candidate, ManagerError> {
        let (settings, node) = (&record.config.trainer, &self.options);
        // The node's configuration may have changed since the model was configured.
        let line = node.trainers.command_of(&plan.engine)?;
        if line.is_some() && record.config.table_dim() < 2 {
            let problem = "needs a model with one factor besides the constant and computed parts".to_owned();
            return Err(ManagerError::TrainerSetting { field: "engine", problem });
        }
        let limits = settings.limits.within(&node.limits, self.storage.dir());
        let attempt = Attempt { number, began: SystemTime::now().into(), seconds_max: limits.seconds };
        let (reading, files) = {
            let (training, record, plan) = (Arc::clone(self), record.clone(), plan.clone());
            let (id, dir, term) = (id.clone(), dir.to_owned(), term.clone());
            let exporting = tracing::info_span!(target: SPANS, "retrain.export", celeris.attempt = number);
            let write = move || training.write_input(&record, (&plan, limits), (&id, attempt, &term), &dir);
            blocking(write).instrument(exporting).await?
        };
        // Runs a trainer and records its progress, with the engine's name before the phase if it is
        // external.
        let run = async |engine: Option<Engine>, command: Vec<String>, output: &str| {
            let (training, job, reading, term) = (Arc::clone(self), id.clone(), reading.clone(), term.clone());
            let stop = plan.trial.as_ref().map(|trial| Arc::clone(&trial.stop));
            let is_stopped = move || stop.as_ref().is_some_and(|stop| stop.load(Ordering::Acquire));
            let run = Run {
                supervisor: self.trainer.clone(),
                command,
                folder: dir.to_owned(),
                output: dir.join(output),
                limits,
                is_cancelled: Box::new(move || term.is_over() || is_stopped() || reading.is_outdated()),
            };
            // A line that is not progress is kept as output.
            let report = move |line: &[u8]| {
                let Ok(Step { phase, fraction }) = serde_json::from_slice(line) else { return false };
                let fraction = fraction.clamp(0.0, 1.0);
                match &engine {
                    Some(engine) => training.jobs.progress(&job, &format!("{engine}: {}", phase.name()), fraction),
                    None => training.jobs.progress(&job, phase.name(), fraction),
                }
                true
            };
            let training = tracing::info_span!(target: SPANS, "retrain.train", celeris.output = output);
            result_of(&run.finish(report).instrument(training).await?, &limits)
        };
        if let Some((line, job_file)) = line.zip(files.engine.as_ref()) {
            let spark_script = &dir.join(SPARK_SCRIPT_FILE);
            if line.wants_spark_script() {
                fs::write(spark_script, SPARK_SCRIPT).map_err(ManagerError::io(spark_script))?;
            }
            let command = line.filled(Places { job: job_file, folder: dir, spark_script })?;
            self.jobs.progress(id, plan.engine.name(), 0.0);
            run(Some(plan.engine.clone()), command, RAW).await?;
        }
        let own = [text_of(&self.trainer)?, "train".to_owned(), "--job".to_owned(), text_of(&files.own)?];
        run(None, own.into(), VERSION).await?;
        let dir = dir.to_owned();
        blocking(move || {
            remove_all_but(&dir, VERSION)?;
            reading.check()?;
            Ok(Candidate { dir: dir.join(VERSION), holdout: files.holdout, reading })
        })
        .await
    }

    /// Writes the input of the trainers. Blocks the thread.
    fn write_input(
        &self,
        record: &ModelRecord,
        (plan, limits): (&TrainPlan, Limits),
        (id, attempt, term): (&JobId, Attempt, &Term),
        dir: &Path,
    ) -> Result<(Arc<ReadingJob>, JobFiles), ManagerError> {
        let config = &record.config;
        let trained = self.uses.registry.version(&config.name, record.active)?.trained_up_to();
        let mut holdout = None;
        // A few offsets are not evaluated: the next ones would be as good or bad.
        let share = if plan.engine == Engine::Popularity { 0.0 } else { config.gate.holdout_share };
        let reading = self.readings.begin((id, attempt), (&config.name, &config.stream), |log| {
            let of_trial = plan.trial.as_ref().map(|trial| trial.holdout.clone());
            holdout.insert(of_trial.unwrap_or_else(|| Holdout::of(log, share, &trained))).to.clone()
        });
        let holdout = holdout.expect("the log is asked for once");
        let progress = |share| {
            self.jobs.progress(id, "export", share);
            term.check()?;
            if reading.is_outdated() { Err(ManagerError::Outdated) } else { Ok(()) }
        };
        progress(0.0)?;
        let export = export(&self.storage, &ExportPlan { record, engine: &plan.engine, holdout, dir }, progress)?;
        let warm_start = self.warm_start(record, plan)?;
        let parts = self.write_parts(record, dir)?;
        let threads = plan.trial.as_ref().map(|trial| trial.threads);
        let input = Input { engine: &plan.engine, limits, threads, warm_start, export, parts };
        let files = write_jobs(record, input, dir)?;
        faults::reach("training");
        Ok((reading, files))
    }

    /// The computed parts of the model, whose objects are written into the folder of the job.
    fn write_parts(&self, record: &ModelRecord, dir: &Path) -> Result<Vec<JobPart>, ManagerError> {
        let folder = dir.join(OBJECTS);
        let computed = &record.config.features;
        if computed.computed().next().is_some() {
            fs::create_dir_all(&folder).map_err(ManagerError::io(&folder))?;
        }
        let part = |(part, pipeline, dim): (&str, &str, usize)| {
            let pipeline = self.uses.pipelines.export(pipeline, &folder)?;
            Ok(JobPart { part: part.to_owned(), dim, pipeline })
        };
        computed.computed().map(part).collect()
    }

    /// The version directory for a warm start; `None` for a cold start. A training starts cold if
    /// the factors to start from were learnt from users who have been erased since.
    fn warm_start(&self, record: &ModelRecord, plan: &TrainPlan) -> Result<Option<PathBuf>, ManagerError> {
        if let Some(trial) = &plan.trial {
            return Ok(trial.warm_start.as_ref().map(|dir| dir.join(VERSION)).filter(|version| version.is_dir()));
        }
        if !plan.starts_warm() || self.begins_with_erased(record, plan)? {
            return Ok(None);
        }
        Ok(Some(self.uses.registry.version_dir(record, record.active)))
    }

    /// Whether the factors that a warm start would continue from were learnt from users who have
    /// been erased since; false for a training that starts cold anyway.
    pub(super) fn begins_with_erased(&self, record: &ModelRecord, plan: &TrainPlan) -> Result<bool, ManagerError> {
        if !plan.starts_warm() {
            return Ok(false);
        }
        let erasures = self.storage.log().erasures(&record.config.stream)?;
        let erasures: Vec<ErasedSpan> = erasures.iter().map(ErasedSpan::from).collect();
        Ok(began_with_erased(&self.uses.registry.version(&record.config.name, record.active)?, &erasures) > 0)
    }
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

/// One attempt of a job.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub(super) job: &'a JobId,
    /// Its number, from 1.
    pub(super) attempt: u32,
    /// It is stopped once this is over.
    pub(super) term: &'a Term,
    /// The folder of the job.
    pub(super) dir: &'a Path,
}

/// Result of a training: a version directory that is not yet validated.
pub(super) struct Candidate {
    pub(super) dir: PathBuf,
    /// The records that it was not trained on.
    pub(super) holdout: Holdout,
    /// The registration of the training's read position.
    pub(super) reading: Arc<ReadingJob>,
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
struct Input<'a> {
    engine: &'a Engine,
    limits: Limits,
    /// Number of training threads; as many as are spare if absent.
    threads: Option<NonZeroUsize>,
    warm_start: Option<PathBuf>,
    export: Export,
    parts: Vec<JobPart>,
}

fn write_jobs(record: &ModelRecord, input: Input, dir: &Path) -> Result<JobFiles, ManagerError> {
    let Input { engine, limits, threads, warm_start, export, parts } = input;
    let uses_attributes = *engine != Engine::Popularity && record.config.trainer.attributes.unwrap_or(true);
    let own = TrainJob {
        model: record.config.name.clone(),
        version: record.newest.next(),
        dim: record.config.dim,
        seed: TRAIN_SEED,
        threads,
        algorithm: if *engine == Engine::Popularity { Algorithm::Popularity } else { als(&record.config.trainer) },
        loss: record.config.loss,
        observations: export.observations,
        pinned_items: export.pinned_items,
        item_attributes: export.item_attributes.filter(|_| uses_attributes),
        user_attributes: export.user_attributes.filter(|_| uses_attributes),
        objects: (!parts.is_empty()).then(|| OBJECTS.into()),
        parts,
        parent: Some(record.active),
        warm_start,
        watermark: serde_json::to_value(&export.watermark).expect("a watermark is an array of numbers"),
        limits: Some(job_limits(limits)),
        output: VERSION.into(),
    };
    if engine.is_built_in() {
        return Ok(JobFiles { engine: None, own: write_job(&own, dir, "job.json")?, holdout: export.holdout });
    }
    let settings = &record.config.trainer;
    let external = External {
        engine: engine.name().to_owned(),
        rank: record.config.table_dim() - 1,
        iterations: settings.iterations,
        regularization: settings.regularization,
        alpha: settings.alpha,
        raw: None,
        held_out: None,
    };
    // The engine trains the factors alone.
    let for_engine = TrainJob {
        dim: record.config.table_dim(),
        parts: Vec::new(),
        objects: None,
        algorithm: Algorithm::External(external.clone()),
        output: RAW.into(),
        ..own.clone()
    };
    let finishing = External { raw: Some(RAW.into()), held_out: export.held_out, ..external };
    let own = TrainJob { algorithm: Algorithm::External(finishing), ..own };
    let raw = dir.join(RAW);
    fs::create_dir_all(&raw).map_err(ManagerError::io(&raw))?;
    let engine = Some(write_job(&for_engine, dir, "job.json")?);
    Ok(JobFiles { engine, own: write_job(&own, dir, "finish.json")?, holdout: export.holdout })
}

/// The built-in trainer with the settings of the model, unless they belong to another trainer.
fn als(settings: &TrainerSettings) -> Algorithm {
    match (settings.engine == Engine::Als, Algorithm::default()) {
        (true, Algorithm::Als { iterations_max, .. }) => Algorithm::Als {
            iterations_max: settings.iterations.map_or(iterations_max, |iterations| iterations as usize),
            regularization: settings.regularization,
            prior_scale: settings.prior_scale,
        },
        (_, usual) => usual,
    }
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
