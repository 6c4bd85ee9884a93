//! Trainer settings of a model and resource limits of trainings.

use std::fs;
use std::path::Path;
use std::time::Duration;

use celeris_retrain::settings::PRIOR_SCALE_RANGE;
use celeris_sandbox::Limits;
use celeris_storage::DiskSpace;
use serde::{Deserialize, Serialize};

use super::{Engine, Trainers};
use crate::error::ManagerError;

/// Smallest memory limit; no trainer starts with less.
const MEMORY_MIN: u64 = 128 << 20;

/// Largest memory or disk limit.
const BYTES_MAX: u64 = 1 << 52;

/// Assumed memory if the size of the machine's memory is unknown.
const MEMORY_UNKNOWN: u64 = 4 << 30;

/// Largest time limit.
const SECONDS_MAX: u64 = 7 * 24 * 3600;

/// Range of the limit on processes and threads: the supervisor and a shell need the minimum, and
/// the kernel counts no more than the maximum.
const PROCESSES: std::ops::RangeInclusive<u64> = 8..=1 << 20;

/// Smallest disk limit.
const DISK_MIN: u64 = 1 << 20;

/// Trainer settings of a model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainerSettings {
    /// The trainer, unless a retraining request names another.
    pub engine: Engine,
    /// Number of iterations; of the built-in trainer, the largest. An external trainer gets this and
    /// the next two fields in its job file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
    /// Regularization of the factors; tuned by the built-in trainer if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regularization: Option<f64>,
    /// Confidence weight of an observation under implicit feedback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// Of the built-in trainer, except under implicit feedback: the strength of the users' prior relative to the fitted
    /// one; tuned if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prior_scale: Option<f64>,
    /// Whether attributes make features of items that were not trained; they do if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<bool>,
    /// Limits below those of the node.
    pub limits: LowerLimits,
}

/// Limits of one training, for all its processes together; missing values default to the node's
/// limits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LowerLimits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Seconds from its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Seconds without output and without a change of its output folder after which it is
    /// considered hung.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_seconds: Option<u64>,
    /// Number of processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Bytes that it may write into the folder of its job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
}

/// Limits of every training of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainerLimits {
    /// Bytes of memory; defaults to half of the machine's memory.
    pub memory: Option<u64>,
    /// Time from its start.
    pub time: Duration,
    /// Time without output and without a change of its output folder after which it is considered
    /// hung.
    pub heartbeat: Duration,
    /// Number of processes and threads.
    pub processes: u64,
    /// Bytes that it may write into the folder of its job; defaults to half of the free space.
    pub disk: Option<u64>,
}

impl Default for TrainerLimits {
    fn default() -> Self {
        Self {
            memory: None,
            time: Duration::from_secs(6 * 3600),
            heartbeat: Duration::from_secs(600),
            processes: 2048,
            disk: None,
        }
    }
}

impl TrainerLimits {
    /// Checks that every value is in range.
    ///
    /// # Errors
    /// The name of the value, its range and the value.
    pub fn check(&self) -> Result<(), String> {
        let [time, heartbeat] = [self.time, self.heartbeat].map(|time| time.as_secs());
        let figures = [
            ("memory", self.memory, MEMORY_MIN..=BYTES_MAX),
            ("time", Some(time), 1..=SECONDS_MAX),
            ("heartbeat", Some(heartbeat), 1..=SECONDS_MAX),
            ("processes", Some(self.processes), PROCESSES),
            ("disk", self.disk, DISK_MIN..=BYTES_MAX),
        ];
        for (name, figure, range) in figures {
            if let Some(figure) = figure.filter(|figure| !range.contains(figure)) {
                return Err(format!("{name}: must be from {} to {}, got {figure}", range.start(), range.end()));
            }
        }
        Ok(())
    }

    /// Resolves the defaults for this machine and for jobs in `dir`.
    fn on_this_machine(&self, dir: &Path) -> Limits {
        Limits {
            memory_bytes: self.memory.unwrap_or_else(|| machine_memory().map_or(MEMORY_UNKNOWN, |total| total / 2)),
            seconds: self.time.as_secs(),
            heartbeat_seconds: self.heartbeat.as_secs(),
            processes: self.processes,
            disk_bytes: self.disk.or_else(|| Some(DiskSpace::of(dir).ok()?.free / 2)).unwrap_or(BYTES_MAX),
        }
    }
}

fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

impl LowerLimits {
    /// The minimum of these limits and the node's, which may have been lowered since the model was
    /// configured.
    pub(crate) fn within(&self, node: &TrainerLimits, dir: &Path) -> Limits {
        let node = node.on_this_machine(dir);
        let less = |asked: Option<u64>, most: u64| asked.map_or(most, |asked| asked.min(most));
        Limits {
            memory_bytes: less(self.memory, node.memory_bytes),
            seconds: less(self.seconds, node.seconds),
            heartbeat_seconds: less(self.heartbeat_seconds, node.heartbeat_seconds),
            processes: less(self.processes, node.processes),
            disk_bytes: less(self.disk, node.disk_bytes),
        }
    }

