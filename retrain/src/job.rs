//! The train job: Parquet in, a version directory out, in a process of its own.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use celeris_features::{Manifest, Theta, UserWeights, VersionContents, write_version};
use celeris_model::{Loss, ModelName, VersionId};
use serde::{Deserialize, Serialize};

use crate::error::RetrainError;
use crate::input::{InputFile, TrainingInput, read_input};
use crate::progress::{Phase, Progress, Step};
use crate::trainer::{TrainSettings, Trained, train};

/// How much nicer than its parent the job is to other processes: serving goes first.
const NICENESS: i32 = 10;

/// The built-in trainer and what can be set of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
    /// The version directory to write, which must not hold a version yet.
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
        let Algorithm::Als { sweeps_max, regularization } = self.algorithm;
        let threads = self.threads.unwrap_or_else(spare_threads);
        TrainSettings { dim: self.dim, seed: self.seed, threads, sweeps_max, regularization, loss: self.loss }
    }
}

/// All cores but one, and at least one.
fn spare_threads() -> NonZeroUsize {
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
    if let Err(problem) = rustix::process::nice(NICENESS) {
        tracing::warn!(%problem, "cannot lower the priority of the train job; it competes with serving");
    }
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
    let trained = train(&input.ratings, &settings, &input.pinned, progress)?;
    progress.report(Step { phase: Phase::Writing, fraction: 0.0 });
    let manifest = write_trained(&job, folder, input, trained, started)?;
    progress.report(Step { phase: Phase::Writing, fraction: 1.0 });
    Ok(manifest)
}

fn algorithm_name(loss: Loss) -> &'static str {
    match loss {
        Loss::Squared => "als",
        Loss::Logistic => "als on working responses",
        Loss::Implicit => "implicit als",
    }
}

fn write_trained(
    job: &Job,
    folder: &Path,
    input: TrainingInput,
    trained: Trained,
    started: Instant,
) -> Result<Manifest, RetrainError> {
    let mut metrics = trained.metrics.by_name();
    metrics.insert("train_seconds".to_owned(), started.elapsed().as_secs_f64());
    let theta = Theta::new(input.items, trained.item_offsets, trained.item_features, trained.cold_item)?;
    let user_weights = UserWeights { users: input.users, weights: trained.user_weights };
    let contents = VersionContents {
        model: job.model.clone(),
        theta: &theta,
        prior: &trained.prior,
        user_weights: Some(&user_weights),
        label_range: Some(trained.label_range),
        algorithm: algorithm_name(job.loss).to_owned(),
        parent: job.parent,
        watermark: job.watermark.clone(),
        created: SystemTime::now().into(),
        metrics,
    };
    Ok(write_version(&folder.join(&job.output), &contents)?)
}
