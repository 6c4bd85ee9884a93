//! The Open Bandit Pipeline, as a process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use celeris_bandits::ope::OpeSettings;
use celeris_datasets::OpenBandit;
use serde::Deserialize;
use serde_json::json;

use celeris_cli::Failure;
use celeris_evaluate::ope::policy::Judged;
use celeris_evaluate::peers::{Python, run};

const SCRIPT: &str = include_str!("obp_estimators.py");

/// The package, where it is installed.
pub struct Obp {
    python: PathBuf,
}

/// What both sides are asked.
pub struct Problem<'a> {
    pub log: &'a OpenBandit,
    pub judged: &'a Judged,
    /// By item, what our reward model expects of it in every impression.
    pub expected: Vec<Vec<f64>>,
    pub settings: &'a OpeSettings,
}

/// What it answered.
#[derive(Deserialize)]
pub struct Found {
    /// By the names of our estimators.
    pub values: BTreeMap<String, f64>,
    /// For all values and their intervals.
    pub seconds: f64,
}

impl Obp {
    /// The package in the environment of the peers; `None`, saying so, where it is not.
    pub fn find() -> Option<Self> {
        let python = Python::find()?.program("python");
        let installed = Command::new(&python).args(["-c", "import importlib.metadata as m; m.version('obp')"]).output();
        if installed.is_ok_and(|output| output.status.success()) {
            return Some(Self { python });
        }
        eprintln!("  no obp among the Python peers: its columns stay empty; `cargo xtask peers` installs it");
        None
    }

    /// Evaluates.
    ///
    /// # Errors
    /// Where it fails, with what it said last.
    pub fn evaluate(&self, problem: &Problem, folder: &Path) -> Result<Found, Failure> {
        let Problem { log, judged, expected, settings } = problem;
        std::fs::create_dir_all(folder).map_err(Failure::other)?;
        let (script, file) = (folder.join("obp_estimators.py"), folder.join("problem.json"));
        std::fs::write(&script, SCRIPT).map_err(Failure::other)?;
        let shown = &log.impressions[judged.rounds.clone()];
        let problem = json!({
            "action": shown.iter().map(|shown| shown.item).collect::<Vec<_>>(),
            "position": shown.iter().map(|shown| shown.position).collect::<Vec<_>>(),
            "reward": shown.iter().map(|shown| shown.click).collect::<Vec<_>>(),
            "propensity": shown.iter().map(|shown| shown.propensity).collect::<Vec<_>>(),
            "target": judged.rounds.clone().map(|index| judged.probabilities(log, index)).collect::<Vec<_>>(),
            "expected": expected,
            "positions": log.positions.len(),
            "switch_threshold": settings.switch_threshold,
            "resamples": settings.resamples,
        });
        std::fs::write(&file, problem.to_string()).map_err(Failure::other)?;
        let said = run(Command::new(&self.python).arg(&script).arg("--problem").arg(&file))?;
        serde_json::from_slice(&said).map_err(Failure::other)
    }
}
