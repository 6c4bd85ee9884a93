//! `celeris-bench ope`: the off-policy estimators against the Open Bandit Pipeline's, in value and
//! in time.

mod data;
mod obp;

use std::path::Path;
use std::time::Instant;

use celeris_bandits::ope::{Estimator, OpeSettings, Rounds, evaluate, values};
use celeris_datasets::OpenBandit;

use self::obp::{Obp, Problem};
use crate::Settings;
use crate::report::Report;
use celeris_cli::Failure;
use celeris_evaluate::ope::policy::EvaluatedPolicy;
use celeris_evaluate::ope::{Settings as Protocol, rounds};

/// Number of our runs; the fastest is reported.
const RUNS: usize = 3;

/// Below the largest weight in each log, so that SWITCH-DR switches.
const SWITCH_THRESHOLD: f64 = 2.0;

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("ope");
    let obp = Obp::find();
    let folder = tempfile::tempdir().map_err(Failure::other)?;
    let mut largest: Option<f64> = None;
    for log in data::logs(settings, folder.path())? {
        for policy in data::policies(&log, folder.path())? {
            let case = Case { log: &log, policy, settings, obp: obp.as_ref() };
            let difference = compare(&mut report, &case, &folder.path().join("obp"))?;
            largest = largest.into_iter().chain(difference).reduce(f64::max);
        }
    }
    report.single("difference/largest", "reward", largest);
    Ok(report)
}

/// One policy on one log.
struct Case<'a> {
    log: &'a OpenBandit,
    policy: data::Policy,
    settings: &'a Settings,
    obp: Option<&'a Obp>,
}

/// Compares every estimator's value on both sides for the same log, policy and reward model, then
/// the time of all values with their intervals. Returns the largest difference of two values.
fn compare(report: &mut Report, case: &Case, folder: &Path) -> Result<Option<f64>, Failure> {
    let Case { log, policy, settings, obp } = case;
    let ope = OpeSettings {
        resamples: settings.pick(1000, 20),
        switch_threshold: SWITCH_THRESHOLD,
        ..OpeSettings::default()
    };
    let protocol = Protocol { ope, ..Protocol::default() };
    let read = |text: &str| EvaluatedPolicy::read(text, log, &ope).map_err(Failure::other);
    let evaluated = read(&policy.text)?;
    let ours: Rounds = rounds(log, &evaluated, &protocol).map_err(Failure::other)?;
    let theirs = match obp {
        Some(obp) => {
            // The model's expectation for an item equals that for the policy that always shows the
            // item.
            let of_item = |item: usize| -> Result<Vec<f64>, Failure> {
                let always = data::always(log, item, folder)?;
                let rounds = rounds(log, &read(&always)?, &protocol).map_err(Failure::other)?;
                Ok(rounds.iter().map(|round| round[0].expected_target).collect())
            };
            let expected = (0..log.items).map(of_item).collect::<Result<Vec<_>, _>>()?;
            Some(obp.evaluate(&Problem { log, evaluated: &evaluated, expected, settings: &ope }, folder)?)
        }
        None => None,
    };
    let name = |what: &str| format!("{what}/{}/{}", log.name, policy.name);
    let mut largest: Option<f64> = None;
    for (estimator, value) in Estimator::ALL.into_iter().zip(values(&ours, &ope)) {
        if estimator != Estimator::Replay || policy.deterministic {
            let theirs = theirs.as_ref().and_then(|found| found.values.get(estimator.name()).copied());
            report.measured(name(estimator.name()), "reward", value, theirs);
            largest = largest.into_iter().chain(theirs.map(|theirs| (theirs - value).abs())).reduce(f64::max);
        }
    }
    let seconds = (0..settings.pick(RUNS, 1)).map(|_| {
        let started = Instant::now();
        let evaluation = evaluate(&ours, &ope);
        debug_assert!(evaluation.is_some());
        started.elapsed().as_secs_f64()
    });
    let seconds = seconds.fold(f64::INFINITY, f64::min);
    report.measured(name("seconds"), "s", seconds, theirs.map(|found| found.seconds));
    Ok(largest)
}
