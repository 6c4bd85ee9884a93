//! The train job: Parquet in, a version directory out, in a process of its own.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use celeris_features::{Manifest, Theta, UserWeights, VersionContents, write_version};
use celeris_model::{Loss, ModelName, VersionId};
use serde::{Deserialize, Serialize};

use crate::error::RetrainError;
use crate::finish::{Finished, finish};
use crate::input::{InputFile, TrainingInput, read_held_out, read_input};
use crate::progress::{Phase, Progress, Step};
use crate::trainer::{TrainSettings, train};

/// How much nicer than its parent the job is to other processes: serving goes first.
const NICENESS: i32 = 10;

/// Who trains, and what can be set of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum Algorithm {
    /// Alternating least squares, in the form that the loss asks for.
    Als {
        /// Sweeps at most.
        #[serde(default = "default_sweeps")]
        sweeps_max: usize,
        /// See [`TrainSettings::regularization`]; tuned where it is missing.
        #[serde(default)]
        regularization: Option<f64>,
    },
    /// A program of others: Spark, or any command.
    External(External),
}

/// What a trainer that is not built in is asked for, and where it leaves what it made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct External {
    /// The engine's name, for the version's record.
    pub engine: String,
    /// How many factors an item gets; the constant makes them `dim`.
    pub rank: usize,
    /// Sweeps; the engine chooses where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
    /// The engine's own; it chooses where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regularization: Option<f64>,
    /// How much an observation adds to the confidence, under implicit feedback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// The folder that the engine has written. Where it is named, the job is to finish that into a version; where it is
    /// missing, the job is the engine's own, and `output` is that folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<PathBuf>,
    /// Observations that the engine was not given: the prior's scale and the noise are fitted on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<InputFile>,
}

/// What a trainer may take. Whoever runs it sees to it; a trainer may read it to plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobLimits {
    /// Bytes of memory of all its processes together.
    pub memory_bytes: u64,
    /// Seconds from its start.
    pub seconds: u64,
    /// Seconds without a line of output or a change in its output folder.
    pub heartbeat_seconds: u64,
}

fn default_sweeps() -> usize {
    TrainSettings::SWEEPS_MAX
}

impl Default for Algorithm {
    fn default() -> Self {
        Self::Als { sweeps_max: default_sweeps(), regularization: None }
    }
}

/// The job file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The model to train.
    pub model: ModelName,
    /// The version it will be, for the log; the directory does not depend on it.
    pub version: VersionId,
    /// The length of features and weights, the constant included.
    pub dim: usize,
    /// Seeds everything random.
    pub seed: u64,
    /// Threads to train on; where missing, all cores but one, which is left to serving.
    #[serde(default)]
    pub threads: Option<NonZeroUsize>,
    /// How to train.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// What labels mean; `squared` where it is missing.
    #[serde(default)]
    pub loss: Loss,
    /// What to train on.
    pub observations: InputFile,
    /// Features that callers gave for items, if there are any.
    #[serde(default)]
    pub pinned_items: Option<InputFile>,
    /// The version that this one comes after.
    #[serde(default)]
    pub parent: Option<VersionId>,
    /// Up to where in the log the observations go, copied into the manifest.
    pub watermark: serde_json::Value,
    /// What the training may take, where it is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<JobLimits>,
    /// The version directory to write, which must not hold a version yet. For an engine that is not built in, the folder
    /// for its raw output.
    pub output: PathBuf,
}

impl Job {
    /// Reads a job file.
    ///
    /// # Errors
    /// `Io` or `JobFile`.
    pub fn read(path: &Path) -> Result<Self, RetrainError> {
        let text = fs::read(path).map_err(|source| RetrainError::Io { path: path.to_owned(), source })?;
        serde_json::from_slice(&text).map_err(|source| RetrainError::JobFile { path: path.to_owned(), source })
    }

    fn settings(&self) -> TrainSettings {
        let (sweeps_max, regularization) = match &self.algorithm {
            Algorithm::Als { sweeps_max, regularization } => (*sweeps_max, *regularization),
            Algorithm::External(external) => (default_sweeps(), external.regularization),
        };
        let threads = self.threads.unwrap_or_else(spare_threads);
        TrainSettings { dim: self.dim, seed: self.seed, threads, sweeps_max, regularization, loss: self.loss }
    }
}

