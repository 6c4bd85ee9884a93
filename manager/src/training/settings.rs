//! Who trains a model, and what the trainer may take.

use std::fs;

use celeris_retrain::{JobLimits, spare_threads};
use serde::{Deserialize, Serialize};

use crate::error::ManagerError;

/// The least memory that a limit can grant: less than any trainer starts in.
const MEMORY_MIN: u64 = 128 << 20;

/// Where the machine does not tell how much memory it has.
const MEMORY_UNKNOWN: u64 = 4 << 30;

/// The longest that a training may be allowed to take.
const SECONDS_MAX: u64 = 7 * 24 * 3600;

/// Words of a command, and bytes of each.
const WORDS_MAX: usize = 64;
const WORD_BYTES_MAX: usize = 4096;

/// A trainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// The built-in alternating least squares.
    #[default]
    Als,
    /// MLlib's alternating least squares by `spark-submit`.
    Spark,
    /// Any program on the trainer contract.
    Command,
}

impl Engine {
    /// Its name, as JSON has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Als => "als",
            Self::Spark => "spark",
            Self::Command => "command",
        }
    }
}

/// Who trains a model and how.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainerSettings {
    /// The trainer, where a retraining names no other.
    pub engine: Engine,
    /// The program of the engine `command` and its arguments; it is called with `--job FILE` after them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// How the engine `spark` is called.
    pub spark: SparkSettings,
    /// What a training may take.
    pub limits: TrainerLimits,
}

/// How the engine `spark` is called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SparkSettings {
    /// The program `spark-submit`.
    pub submit: String,
    /// The master's URL; by default `local` with all cores but one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// Sweeps.
    pub iterations: u32,
    /// `regParam` of MLlib.
    pub regularization: f64,
    /// `alpha` of MLlib: how much an observation adds to the confidence under implicit feedback.
    pub alpha: f64,
}

impl Default for SparkSettings {
    fn default() -> Self {
        Self {
            submit: "spark-submit".to_owned(),
            master: None,
            iterations: 10,
            regularization: 0.1,
            // The confidence of Celeris' own implicit loss: `1 + sum weight * label`.
            alpha: 1.0,
        }
    }
}

impl SparkSettings {
    /// The master to use.
    #[must_use]
    pub fn master(&self) -> String {
        self.master.clone().unwrap_or_else(|| format!("local[{}]", spare_threads()))
    }

    /// Whether executors run inside the one process.
    #[must_use]
    pub fn is_local(&self) -> bool {
        is_local(&self.master())
    }
}

fn is_local(master: &str) -> bool {
    master == "local" || (master.starts_with("local[") && master.ends_with(']'))
}

/// What one training may take, all its processes together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainerLimits {
    /// Bytes of memory; half of the machine's where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Seconds from its start.
    pub seconds: u64,
    /// Seconds in which it neither says a line nor changes its output folder, after which it is taken for dead.
    pub heartbeat_seconds: u64,
}

impl Default for TrainerLimits {
    fn default() -> Self {
        Self { memory: None, seconds: 6 * 3600, heartbeat_seconds: 600 }
    }
}

impl TrainerLimits {
    /// The same in figures for this machine.
    #[must_use]
    pub fn on_this_machine(&self) -> JobLimits {
        let memory_bytes = self.memory.unwrap_or_else(|| machine_memory().map_or(MEMORY_UNKNOWN, |total| total / 2));
        JobLimits { memory_bytes, seconds: self.seconds, heartbeat_seconds: self.heartbeat_seconds }
    }
}

fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// What whoever configures the node allows those who configure models.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowedTrainers {
    /// Programs that models may name, as they name them.
    pub programs: Vec<String>,
    /// Spark masters that models may name, besides local ones.
    pub spark_masters: Vec<String>,
}

impl TrainerSettings {
    /// Checks that the settings are within range, and that the node allows what training with `engine` would run.
    ///
    /// # Errors
    /// `TrainerSetting`, naming the field and what to do.
    pub fn check(&self, engine: Engine, allowed: &AllowedTrainers) -> Result<(), ManagerError> {
        self.limits.check()?;
        match engine {
            Engine::Als => Ok(()),
            Engine::Spark => self.spark.check(allowed),
            Engine::Command => self.check_command(allowed),
        }
    }