    fn check(&self, node: &TrainerLimits) -> Result<(), ManagerError> {
        let figures = [
            ("trainer.limits.memory", self.memory, MEMORY_MIN, node.memory.unwrap_or(BYTES_MAX)),
            ("trainer.limits.seconds", self.seconds, 1, node.time.as_secs()),
            ("trainer.limits.heartbeat_seconds", self.heartbeat_seconds, 1, node.heartbeat.as_secs()),
            ("trainer.limits.processes", self.processes, *PROCESSES.start(), node.processes),
            ("trainer.limits.disk", self.disk, DISK_MIN, node.disk.unwrap_or(BYTES_MAX)),
        ];
        for (field, figure, least, most) in figures {
            if let Some(figure) = figure.filter(|figure| !(least..=most).contains(figure)) {
                let problem = format!(
                    "must be from {least} to {most}, got {figure}; the section [training.limits] of the node's \
                     configuration says what a training may take at most"
                );
                return Err(ManagerError::TrainerSetting { field, problem });
            }
        }
        Ok(())
    }
}

/// Training options in the node's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrainingOptions {
    /// Trainers besides the built-in one.
    pub trainers: Trainers,
    /// Limits of every training.
    pub limits: TrainerLimits,
    /// Whether models that are created without triggers get those of
    /// [`Triggers::of_new_models`](super::Triggers::of_new_models).
    pub automatic: bool,
}

impl TrainerSettings {
    /// Checks that the settings are in range, that the node has the trainer, and that the limits
    /// are within the node's.
    ///
    /// # Errors
    /// `TrainerSetting` with the field and a remedy.
    pub(crate) fn check(&self, engine: &Engine, node: &TrainingOptions) -> Result<(), ManagerError> {
        let wrong = |field, problem| Err(ManagerError::TrainerSetting { field, problem });
        if let Some(iterations) = self.iterations.filter(|iterations| !(1..=1000).contains(iterations)) {
            return wrong("trainer.iterations", format!("must be from 1 to 1000, got {iterations}"));
        }
        for (field, value, most) in
            [("trainer.regularization", self.regularization, 100.0), ("trainer.alpha", self.alpha, 1e6)]
        {
            if let Some(value) = value.filter(|value| !(0.0..=most).contains(value)) {
                return wrong(field, format!("must be from 0 to {most}, got {value}"));
            }
        }
        if let Some(scale) = self.prior_scale.filter(|scale| !PRIOR_SCALE_RANGE.contains(scale)) {
            return wrong("trainer.prior_scale", format!("must be from 0.01 to 100, got {scale}"));
        }
        self.limits.check(&node.limits)?;
        node.trainers.command_of(engine).map(|_| ())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn settings(text: &str) -> TrainerSettings {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn values_out_of_range_or_above_the_nodes_limits_are_rejected_by_name() {
        let limits = TrainerLimits { memory: Some(1 << 30), processes: 100, ..TrainerLimits::default() };
        let node = TrainingOptions { limits, ..TrainingOptions::default() };
        let refusal = |text: &str| settings(text).check(&Engine::Als, &node).unwrap_err().to_string();
        settings("{}").check(&Engine::Als, &node).unwrap();
        settings(r#"{"limits": {"memory": 1073741824, "processes": 100}}"#).check(&Engine::Als, &node).unwrap();
        for (text, field) in [
            (r#"{"limits": {"seconds": 0}}"#, "trainer.limits.seconds"),
            (r#"{"limits": {"memory": 5}}"#, "trainer.limits.memory"),
            (r#"{"limits": {"memory": 1073741825}}"#, "trainer.limits.memory"),
            (r#"{"limits": {"processes": 101}}"#, "trainer.limits.processes"),
            (r#"{"limits": {"disk": 1}}"#, "trainer.limits.disk"),
            (r#"{"iterations": 0}"#, "trainer.iterations"),
            (r#"{"regularization": 101}"#, "trainer.regularization"),
            (r#"{"alpha": -1}"#, "trainer.alpha"),
            (r#"{"prior_scale": 0}"#, "trainer.prior_scale"),
            (r#"{"prior_scale": 101}"#, "trainer.prior_scale"),
        ] {
            assert!(refusal(text).contains(field), "{text}");
        }
    }

    #[test]
    fn the_lower_of_both_limits_applies() {
        let node = TrainerLimits { memory: Some(1 << 30), disk: Some(1 << 30), ..TrainerLimits::default() };
        let asked: LowerLimits =
            serde_json::from_str(r#"{"memory": 4294967296, "disk": 2097152, "seconds": 9}"#).unwrap();
        let limits = asked.within(&node, Path::new("/"));
        assert_eq!((limits.memory_bytes, limits.disk_bytes, limits.seconds), (1 << 30, 2 << 20, 9));
        assert_eq!((limits.heartbeat_seconds, limits.processes), (600, 2048));
        assert!(LowerLimits::default().within(&TrainerLimits::default(), Path::new("/")).disk_bytes < BYTES_MAX);
    }
}