/// All cores but one, which is left to serving, and at least one.
#[must_use]
pub fn spare_threads() -> NonZeroUsize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::new(cores - 1).unwrap_or(NonZeroUsize::MIN)
}

/// Runs the job file at `path` and returns the manifest of the version written.
///
/// Lowers the priority of the whole process. Paths in the job are taken from the folder of the job file.
///
/// # Errors
/// [`RetrainError`]; what was written by then has no manifest and is no version.
pub fn run_job(path: &Path, progress: &dyn Progress) -> Result<Manifest, RetrainError> {
    let started = Instant::now();
    be_nice();
    let job = Job::read(path)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    progress.report(Step { phase: Phase::Reading, fraction: 0.0 });
    let observations = job.observations.verified(folder)?;
    let pinned_items = job.pinned_items.as_ref().map(|file| file.verified(folder)).transpose()?;
    let settings = job.settings();
    settings.check()?;
    let input = read_input(&observations, pinned_items.as_deref(), job.dim)?;
    progress.report(Step { phase: Phase::Reading, fraction: 1.0 });
    tracing::info!(model = %job.model, version = %job.version, ratings = input.ratings.list().len(), "training");
    let trained = match &job.algorithm {
        Algorithm::Als { .. } => train(&input.ratings, &settings, &input.pinned, progress)?,
        Algorithm::External(external) => return finish_external(&job, external, folder, input, progress),
    };
    progress.report(Step { phase: Phase::Writing, fraction: 0.0 });
    let finished = Finished { users: input.users, items: input.items, trained, figures: BTreeMap::new() };
    let manifest = write_trained(&job, folder, finished, started)?;
    progress.report(Step { phase: Phase::Writing, fraction: 1.0 });
    Ok(manifest)
}

/// Lowers the priority of this process to that of a training, unless it is that low already.
pub fn be_nice() {
    let lowered = rustix::process::getpriority_process(None).and_then(|niceness| {
        if niceness < NICENESS { rustix::process::nice(NICENESS - niceness) } else { Ok(niceness) }
    });
    if let Err(problem) = lowered {
        tracing::warn!(%problem, "cannot lower the priority of the training; it competes with serving");
    }
}

fn finish_external(
    job: &Job,
    external: &External,
    folder: &Path,
    input: TrainingInput,
    progress: &dyn Progress,
) -> Result<Manifest, RetrainError> {
    let started = Instant::now();
    let held_out = external.held_out.as_ref().map(|file| file.verified(folder)).transpose()?;
    let held_out = held_out.map(|path| read_held_out(&path)).transpose()?;
    let Some(raw) = &external.raw else {
        return Err(RetrainError::NotOurs { engine: external.engine.clone() });
    };
    let finished = finish(&folder.join(raw), input, held_out, &job.settings(), progress)?;
    progress.report(Step { phase: Phase::Writing, fraction: 0.0 });
    let manifest = write_trained(job, folder, finished, started)?;
    progress.report(Step { phase: Phase::Writing, fraction: 1.0 });
    Ok(manifest)
}

fn algorithm_name(job: &Job) -> String {
    match &job.algorithm {
        Algorithm::Als { .. } => als_name(job.loss).to_owned(),
        Algorithm::External(external) => format!("external: {}", external.engine),
    }
}

fn als_name(loss: Loss) -> &'static str {
    match loss {
        Loss::Squared => "als",
        Loss::Logistic => "als on working responses",
        Loss::Implicit => "implicit als",
    }
}

fn write_trained(job: &Job, folder: &Path, finished: Finished, started: Instant) -> Result<Manifest, RetrainError> {
    let Finished { users, items, trained, figures } = finished;
    let mut metrics = figures;
    metrics.extend(trained.metrics.by_name());
    metrics.insert("train_seconds".to_owned(), started.elapsed().as_secs_f64());
    let theta = Theta::new(items, trained.item_offsets, trained.item_features, trained.cold_item)?;
    let user_weights = UserWeights { users, weights: trained.user_weights };
    let contents = VersionContents {
        model: job.model.clone(),
        theta: &theta,
        prior: &trained.prior,
        user_weights: Some(&user_weights),
        label_range: Some(trained.label_range),
        algorithm: algorithm_name(job),
        parent: job.parent,
        watermark: job.watermark.clone(),
        created: SystemTime::now().into(),
        metrics,
    };
    Ok(write_version(&folder.join(&job.output), &contents)?)
}
