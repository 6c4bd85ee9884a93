//! The train job: reads Parquet and writes a version directory, in its own process.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use celeris_features::cold_map::read_cold_map;
use celeris_features::user_map::read_user_map;
use celeris_features::{PartsFiles, Theta, TrainerPart, UserMap, VersionContents, write_trained_version};
use celeris_formats::attributes::read_attributes;
use celeris_formats::version_dir::{ENCODER_FILE, TRAINER_STATE_FILE, USER_ENCODER_FILE};
use celeris_formats::{Manifest, WarmStart, cold_map, read_manifest, trainer_items, user_map};
use celeris_model::{Loss, ModelName, VersionId};
use rayon::ThreadPoolBuilder;
use serde::{Deserialize, Serialize};

use crate::calibration::{Finished, finish};
use crate::cold_map::{ColdMapInput, FittedColdMap, fit_cold_map};
use crate::error::RetrainError;
use crate::input::{InputFile, TrainingInput, read_held_out, read_input};
use crate::parts::{JobPart, PartsData, PartsInput, add_parts, read_contexts, with_empty_columns};
use crate::popularity::{POPULARITY, train_popularity};
use crate::progress::{Phase, Progress, Step};
use crate::refresh::{Parent, refresh};
use crate::settings::TrainSettings;
use crate::state::TrainerState;
use crate::trained::Trained;
use crate::trainer::train;
use crate::user_map::DescribedUsers;

/// The training algorithm and its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum Algorithm {
    /// Alternating least squares, in the variant for the loss.
    Als {
        /// Maximum number of iterations.
        #[serde(default = "default_iterations")]
        iterations_max: usize,
        /// See [`TrainSettings::regularization`]; 1, or under implicit loss tuned, if absent.
        #[serde(default)]
        regularization: Option<f64>,
        /// See [`TrainSettings::prior_scale`]; tuned if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prior_scale: Option<f64>,
    },
    /// Offsets of items and nothing else, see [`crate::train_popularity`].
    Popularity,
    /// An external program: Spark, or any command.
    External(External),
}

/// Settings of an external trainer, and its output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct External {
    /// The engine's name, for the version's record.
    pub engine: String,
    /// Number of factors of an item; together with the constant they are `dim`.
    pub rank: usize,
    /// Number of iterations; chosen by the engine if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
    /// The engine's regularization; chosen by the engine if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regularization: Option<f64>,
    /// Confidence weight of an observation, under implicit feedback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// The folder with the engine's output. If present, the job makes a version from that output;
    /// if absent, the job is for the engine itself, and `output` is its output folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<PathBuf>,
    /// Observations held out from the engine: the scale of the prior and the noise variance are
    /// fitted on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<InputFile>,
}

/// Resource limits of a trainer. The supervisor enforces them; a trainer may read them to plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobLimits {
    /// Bytes of memory of all its processes together.
    pub memory_bytes: u64,
    /// Seconds from its start.
    pub seconds: u64,
    /// Seconds without output and without a change in its output folder.
    pub heartbeat_seconds: u64,
    /// Number of processes and threads together.
    pub processes: u64,
    /// Bytes that it may write into the folder of its job.
    pub disk_bytes: u64,
}

fn default_iterations() -> usize {
    TrainSettings::ITERATIONS_MAX
}

impl Default for Algorithm {
    fn default() -> Self {
        Self::Als { iterations_max: default_iterations(), regularization: None, prior_scale: None }
    }
}

