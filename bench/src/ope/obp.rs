//! The Open Bandit Pipeline, run as a process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use celeris_bandits::ope::OpeSettings;
use celeris_datasets::OpenBandit;
use serde::Deserialize;
use serde_json::json;

use celeris_cli::Failure;
use celeris_evaluate::ope::policy::EvaluatedPolicy;
use celeris_evaluate::peers::{Python, run};

const SCRIPT: &str = include_str!("obp_estimators.py");

/// The installed package.
pub struct Obp {
    python: PathBuf,
}

/// An evaluation problem for both sides.
pub struct Problem<'a> {
    pub log: &'a OpenBandit,
    pub evaluated: &'a EvaluatedPolicy,
    /// By item, the reward that our model expects in every impression.
    pub expected: Vec<Vec<f64>>,
    pub settings: &'a OpeSettings,
}

/// The results of obp.
#[derive(Deserialize)]
pub struct Found {
    /// Values by the names of our estimators.
    pub values: BTreeMap<String, f64>,
    /// Time for all values and intervals, in seconds.
    pub seconds: f64,
}

impl Obp {
    /// Finds the package in the environment of the peers; otherwise prints a message and returns
    /// `None`.
    pub fn find() -> Option<Self> {
        Some(Self { python: Python::with(&["obp"])?.program("python") })
    }

    /// Runs the evaluation.
    ///
    /// # Errors
    /// If it fails, with the last lines of its output.
    pub fn evaluate(&self, problem: &Problem, folder: &Path) -> Result<Found, Failure> {
        let Problem { log, evaluated, expected, settings } = problem;
        std::fs::create_dir_all(folder).map_err(Failure::other)?;
        let (script, file) = (folder.join("obp_estimators.py"), folder.join("problem.json"));
        std::fs::write(&script, SCRIPT).map_err(Failure::other)?;
        let shown = &log.impressions[evaluated.rounds.clone()];
        let problem = json!({
            "action": shown.iter().map(|shown| shown.item).collect::<Vec<_>>(),
            "position": shown.iter().map(|shown| shown.position).collect::<Vec<_>>(),
            "reward": shown.iter().map(|shown| shown.click).collect::<Vec<_>>(),
            "propensity": shown.iter().map(|shown| shown.propensity).collect::<Vec<_>>(),
            "target": evaluated.rounds.clone().map(|index| evaluated.probabilities(log, index)).collect::<Vec<_>>(),
            "expected": expected,
            "positions": log.positions.len(),
            "switch_threshold": settings.switch_threshold,
            "resamples": settings.resamples,
        });
        std::fs::write(&file, problem.to_string()).map_err(Failure::other)?;
        let stdout = run(Command::new(&self.python).arg(&script).arg("--problem").arg(&file))?;
        serde_json::from_slice(&stdout).map_err(Failure::other)
    }
}
