//! Error type of this crate.

use std::path::PathBuf;

use celeris_bandits::BanditError;
use celeris_features::FeaturesError;
use celeris_formats::FormatError;
use celeris_model::{ModelError, ModelId, ModelName, VersionId};
use celeris_pipelines::{ObjectId, PipelineError};
use celeris_predictor::PredictorError;
use celeris_retrain::RetrainError;
use celeris_sandbox::SandboxError;
use celeris_storage::StorageError;
use celeris_study::StudyError;
use thiserror::Error;

use crate::job_id::JobId;
use crate::study_id::StudyId;

/// Error of a registry change or a job. The serving version is unchanged on every error.
#[derive(Debug, Error)]
pub enum ManagerError {
    #[error("no model is named {model}; `celeris models` or GET /v1/models lists them")]
    UnknownModel { model: ModelName },
    #[error("a model named {model} exists already; delete it first, or choose another name")]
    ModelExists { model: ModelName },
    /// A field of a key to make is invalid.
    #[error("{field}: {problem}")]
    ApiKey { field: &'static str, problem: String },
    /// Who changes keys has lost the right to.
    #[error("the key is not valid any more, or the node needs one by now")]
    NoRight,
    /// No key would be left that may make others.
    #[error(
        "there would be no key with the role admin that neither expires nor has a rate: make one first, by `celeris keys create \
         --role admin --name NAME`"
    )]
    NoAdminKey,
    #[error("there are {max} keys already")]
    TooManyApiKeys { max: usize },
    #[error("no key has the id {id}; `celeris keys list` or GET /v1/keys lists them")]
    UnknownApiKey { id: String },
    #[error("this node serves {max} models already; delete one first")]
    TooManyModels { max: usize },
    #[error("dim must be from {min} to {max}, got {received}")]
    Dim { min: usize, max: usize, received: usize },
    #[error("{setting}: must be {range}, got {received}")]
    Setting {
        /// Path within the model's settings.
        setting: &'static str,
        range: &'static str,
        received: f64,
    },
    /// Another comparison of versions is running; a node runs one at a time.
    #[error("two versions are being compared on this node already; ask again when it is done")]
    Comparing,
    /// Another policy evaluation is running; a node runs one at a time.
    #[error("a policy is being evaluated on this node already; try again when it is done")]
    EvaluatingPolicy,
    /// Rewards are being counted; a node counts for one request at a time.
    #[error("rewards are being counted on this node already; try again when it is done")]
    CountingRewards,
    #[error("model {model} has no version {version}; GET /v1/models/{model}/versions lists them")]
    UnknownVersion { model: ModelName, version: VersionId },
    /// There is no version to roll back to.
    #[error("model {model} has served no other version before version {version}")]
    NothingToRollBackTo {
        model: ModelName,
        /// The active version.
        version: VersionId,
    },
    #[error("no job is named {job}")]
    UnknownJob { job: String },
    /// A setting of a study is invalid, or a message of a worker does not fit its state.
    #[error("{error}")]
    Study { error: StudyError },
    #[error("no study is named {study}; `celeris study list MODEL` or GET /v1/models/{{model}}/studies lists them")]
    UnknownStudy { study: String },
    #[error(
        "study {study} of model {model} is running; wait for it, `celeris study watch {study}` or GET /v1/studies/{study}, or \
         end it by `celeris study stop {study}` or POST /v1/studies/{study}/stop"
    )]
    StudyRunning { model: ModelName, study: StudyId },
    #[error("{max} studies are running on this node already; wait for one to end, or stop one")]
    TooManyStudies { max: usize },
    /// A study has found nothing that could be applied.
    #[error("study {study} has found no settings with a lower loss than the present ones; the model keeps these")]
    StudyWithoutResult { study: String },
    /// Data of a study leave the node only for a trial.
    #[error("this worker has no trial of study {study}; ask for one by POST /v1/studies/{study}/ask")]
    StudyWithoutRemote { study: String },
    #[error("model {model} is being retrained already by {job}; wait for it, `celeris status` or GET /v1/jobs/{job}")]
    JobRunning { model: ModelName, job: JobId },
    /// The operation applies to models, not to selections of models.
    #[error("{model} selects among {arms} and has no versions of its own; ask one of these")]
    IsSelection {
        model: ModelName,
        /// Its arms, separated by commas.
        arms: String,
    },
    /// The model is an arm of a selection.
    #[error("model {model} is an arm of selection {selection}; delete the selection first")]
    IsArm { model: ModelName, selection: ModelName },
    /// A setting of a selection is invalid.
    #[error("{field} {problem}")]
    SelectionSetting {
        field: &'static str,
        /// What is wrong and how to fix it.
        problem: String,
    },
    /// A parameter of a bandit strategy is out of range.
    #[error("{error}")]
    Bandit { error: BanditError },
    /// The trainer failed.
    #[error("the trainer made no version: {reason}")]
    Trainer { reason: String },
    /// Users were erased whose observations the training had read; it starts again without them.
    #[error("users were erased whose observations the training had read")]
    Outdated,
    /// A setting of the trainer is invalid on this node.
    #[error("{field} {problem}")]
    TrainerSetting {
        field: &'static str,
        /// What is wrong and how to fix it.
        problem: String,
    },
    /// A version directory cannot be registered.
    #[error("path {}: {problem}", path.display())]
    Import {
        /// As given by the caller.
        path: PathBuf,
        /// What is wrong and how to fix it.
        problem: String,
    },
    /// The version was made on another node of the cluster, and is not here yet.
    #[error("version {version} of model {model} is being copied from another node; try again later")]
    NotFetched { model: ModelName, version: VersionId },
    /// A version of another node could not be fetched, or is not the one that the registry names.
    #[error("{file} of version {version} of model {model} was not fetched: {problem}")]
    Fetch { model: ModelName, version: VersionId, file: String, problem: String },
    /// A version that another node asks for, or a file of it, is not here.
    #[error("version {version} of the model with the id {model} has no file {file} on this node")]
    NoVersionFile { model: ModelId, version: VersionId, file: String },
    /// The trainer wrote a version for another model.
    #[error("the trainer wrote a version of {what} {found}, expected {expected}")]
    WrongVersion {
        /// The property that differs.
        what: &'static str,
        expected: String,
        found: String,
    },
    /// The stream has no observations to train on.
    #[error("stream {stream} holds no observations yet; send some to POST /v1/models/{{model}}/observe first")]
    NoObservations { stream: celeris_model::StreamName },
    /// The parts of a model's features do not fit.
    #[error("{field}: {problem}")]
    FeatureParts {
        /// The part.
        field: String,
        /// What is wrong and how to fix it.
        problem: String,
    },
    /// A pipeline computes features of models.
    #[error("pipeline {pipeline} computes features of {models}; {advice}")]
    PipelineInUse {
        pipeline: String,
        /// Their names, separated by commas.
        models: String,
        /// What to do.
        advice: &'static str,
    },
    #[error("no pipeline is named {pipeline}; GET /v1/pipelines lists them")]
    UnknownPipeline { pipeline: String },
    /// Another large request to run a pipeline is running; a node runs one at a time.
    #[error(
        "a pipeline is being run on many records on this node already; try again when it is done, or with at most 16"
    )]
    RunningPipeline,
    #[error("{max} pipelines are declared already; delete one first")]
    TooManyPipelines { max: usize },
    #[error("there is no object {id}; send it by PUT /v1/objects/{id}")]
    UnknownObject { id: ObjectId },
    #[error(
        "the objects of all pipelines take {bytes} bytes already, and at most {max} with this one; delete a pipeline first"
    )]
    TooManyObjects { bytes: u64, max: u64 },
    #[error("the disk has {free} bytes left, which are kept for the log; free some, then send the object again")]
    ObjectsFull { free: u64 },
    /// A pipeline or an object is invalid, or cannot be run.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// A file system operation failed.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// A version directory is damaged or cannot be written.
    #[error(transparent)]
    Features(#[from] FeaturesError),
    /// A columnar file or a manifest cannot be read or written.
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Retrain(#[from] RetrainError),
    /// A trainer cannot be started or supervised.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// A number or shape is invalid.
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Predictor(#[from] PredictorError),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl ManagerError {
    /// Whether the change belongs to another node of the cluster, which leads. Nothing was written.
    #[must_use]
    pub fn is_of_other_node(&self) -> bool {
        match self {
            Self::Storage(error) => matches!(error, StorageError::NotOwner | StorageError::Fenced),
            Self::Predictor(error) => error.is_of_other_node(),
            _ => false,
        }
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

impl From<StudyError> for ManagerError {
    fn from(error: StudyError) -> Self {
        Self::Study { error }
    }
}