/// The job file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub model: ModelName,
    /// The number of the new version, for the log; the directory does not depend on it.
    pub version: VersionId,
    /// Length of feature and weight vectors, including the constant.
    pub dim: usize,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Number of training threads; defaults to all cores but one, which is left to serving.
    #[serde(default)]
    pub threads: Option<NonZeroUsize>,
    #[serde(default)]
    pub algorithm: Algorithm,
    /// The loss; `squared` if absent.
    #[serde(default)]
    pub loss: Loss,
    /// The training data.
    pub observations: InputFile,
    /// Features of items supplied by callers, if any.
    #[serde(default)]
    pub pinned_items: Option<InputFile>,
    /// Attributes of items, if any; the version then has a map from attributes to features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_attributes: Option<InputFile>,
    /// Attributes of users, if any; the version then has a map from them to the prior means of users, if that helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_attributes: Option<InputFile>,
    /// Computed parts of the features, in their order; they follow the factors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<JobPart>,
    /// Folder of the objects that the parts name: a file for each, named by its checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<PathBuf>,
    /// The version that was active when the job began.
    #[serde(default)]
    pub parent: Option<VersionId>,
    /// Directory of the version of the same model for a warm start. Cold start if absent or
    /// unusable for this training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_start: Option<PathBuf>,
    /// End of the observations in the log, copied to the manifest.
    pub watermark: serde_json::Value,
    /// Resource limits, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<JobLimits>,
    /// The version directory to write, which must not contain a version yet. For an external
    /// engine, the folder for its output.
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

    /// The length of the features without those of computed parts: the factors and the constant.
    fn table_dim(&self) -> usize {
        self.dim.saturating_sub(self.parts.iter().map(|part| part.dim).sum())
    }

    fn settings(&self) -> TrainSettings {
        let (iterations_max, regularization, prior_scale) = match &self.algorithm {
            Algorithm::Als { iterations_max, regularization, prior_scale } => {
                (*iterations_max, *regularization, *prior_scale)
            }
            Algorithm::Popularity => (default_iterations(), None, None),
            Algorithm::External(external) => (default_iterations(), external.regularization, None),
        };
        let threads = self.threads.unwrap_or_else(spare_threads);
        TrainSettings {
            dim: self.table_dim(),
            seed: self.seed,
            threads,
            iterations_max,
            regularization,
            prior_scale,
            loss: self.loss,
        }
    }
}

/// All cores but one, which is left to serving; at least one.
#[must_use]
pub fn spare_threads() -> NonZeroUsize {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::new(cores - 1).unwrap_or(NonZeroUsize::MIN)
}

/// Runs the job file at `path` and returns the manifest of the version written.
///
/// Paths in the job are resolved against the folder of the job file.
///
/// # Errors
/// [`RetrainError`]; files written so far have no manifest and are not a version.
pub fn run_job(path: &Path, progress: &dyn Progress) -> Result<Manifest, RetrainError> {
    let started = Instant::now();
    let job = Job::read(path)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    progress.report(Step { phase: Phase::Reading, fraction: 0.0 });
    let observations = job.observations.verified(folder)?;
    let pinned_items = job.pinned_items.as_ref().map(|file| file.verified(folder)).transpose()?;
    let item_attributes = job.item_attributes.as_ref().map(|file| file.verified(folder)).transpose()?;
    let settings = job.settings();
    settings.check()?;
    let start = job.warm_start.as_ref().and_then(|dir| Start::open(&folder.join(dir), &job));
    let seen = start.as_ref().and_then(|start| start.seen.as_deref());
    let pool = ThreadPoolBuilder::new().num_threads(settings.threads.get()).build()?;
    let mut input = pool.install(|| read_input(&observations, pinned_items.as_deref(), settings.dim, seen))?;
    if job.loss == Loss::Squared {
        input.ratings = input.ratings.without_outliers();
    }
    progress.report(Step { phase: Phase::Reading, fraction: 1.0 });
    // Parts are fitted to the ratings that were read, in their order. Offsets are fitted without them.
    let fits_parts = !job.parts.is_empty() && job.algorithm != Algorithm::Popularity;
    let for_parts = if fits_parts { Some((input.ratings.clone(), read_contexts(&observations)?)) } else { None };
    let described = described_users(&job, folder, &input)?;
    let (observed, ridge) = (input.ratings.observed(), start.as_ref().and_then(Start::ridge));
    let start_ridge = start.as_ref().and_then(Start::ridge_of_users);
    let (mut finished, warm) = match &job.algorithm {
        Algorithm::Als { .. } => {
            let state = start.as_ref().and_then(|start| start.state(&input));
            let (trained, warm) = train_from(&job, &settings, &input, start.zip(state), progress)?;
            let items = input.items.into_ids();
            (Finished::of(items, trained), warm)
        }
        Algorithm::Popularity => {
            let trained = train_popularity(&input.ratings, &settings, &input.pinned)?;
            let trained = with_empty_columns(trained, job.dim - settings.dim)?;
            (Finished::of(input.items.into_ids(), trained), None)
        }
        Algorithm::External(external) => (finish_external(&job, external, folder, input, progress)?, None),
    };
    let attributes = match &item_attributes {
        Some(path) => read_attributes(path, &finished.items)?,
        None => Vec::new(),
    };
    // A warm training takes over the ridge of the earlier one.
    let ridge = ridge.filter(|_| warm.is_some());
    let has_attributes = item_attributes.is_some();
    let attributes = if has_attributes { attributes } else { vec![None; finished.items.len()] };
    let fit_map = |trained: &Trained| {
        let input = ColdMapInput { trained, observed: &observed, attributes: &attributes, ridge };
        has_attributes.then(|| fit_cold_map(&input)).flatten()
    };
    if let Some((ratings, contexts)) = &for_parts {
        progress.report(Step { phase: Phase::Parts, fraction: 0.0 });
        let data = PartsData { ratings, contexts, attributes: &attributes };
        finished = pool.install(|| with_parts(&job, folder, finished, data, fit_map))?;
    } else {
        finished.cold_map = pool.install(|| fit_map(&finished.trained));
    }
    if let Some(described) = &described {
        let ridge = start_ridge.filter(|_| warm.is_some());
        finished.user_map = pool.install(|| described.fit(&finished.trained, job.loss, ridge));
    }
    progress.report(Step { phase: Phase::Writing, fraction: 0.0 });
    let manifest = write_trained(&job, folder, finished, (warm, started))?;
    progress.report(Step { phase: Phase::Writing, fraction: 1.0 });
    Ok(manifest)
}

