//! Tests of studies on functions with known minima.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod functions;
mod machine;
mod samplers;
mod spaces;

use celeris_study::settings::lease_seconds_default;
use celeris_study::{Settings, Study, minima};

use self::functions::Function;

/// Settings of a study of `function` with one worker.
fn settings(function: Function, sampler: celeris_study::Sampler, trials: u32, seed: u64) -> Settings {
    Settings {
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
    }
}

/// Runs a study of `function` to its end.
fn run(study: Study, function: Function) -> Study {
    minima::minimise(study, |params| function.value(params)).unwrap()
}