    fn check_command(&self, allowed: &AllowedTrainers) -> Result<(), ManagerError> {
        let wrong = |problem: String| Err(setting("trainer.command", problem));
        let Some(program) = self.command.first() else {
            return wrong("must name a program for the engine command, as in [\"/opt/trainer/run\"]".to_owned());
        };
        if self.command.len() > WORDS_MAX || self.command.iter().any(|word| word.len() > WORD_BYTES_MAX) {
            return wrong(format!("must have at most {WORDS_MAX} words of {WORD_BYTES_MAX} bytes"));
        }
        if self.command.iter().any(|word| word.contains('\0')) {
            return wrong("must not hold a zero byte".to_owned());
        }
        check_program("trainer.command", program, allowed)
    }
}

impl TrainerLimits {
    fn check(&self) -> Result<(), ManagerError> {
        let within = |field, value: u64, range: std::ops::RangeInclusive<u64>| {
            if range.contains(&value) {
                return Ok(());
            }
            Err(setting(field, format!("must be from {} to {}, got {value}", range.start(), range.end())))
        };
        if let Some(memory) = self.memory {
            within("trainer.limits.memory", memory, MEMORY_MIN..=u64::from(u32::MAX) << 20)?;
        }
        within("trainer.limits.seconds", self.seconds, 1..=SECONDS_MAX)?;
        within("trainer.limits.heartbeat_seconds", self.heartbeat_seconds, 1..=SECONDS_MAX)
    }
}

impl SparkSettings {
    fn check(&self, allowed: &AllowedTrainers) -> Result<(), ManagerError> {
        if !(1..=1000).contains(&self.iterations) {
            let problem = format!("must be from 1 to 1000, got {}", self.iterations);
            return Err(setting("trainer.spark.iterations", problem));
        }
        for (field, value) in
            [("trainer.spark.regularization", self.regularization), ("trainer.spark.alpha", self.alpha)]
        {
            if !(0.0..=1e6).contains(&value) {
                return Err(setting(field, format!("must be from 0 to 1000000, got {value}")));
            }
        }
        let master = self.master();
        if !is_local(&master) && !allowed.spark_masters.contains(&master) {
            let problem = format!(
                "is {master:?}, which this node does not allow; add it to spark_masters in the section [training] of \
                 the node's configuration"
            );
            return Err(setting("trainer.spark.master", problem));
        }
        check_program("trainer.spark.submit", &self.submit, allowed)
    }
}

/// Whoever may call the API must not thereby run any program of the machine.
fn check_program(field: &'static str, program: &str, allowed: &AllowedTrainers) -> Result<(), ManagerError> {
    if allowed.programs.iter().any(|allowed| allowed == program) {
        return Ok(());
    }
    let problem = format!(
        "names the program {program:?}, which this node does not allow; add it to programs in the section [training] \
         of the node's configuration"
    );
    Err(setting(field, problem))
}

fn setting(field: &'static str, problem: String) -> ManagerError {
    ManagerError::TrainerSetting { field, problem }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn settings(text: &str) -> TrainerSettings {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn only_programs_and_masters_that_the_node_allows_are_run() {
        let allowed = AllowedTrainers {
            programs: vec!["/opt/run".to_owned(), "spark-submit".to_owned()],
            spark_masters: vec!["spark://one:7077".to_owned()],
        };
        let refusal = |text: &str, engine| settings(text).check(engine, &allowed).unwrap_err().to_string();
        let accept = |text: &str, engine| settings(text).check(engine, &allowed).unwrap();
        accept("{}", Engine::Als);
        accept(r#"{"command": ["/opt/run", "--fast"]}"#, Engine::Command);
        assert!(refusal(r#"{"command": ["/bin/sh"]}"#, Engine::Command).contains("[training]"));
        assert!(refusal("{}", Engine::Command).contains("trainer.command"));
        accept(r#"{"spark": {"master": "local[3]"}}"#, Engine::Spark);
        accept(r#"{"spark": {"master": "spark://one:7077"}}"#, Engine::Spark);
        assert!(refusal(r#"{"spark": {"master": "spark://two:7077"}}"#, Engine::Spark).contains("spark_masters"));
        assert!(refusal(r#"{"spark": {"submit": "/bin/sh"}}"#, Engine::Spark).contains("programs"));
        assert!(refusal(r#"{"limits": {"seconds": 0}}"#, Engine::Als).contains("trainer.limits.seconds"));
        assert!(refusal(r#"{"limits": {"memory": 5}}"#, Engine::Als).contains("trainer.limits.memory"));
    }
}
