//! `celeris-bench tuning`: what the samplers of studies find within some trials, against Optuna, and studies of a
//! node.

mod functions;
mod studies;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use celeris_cli::Failure;
use celeris_evaluate::peers::{Python, run as run_peer};
use celeris_study::settings::lease_seconds_default;
use celeris_study::{Sampler, Settings as StudySettings, Study, minima};
use serde::Deserialize;

use self::functions::Function;
use crate::Settings;
use crate::report::Report;

const SCRIPT: &str = include_str!("optuna_best.py");

/// Trials of a study.
const TRIALS: u32 = 30;

/// Studies of which the median is reported.
const SEEDS: u64 = 20;

/// What a study has found.
#[derive(Debug, Deserialize)]
struct Found {
    /// By seed, the least distance to the minimum.
    regrets: Vec<f64>,
    /// Milliseconds for each trial.
    milliseconds: f64,
}

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("tuning");
    let python = Python::with(&["optuna"]);
    let folder = tempfile::tempdir().map_err(Failure::other)?;
    let (trials, seeds) = (settings.pick(TRIALS, 10), settings.pick(SEEDS, 2));
    for function in Function::ALL {
        let peer = python.as_ref().map(|python| optuna(python, folder.path(), function, (trials, seeds)));
        let peer = peer.transpose()?;
        let theirs = peer.as_ref().map(|found| median(&found.regrets));
        for sampler in [Sampler::Gp, Sampler::Tpe, Sampler::Random] {
            let ours = ours(function, sampler, (trials, seeds))?;
            let name = |what: &str| format!("{what}/{}/{}", sampler.name(), function.name());
            report.measured(name("sampler"), "regret", median(&ours.regrets), theirs);
            if sampler == Sampler::Gp {
                let theirs = peer.as_ref().map(|found| found.milliseconds);
                report.measured(name("time"), "ms", ours.milliseconds, theirs);
            }
        }
    }
    studies::run(settings, &mut report)?;
    Ok(report)
}

fn ours(function: Function, sampler: Sampler, (trials, seeds): (u32, u64)) -> Result<Found, Failure> {
    let started = Instant::now();
    let regrets = (0..seeds).map(|seed| regret(function, sampler, trials, seed)).collect::<Result<_, _>>()?;
    Ok(Found { regrets, milliseconds: started.elapsed().as_secs_f64() * 1e3 / (f64::from(trials) * seeds as f64) })
}

/// The least distance to the minimum that one study finds.
fn regret(function: Function, sampler: Sampler, trials: u32, seed: u64) -> Result<f64, Failure> {
    let settings = StudySettings {
        space: function.space(),
        trials,
        seconds: None,
        workers: 1,
        remote_workers: 0,
        lease_seconds: lease_seconds_default(),
        sampler,
        patience: None,
        collaborative: None,
        seed,
    };
    let study = Study::new(settings, 0).and_then(|study| minima::minimise(study, |params| function.value(params)));
    let study = study.map_err(Failure::other)?;
    Ok(study.best().and_then(celeris_study::Trial::loss).map_or(f64::INFINITY, |lowest| lowest - function.minimum()))
}

fn optuna(python: &Python, folder: &Path, function: Function, counts: (u32, u64)) -> Result<Found, Failure> {
    let script = folder.join("optuna_best.py");
    std::fs::write(&script, SCRIPT).map_err(Failure::other)?;
    let (trials, seeds) = counts;
    let mut command = Command::new(python.program("python"));
    command.arg(script).args([function.name(), &trials.to_string(), &seeds.to_string()]);
    let output = run_peer(&mut command)?;
    serde_json::from_slice(&output).map_err(Failure::other)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}
