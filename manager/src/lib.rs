//! The life cycle of models: creation, versions, retraining, activation and deletion.
//!
//! The registry in storage is authoritative: a version exists once the registry names it, and a switch of versions is
//! one atomic write followed by a pointer swap in the predictor. Retraining runs in a child process on a snapshot of
//! the log while serving continues; a version directory is activated only after it was read back completely.
//!
//! This crate is not a server and contains no training algorithms.

mod comparison;
pub mod decisions;
mod deleting;
mod erasures;
pub mod error;
pub mod events;
mod export;
mod exportable;
pub mod gate;
pub mod guard;
mod holdout;
pub mod jobs;
mod manager;
mod pause;
pub mod policy_evaluation;
pub mod quality;
pub mod records;
mod registering;
mod retraining;
pub mod selections;
pub mod service;
mod switch;
pub mod training;
pub mod triggers;
pub mod versions;

pub use comparison::Comparison;
pub use decisions::DefaultReward;
pub use deleting::names_by_id;
pub use erasures::{ErasedSpan, KnowingVersion, erased_users};
pub use error::ManagerError;
pub use events::{Actor, Event, EventKind, EventPage, NumberedEvent};
pub use exportable::exportable;
pub use gate::{GateConfig, GateReport, Verdict};
pub use guard::{GuardConfig, GuardStatus, Guarding};
pub use jobs::{Job, JobId, JobState};
pub use manager::{Manager, ManagerOptions};
pub use policy_evaluation::{EvaluationRequest, PolicyEvaluation, Skipped};
pub use quality::{DriftSettings, MeanLoss, Metric, Quality, RecentLoss};
pub use records::{ModelConfig, ModelRecord, VersionRecord, WarmRecord};
pub use retraining::{TrainFrom, TrainRequest};
pub use selections::{NewSelection, ScopeKind, SelectionRecord};
pub use service::{NameKind, Unavailable};
pub use training::{Engine, LowerLimits, ReadingTraining, TrainerLimits, TrainerSettings, Trainers, TrainingOptions};
pub use triggers::{Schedule, Signal, Threshold, Triggers, Volume};
pub use versions::{ItemsOnlyIn, Moved, VersionDiff};
