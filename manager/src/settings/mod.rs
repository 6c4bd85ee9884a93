//! Settings of models and of trainings: plain data and its ranges, which knows no component.

mod command_line;
mod default_reward;
mod features;
mod gate;
pub(crate) mod guard;
mod model;
mod scheduled_study;
mod trainer;
mod triggers;

pub use self::command_line::{CommandLine, Engine, TrainerName, Trainers};
pub(crate) use self::command_line::{Places, text_of};
pub use self::default_reward::DefaultReward;
pub use self::features::{CANDIDATES_DEFAULT, FeaturePart, FeatureParts, FeatureSource};
pub use self::gate::GateConfig;
pub use self::guard::GuardConfig;
pub use self::model::{DIM_MAX, DIM_MIN, KEEP_VERSIONS_DEFAULT, KEEP_VERSIONS_MAX, ModelConfig};
pub use self::scheduled_study::{ScheduledStudy, Then};
pub use self::trainer::{LowerLimits, TrainerLimits, TrainerSettings, TrainingOptions};
pub use self::triggers::{
    DriftSettings, Popularity, Schedule, Signal, Threshold, Triggers, Volume, WINDOW, WINDOW_MAX,
};
