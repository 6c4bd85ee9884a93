//! The life cycle of models: creation, versions, retraining, activation and deletion.
//!
//! [`Manager`] opens the components. Each owns its data and uses only those before it:
//!
//! ```text
//! settings           plain data and its ranges
//! cluster            what is asked of the other nodes: files of versions, readiness
//! leadership         whether this node makes the decisions
//! access             API keys and roles
//! registry           documents, audit log and version directories: Registry, VersionStore
//! monitoring         prediction quality and drift
//! promotion          gate, shadow mode, switch, guard and rollback
//! training           retrain jobs
//! studies            searches for settings, by trials here and on other machines
//! triggers           starts trainings and studies
//! pipelines          declarations and objects of computed features
//! policy_evaluation  off-policy evaluation, over the registry
//! rewards            rewards by day, version and policy, over the registry
//! decisions          default rewards and expiry of decisions, over the registry
//! following          a node of a cluster: brings its memory and files in line with the registry
//! ```
//!
//! The registry in storage is authoritative: a version exists once the registry names it, and a
//! switch of versions is one atomic write followed by a pointer swap in the predictor. Retraining
//! runs in a child process on a snapshot of the log while serving continues; a version directory is
//! activated only after it was read back completely.
//!
//! This crate is not a server and contains no training algorithms.

pub mod access;
pub mod cluster;
mod comparison;
pub mod decisions;
mod directories;
pub mod error;
mod exportable;
mod following;
mod job_id;
mod leadership;
mod low_priority;
mod manager;
mod metric;
pub mod monitoring;
pub mod pipelines;
pub mod policy_evaluation;
pub mod promotion;
pub mod registry;
pub mod rewards;
pub mod settings;
pub mod studies;
mod study_id;
pub mod training;
mod triggers;

pub use access::{ApiKey, ApiKeys, Changer, Grant, MadeKey, NewKey, Role, acting_for};
pub use cluster::{Peers, Readiness, RemoteFile, VersionSource};
pub use comparison::Comparison;
pub use error::ManagerError;
pub use exportable::exportable;
pub use job_id::JobId;
pub use manager::{CopyForBackup, Manager, ManagerOptions};
pub use metric::Metric;
pub use monitoring::{MeanLoss, Monitoring, Quality, RecentLoss};
pub use pipelines::{DescribedPipeline, Explained, PipelineInput, PipelineRecord, Pipelines, StoredObject};
pub use policy_evaluation::{EvaluationReport, EvaluationRequest, PolicyEvaluation, Skipped};
pub use promotion::{GuardStatus, ItemsOnlyIn, Moved, Promotion, VersionDiff};
pub use registry::{
    Actor, AffectedVersion, AuditLog, ErasedSpan, Event, EventKind, EventPage, GateReport, Guarding, ModelRecord,
    NameKind, NewSelection, NumberedEvent, Registry, ScopeKind, SelectionRecord, Unavailable, Verdict, VersionFile,
    VersionPart, VersionRecord, VersionStore, WarmRecord, erased_users, names_by_id,
};
pub use rewards::{RewardFigures, RewardReport, RewardRow, RewardSums};
pub use settings::{
    CANDIDATES_DEFAULT, DefaultReward, DriftSettings, Engine, FeaturePart, FeatureParts, FeatureSource, GateConfig,
    GuardConfig, LowerLimits, ModelConfig, Popularity, Schedule, ScheduledStudy, Signal, Then, Threshold,
    TrainerLimits, TrainerSettings, Trainers, TrainingOptions, Triggers, Volume,
};
pub use studies::{
    Applied, NewStudy, OfTrial, OutgoingData, RemoteAsked, RemoteTrial, Studies, StudyRecord, TrialData, TrialWorker,
};
pub use study_id::StudyId;
pub use training::{Cause, Job, JobState, ReadingTraining, TrainFrom, TrainRequest, Training};
