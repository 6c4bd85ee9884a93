//! The baselines of our policies: MABWiser and Vowpal Wabbit, on the same problems.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::problem::Problem;
use celeris_cli::Failure;
use celeris_evaluate::peers::{Python, run};

const PROBLEM: &str = include_str!("problem.py");
const MABWISER: &str = include_str!("mabwiser_regret.py");
const VW: &str = include_str!("vw_regret.py");

/// Seconds within which a peer starts its runs; started runs are completed. All seeds take some 20
/// minutes per peer.
const BUDGET_SECONDS: u64 = 300;

/// The environment variable that overrides [`BUDGET_SECONDS`].
const BUDGET_VARIABLE: &str = "CELERIS_PEER_SECONDS";

/// Number of concurrent runs of a peer.
const PROCESSES: usize = 2;

/// Curves of regret by policy and seed.
pub type Curves = BTreeMap<String, BTreeMap<u64, Vec<f64>>>;

/// A library with bandit policies.
#[derive(Clone, Copy)]
pub enum Peer {
    MabWiser,
    VowpalWabbit,
}

impl Peer {
    fn script(self) -> (&'static str, &'static str) {
        match self {
            Self::MabWiser => ("mabwiser_regret.py", MABWISER),
            Self::VowpalWabbit => ("vw_regret.py", VW),
        }
    }

    /// The peer's curves on `problem`, for as many seeds as it completes. If it cannot run, prints
    /// the error and returns no curves. `options` are passed to the peer's script.
    pub fn curves(self, python: &Python, problem: &Problem, options: Value) -> Curves {
        match self.play(python, problem, options) {
            Ok(curves) => curves,
            Err(Failure::BadInput(failure) | Failure::Other(failure)) => {
                eprintln!("  {}: its columns stay empty: {failure}", self.script().0);
                Curves::new()
            }
        }
    }

    fn play(self, python: &Python, problem: &Problem, mut options: Value) -> Result<Curves, Failure> {
        let folder = tempfile::tempdir().map_err(Failure::other)?;
        let (name, script) = self.script();
        let budget = budget()?;
        eprintln!("  {name}: up to {} seeds, begun within {budget} s …", problem.seeds.len());
        let of_problem = serde_json::to_value(problem).map_err(Failure::other)?;
        for (name, value) in of_problem.as_object().into_iter().flatten() {
            options[name] = value.clone();
        }
        options["budget_seconds"] = budget.into();
        options["processes"] = PROCESSES.into();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).map_err(Failure::other);
        write("problem.py", PROBLEM)?;
        write(name, script)?;
        write("problem.json", &options.to_string())?;
        let output = run(&mut command(python, folder.path(), name))?;
        serde_json::from_slice(&output).map_err(Failure::other)
    }
}

fn budget() -> Result<u64, Failure> {
    let Some(given) = std::env::var_os(BUDGET_VARIABLE) else { return Ok(BUDGET_SECONDS) };
    let seconds = given.to_str().and_then(|text| text.parse().ok());
    seconds.ok_or_else(|| {
        Failure::bad_input(format!("{BUDGET_VARIABLE}: must be a whole number of seconds, got {given:?}"))
    })
}

fn command(python: &Python, folder: &Path, script: &str) -> Command {
    let mut command = Command::new(python.program("python"));
    command.arg(folder.join(script)).arg("--problem").arg(folder.join("problem.json"));
    command
}