/// The users of a job with their attributes; `None` if there are none, or the version can have no map from them.
fn described_users(job: &Job, folder: &Path, input: &TrainingInput) -> Result<Option<DescribedUsers>, RetrainError> {
    let can_have_map = job.loss == Loss::Squared && job.algorithm != Algorithm::Popularity;
    let Some(file) = job.user_attributes.as_ref().filter(|_| can_have_map) else { return Ok(None) };
    Ok(Some(DescribedUsers::read(&file.verified(folder)?, input)?))
}

/// Adds the computed parts, which are fitted to these data.
fn with_parts(
    job: &Job,
    folder: &Path,
    finished: Finished,
    data: PartsData<'_>,
    fit_map: impl FnOnce(&Trained) -> Option<FittedColdMap>,
) -> Result<Finished, RetrainError> {
    let Finished { items, trained, mut figures, .. } = finished;
    let input = PartsInput {
        parts: &job.parts,
        objects: job.objects.as_ref().map(|objects| folder.join(objects)),
        data,
        items: &items,
        loss: job.loss,
        seed: job.seed,
    };
    let added = add_parts(&input, trained, fit_map)?;
    figures.extend(added.figures.map(|(name, figure)| (name.to_owned(), figure)));
    let (cold_map, parts) = (added.cold_map, Some(added.files));
    Ok(Finished { figures, cold_map, parts, ..Finished::of(items, added.trained) })
}

fn finish_external(
    job: &Job,
    external: &External,
    folder: &Path,
    input: TrainingInput,
    progress: &dyn Progress,
) -> Result<Finished, RetrainError> {
    let held_out = external.held_out.as_ref().map(|file| file.verified(folder)).transpose()?;
    let held_out = held_out.map(|path| read_held_out(&path)).transpose()?;
    let Some(raw) = &external.raw else {
        return Err(RetrainError::NotOurs { engine: external.engine.clone() });
    };
    finish(&folder.join(raw), input, held_out, &job.settings(), progress)
}

/// Warm starts from `start` if possible, otherwise starts cold.
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
                tracing::info!(%model, %version, ratings, from = %start.warm.from, "warm start");
                let trained = refresh(&input.ratings, settings, &input.pinned, parent, progress)?;
                return Ok((trained, Some(start.warm)));
            }
            Some(reason) => tracing::info!(%model, %version, reason, "no warm start from the version"),
        }
    }
    tracing::info!(%model, %version, ratings, "cold start");
    Ok((train(&input.ratings, settings, &input.pinned, progress)?, None))
}

/// The version of a warm start.
struct Start {
    dir: PathBuf,
    manifest: Manifest,
    /// The last sequence of every partition that its cold training has read, if recorded.
    seen: Option<Vec<u64>>,
    warm: WarmStart,
}

/// Maximum number of consecutive warm trainings before a cold one: only a cold training chooses the
/// settings again, and drops the dependence on what earlier trainings have read.
pub const REFRESHES_MAX: u32 = 100;

