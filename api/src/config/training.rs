//! The section `[training]`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use celeris_manager::{TrainerLimits, Trainers, TrainingOptions};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sizes;

/// Trainers and training limits, set by the operator of the node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Training {
    /// Trainers in addition to the built-in `als`, by the name that models and requests use. Each
    /// is a complete command line in which `{job}` stands for the job file, `{folder}` for its
    /// folder and `{spark_als}` for the Spark training script. Trainers run with the rights of the
    /// node.
    pub trainers: BTreeMap<String, Vec<String>>,
    /// Upper limits of every training.
    #[schema(inline)]
    pub limits: TrainingLimits,
    /// The folder from which version directories can be registered; without it, registration is
    /// disabled.
    #[schema(value_type = Option<String>)]
    pub import_dir: Option<PathBuf>,
    /// Whether models that are created without `triggers` are retrained automatically: offsets from
    /// 10 observations on, the first training at 1000, then by volume.
    pub automatic: bool,
}

impl Default for Training {
    fn default() -> Self {
        Self { trainers: BTreeMap::new(), limits: TrainingLimits::default(), import_dir: None, automatic: true }
    }
}

impl Training {
    /// The manager's options of the same content.
    ///
    /// # Errors
    /// A message with the name of the invalid key.
    pub fn options(&self) -> Result<TrainingOptions, String> {
        let TrainingLimits { memory, time, heartbeat, processes, disk } = self.limits.clone();
        let [memory, disk] = [memory, disk].map(|size| size.map(|size| size.as_u64()));
        let limits = TrainerLimits { memory, time, heartbeat, processes, disk };
        limits.check().map_err(|problem| format!("training.limits.{problem}"))?;
        let trainers = Trainers::new(&self.trainers).map_err(|problem| format!("training.trainers.{problem}"))?;
        Ok(TrainingOptions { trainers, limits, automatic: self.automatic })
    }
}

/// Limits of one training, all of its processes together. A model's `trainer.limits` may be lower.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrainingLimits {
    /// Memory; by default half of the machine's.
    #[serde(serialize_with = "sizes::serialize_optional")]
    #[schema(value_type = Option<String>)]
    pub memory: Option<ByteSize>,
    /// Wall-clock time from the start of the training.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub time: Duration,
    /// Longest time without a line of output or a change in the output folder; after it, the
    /// training is considered hung.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub heartbeat: Duration,
    /// Processes and threads.
    pub processes: u64,
    /// Bytes written into the job folder; by default half of the free disk space.
    #[serde(serialize_with = "sizes::serialize_optional")]
    #[schema(value_type = Option<String>)]
    pub disk: Option<ByteSize>,
}

impl Default for TrainingLimits {
    fn default() -> Self {
        let TrainerLimits { memory, time, heartbeat, processes, disk } = TrainerLimits::default();
        Self { memory: memory.map(ByteSize::b), time, heartbeat, processes, disk: disk.map(ByteSize::b) }
    }
}
