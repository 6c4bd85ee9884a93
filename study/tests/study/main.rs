//! Tests of studies on functions with known minima.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod functions;
mod machine;
mod samplers;
mod spaces;

use celeris_study::{Asked, Outcome, Settings, Study};

use self::functions::Function;

/// Settings of a study of `function` with one worker.
fn settings(function: Function, sampler: celeris_study::Sampler, trials: u32, seed: u64) -> Settings {
    Settings {
        space: function.space(),
        trials,
        seconds: None,
        workers: 1,
        sampler,
        patience: None,
        collaborative: None,
        seed,
    }
}

/// Runs a study of `function` to its end; the present settings have a loss that is worse than any.
fn run(mut study: Study, function: Function) -> Study {
    let mut now = study.began();
    loop {
        now += 1000;
        match study.ask("worker", now) {
            Asked::Trial(assignment) => {
                let value = if assignment.trial == 0 { 1e9 } else { function.value(&assignment.params) };
                let outcome = Ok(Outcome::of(value));
                study.tell((assignment.trial, assignment.attempt), outcome, now).unwrap();
            }
            Asked::Wait => panic!("one worker never waits"),
            Asked::Ended => return study,
        }
    }
}
