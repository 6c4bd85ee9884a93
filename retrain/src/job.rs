//! The train job: Parquet in, a version directory out, in a process of its own.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use celeris_features::{
    Manifest, Theta, TrainerPart, UserWeights, VersionContents, WarmStart, read_manifest, write_trained_version,
};
use celeris_model::{Loss, ModelName, VersionId};
use rayon::ThreadPoolBuilder;
use serde::{Deserialize, Serialize};

use crate::error::RetrainError;
use crate::input::{InputFile, TrainingInput, read_input};
use crate::progress::{Phase, Progress, Step};
use crate::refresh::{Parent, refresh};
use crate::state::{ITEMS_FILE, STATE_FILE, TrainerState};
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
    /// The directory of the version that training goes on from, of the same model: a refresh. Where it is missing, or is
    /// of no use for this training, training begins from nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_start: Option<PathBuf>,
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
    let start = job.warm_start.as_ref().and_then(|dir| Start::open(&folder.join(dir), &job));
    let seen = start.as_ref().and_then(|start| start.seen.as_deref());
    let pool = ThreadPoolBuilder::new().num_threads(settings.threads.get()).build()?;
    let input = pool.install(|| read_input(&observations, pinned_items.as_deref(), job.dim, seen))?;
    let state = start.as_ref().and_then(|start| start.state(&input));
    progress.report(Step { phase: Phase::Reading, fraction: 1.0 });
    let (trained, warm) = train_from(&job, &settings, &input, start.zip(state), progress)?;
    progress.report(Step { phase: Phase::Writing, fraction: 0.0 });
    let manifest = write_trained(&job, folder, input, trained, (warm, started))?;
    progress.report(Step { phase: Phase::Writing, fraction: 1.0 });
    Ok(manifest)
}

/// Goes on from `start` where that is sound, and trains from nothing elsewhere.
fn train_from(
    job: &Job,
    settings: &TrainSettings,
    input: &TrainingInput,
    start: Option<(Start, TrainerState)>,
    progress: &dyn Progress,
) -> Result<(Trained, Option<WarmStart>), RetrainError> {
    let (model, version, ratings) = (&job.model, job.version, input.ratings.list().len());
    if let Some((start, state)) = start {
        let parent = Parent { state: &state, fresh: input.fresh.as_deref() };
        match parent.objection(&input.ratings, settings) {
            None => {
                tracing::info!(%model, %version, ratings, from = %start.warm.from, "training on from a version");
                let trained = refresh(&input.ratings, settings, &input.pinned, parent, progress)?;
                return Ok((trained, Some(start.warm)));
            }
            Some(reason) => tracing::info!(%model, %version, reason, "the version cannot be gone on from"),
        }
    }
    tracing::info!(%model, %version, ratings, "training from nothing");
    Ok((train(&input.ratings, settings, &input.pinned, progress)?, None))
}

/// The version that a training goes on from.
struct Start {
    dir: PathBuf,
    manifest: Manifest,
    /// The last sequence of every partition that the training from nothing has read whose factors it holds, where it says
    /// so.
    seen: Option<Vec<u64>>,
    warm: WarmStart,
}

/// How many versions in a row go on from one another before one is trained from nothing: settings are chosen anew only
/// there, and what the training before has read is forgotten only there.
pub const REFRESHES_MAX: u32 = 100;

impl Start {
    /// The version in `dir`; `None`, saying why, where there is none that this job can go on from. A start that cannot be
    /// used costs time, and is no reason to go without a new version.
    fn open(dir: &Path, job: &Job) -> Option<Self> {
        let usable = |manifest: Manifest| -> Result<Self, String> {
            let Some(from) = job.parent else { return Err("the job does not say which version it is".to_owned()) };
            if manifest.model != job.model {
                return Err(format!("it is a version of {}", manifest.model));
            }
            let refreshes = manifest.warm.as_ref().map_or(0, |warm| warm.refreshes) + 1;
            if refreshes > REFRESHES_MAX {
                return Err(format!("{REFRESHES_MAX} versions in a row have gone on from one another"));
            }
            let cold_watermark = match &manifest.warm {
                Some(warm) => warm.cold_watermark.clone(),
                None => manifest.watermark.clone(),
            };
            let seen = serde_json::from_value(cold_watermark.clone()).ok();
            let warm = WarmStart { from, cold_watermark, refreshes };
            Ok(Self { dir: dir.to_owned(), manifest, seen, warm })
        };
        let opened = read_manifest(dir).map_err(|error| error.to_string()).and_then(usable);
        opened.inspect_err(|reason| tracing::info!(dir = %dir.display(), reason, "training begins from nothing")).ok()
    }

    /// What its trainer left, by the numbers of the input.
    fn state(&self, input: &TrainingInput) -> Option<TrainerState> {
        let number = |item: &str| input.items.item(item);
        let read = TrainerState::read(&self.dir, &self.manifest, input.ratings.items(), number);
        let dir = self.dir.display();
        match read {
            Ok(None) => {
                tracing::info!(%dir, "the version's trainer left nothing to go on from");
                None
            }
            Ok(state) => state,
            Err(error) => {
                tracing::warn!(%dir, %error, "training begins from nothing");
                None
            }
        }
    }
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
    (warm, started): (Option<WarmStart>, Instant),
) -> Result<Manifest, RetrainError> {
    let mut metrics = trained.metrics.by_name();
    metrics.insert("train_seconds".to_owned(), started.elapsed().as_secs_f64());
    let (state, items) = trained.state.files(input.item_ids());
    let part = TrainerPart { warm, tables: vec![(ITEMS_FILE, items)], texts: vec![(STATE_FILE, state)] };
    let theta = Theta::new(input.items.into_ids(), trained.item_offsets, trained.item_features, trained.cold_item)?;
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
    Ok(write_trained_version(&folder.join(&job.output), &contents, part)?)
}