impl Start {
    /// Opens the version in `dir`; `None`, after logging the reason, if this job cannot start from
    /// it. An unusable version is no error, since a cold start still produces a new version.
    fn open(dir: &Path, job: &Job) -> Option<Self> {
        let usable = |manifest: Manifest| -> Result<Self, String> {
            let Some(from) = job.parent else { return Err("the job names no parent version".to_owned()) };
            if manifest.model != job.model {
                return Err(format!("it is a version of {}", manifest.model));
            }
            let refreshes = manifest.warm.as_ref().map_or(0, |warm| warm.refreshes) + 1;
            if refreshes > REFRESHES_MAX {
                return Err(format!("{REFRESHES_MAX} consecutive versions were warm started"));
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
        opened.inspect_err(|reason| tracing::info!(dir = %dir.display(), reason, "cold start")).ok()
    }

    /// The ridge of the version's map from attributes to features.
    fn ridge(&self) -> Option<f64> {
        let read = read_cold_map(&self.dir, &self.manifest);
        let read = read.inspect_err(|error| tracing::warn!(%error, "the ridge of the map is tuned again"));
        read.ok().flatten().map(|map| map.ridge())
    }

    /// The ridge of the version's map from attributes of users.
    fn ridge_of_users(&self) -> Option<f64> {
        let read = read_user_map(&self.dir, &self.manifest);
        let read = read.inspect_err(|error| tracing::warn!(%error, "the ridge of the map of users is tuned again"));
        read.ok().flatten().map(|map| map.ridge())
    }

    /// The version's trainer state, in the item numbering of the input.
    fn state(&self, input: &TrainingInput) -> Option<TrainerState> {
        let number = |item: &str| input.items.item(item);
        let read = TrainerState::read(&self.dir, &self.manifest, input.ratings.items(), number);
        let dir = self.dir.display();
        match read {
            Ok(None) => {
                tracing::info!(%dir, "the version has no trainer state");
                None
            }
            Ok(state) => state,
            Err(error) => {
                tracing::warn!(%dir, %error, "cold start");
                None
            }
        }
    }
}

fn algorithm_name(job: &Job) -> String {
    match &job.algorithm {
        Algorithm::Als { .. } => als_name(job.loss).to_owned(),
        Algorithm::Popularity => POPULARITY.to_owned(),
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

fn write_trained(
    job: &Job,
    folder: &Path,
    finished: Finished,
    (warm, started): (Option<WarmStart>, Instant),
) -> Result<Manifest, RetrainError> {
    let Finished { items, trained, figures, cold_map: fitted, user_map: of_users, parts } = finished;
    let mut metrics = figures;
    metrics.extend(trained.metrics.by_name());
    metrics.insert("train_seconds".to_owned(), started.elapsed().as_secs_f64());
    let mut part = TrainerPart { warm, ..TrainerPart::default() };
    if let Some(state) = &trained.state {
        let (text, tables) = state.files(&items);
        part.tables.push((trainer_items::FILE, tables));
        part.texts.push((TRAINER_STATE_FILE, text));
    }
    if let Some(fitted) = &fitted {
        let (text, tables) = fitted.map.files();
        part.tables.push((cold_map::FILE, tables));
        part.texts.push((ENCODER_FILE, text));
        metrics.extend(fitted.by_name());
    }
    if let Some(fitted) = &of_users {
        if let Some((text, tables)) = fitted.map.as_ref().map(UserMap::files) {
            part.tables.push((user_map::FILE, tables));
            part.texts.push((USER_ENCODER_FILE, text));
        }
        metrics.extend(fitted.by_name());
    }
    if let Some(PartsFiles { texts, tables }) = &parts {
        part.tables.extend(tables.iter().map(|(name, batches)| (*name, batches.clone())));
        part.texts.extend(texts.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())));
    }
    let theta = Theta::new(items, trained.item_offsets, trained.item_features, trained.cold_item)?
        .with_variances(trained.variances, trained.cold_variance)?;
    let contents = VersionContents {
        model: job.model.clone(),
        theta: &theta,
        choices: &trained.choices,
        prior: &trained.prior,
        label_range: Some(trained.label_range),
        algorithm: algorithm_name(job),
        parent: job.parent,
        watermark: job.watermark.clone(),
        created: SystemTime::now().into(),
        metrics,
    };
    Ok(write_trained_version(&folder.join(&job.output), &contents, part)?)
}
