//! The one error type of this crate.

use std::path::PathBuf;

use celeris_bandits::BanditError;
use celeris_features::FeaturesError;
use celeris_model::{ModelError, ModelName, VersionId};
use celeris_predictor::PredictorError;
use celeris_retrain::RetrainError;
use celeris_storage::StorageError;
use thiserror::Error;

use crate::jobs::JobId;

/// Why the registry was not changed, or a job did not succeed. The serving version is unchanged on every error.
#[derive(Debug, Error)]
pub enum ManagerError {
    /// No model goes by that name.
    #[error("no model is named {model}; GET /v1/models lists them")]
    UnknownModel {
        /// The name.
        model: ModelName,
    },
    /// The name is taken.
    #[error("a model named {model} exists already; delete it first, or choose another name")]
    ModelExists {
        /// The name.
        model: ModelName,
    },
    /// There are as many models as one node takes.
    #[error("this node serves {max} models already; delete one first")]
    TooManyModels {
        /// The limit.
        max: usize,
    },
    /// The dimension is out of range.
    #[error("dim must be from {min} to {max}, got {received}")]
    Dim {
        /// The smallest.
        min: usize,
        /// The largest.
        max: usize,
        /// As received.
        received: usize,
    },
    /// A setting is out of its range.
    #[error("{setting}: must be {range}, got {received}")]
    Setting {
        /// Its path among the model's settings.
        setting: &'static str,
        /// What it may be.
        range: &'static str,
        /// As received.
        received: f64,
    },
    /// One comparison of versions at a time.
    #[error("two versions are being compared on this node already; ask again when it is done")]
    Comparing,
    /// One evaluation of a policy at a time.
    #[error("a policy is being judged on this node already; ask again when it is done")]
    EvaluatingPolicy,
    /// The model has no such version.
    #[error("model {model} has no version {version}; GET /v1/models/{model}/versions lists them")]
    UnknownVersion {
        /// The model.
        model: ModelName,
        /// The version.
        version: VersionId,
    },
    /// There is no version to go back to.
    #[error("model {model} has served no other version before version {version}")]
    NothingToRollBackTo {
        /// The model.
        model: ModelName,
        /// The active version.
        version: VersionId,
    },
    /// No job goes by that id.
    #[error("no job is named {job}")]
    UnknownJob {
        /// The id.
        job: String,
    },
    /// The model is being retrained already.
    #[error("model {model} is being retrained already by {job}; wait for it, GET /v1/jobs/{job}")]
    JobRunning {
        /// The model.
        model: ModelName,
        /// The job.
        job: JobId,
    },
    /// What is asked for belongs to models, not to selections among them.
    #[error("{model} selects among {arms} and has no versions of its own; ask one of these")]
    IsSelection {
        /// The selection.
        model: ModelName,
        /// Its arms, in words.
        arms: String,
    },
    /// The model answers for a selection.
    #[error("model {model} is an arm of selection {selection}; delete the selection first")]
    IsArm {
        /// The model.
        model: ModelName,
        /// The selection.
        selection: ModelName,
    },
    /// A setting of a selection is not one that can be used.
    #[error("{field} {problem}")]
    SelectionSetting {
        /// The setting's name.
        field: &'static str,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// A parameter of a strategy is out of its range.
    #[error("{error}")]
    Bandit {
        /// Which and how.
        error: BanditError,
    },
    /// The trainer did not do its work.
    #[error("the trainer made no version: {reason}")]
    Trainer {
        /// What it said.
        reason: String,
    },
    /// Users were erased whose observations a training has read; it begins again without them.
    #[error("users were erased whose observations the training had read")]
    Outdated,
    /// A setting of the trainer is not one that can be used here.
    #[error("{field} {problem}")]
    TrainerSetting {
        /// The setting's name.
        field: &'static str,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// An export would mix with what is there.
    #[error("{} is not empty; name a folder that is, or that is not there yet", path.display())]
    ExportFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A version directory cannot be registered.
    #[error("path {}: {problem}", path.display())]
    Import {
        /// As the caller named it.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// The trainer wrote a version for another model or dimension.
    #[error("the trainer wrote a version of {what} {found}, expected {expected}")]
    WrongVersion {
        /// What differs.
        what: &'static str,
        /// As asked for.
        expected: String,
        /// As written.
        found: String,
    },
    /// There is nothing to learn from.
    #[error("stream {stream} holds no observations yet; send some to POST /v1/models/{{model}}/observe first")]
    NoObservations {
        /// The stream.
        stream: celeris_model::StreamName,
    },
    /// The file system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// The disk is nearly full, and what is left is the log's.
    #[error("{free} bytes are free, and sealing leaves the last {kept} to the log; make room for it to go on")]
    NoRoomToSeal {
        /// Bytes free.
        free: u64,
        /// Bytes that sealing does not touch.
        kept: u64,
    },
    /// A version directory is not sound.
    #[error(transparent)]
    Features(#[from] FeaturesError),
    /// Training data could not be written.
    #[error(transparent)]
    Retrain(#[from] RetrainError),
    /// A number or shape is wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The predictor refused.
    #[error(transparent)]
    Predictor(#[from] PredictorError),
    /// The store refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl ManagerError {
    /// Adapts an I/O error for `map_err`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
