//! `celeris-bench bandits`: the regret of our policies against MABWiser's and Vowpal Wabbit's on
//! the same problems.

mod lock_in;
mod peers;
mod play;
mod problem;

use std::collections::BTreeMap;

use celeris_bandits::PolicySpec;
use celeris_model::Prior;
use serde_json::json;

use self::peers::{Curves, Peer};
use self::problem::Problem;
use crate::Settings;
use crate::plot::{Figure, Series};
use crate::report::Report;
use celeris_cli::Failure;
use celeris_evaluate::peers::Python;

const DIM: usize = 20;

/// The width of confidence bounds and posterior draws, for our policies and MABWiser's.
const ALPHA: f64 = 1.0;

/// The ridge parameter, for our policies and MABWiser's.
const L2: f64 = 1.0;

/// Policies with shared weights: our case names, and their JSON in requests.
const SHARED: [(&str, &str); 9] = [
    ("greedy", r#"{"name": "greedy"}"#),
    ("epsilon_greedy", r#"{"name": "epsilon_greedy", "epsilon": 0.05}"#),
    ("softmax/lambda=20", r#"{"name": "softmax", "lambda": 20}"#),
    ("softmax/lambda=60", r#"{"name": "softmax", "lambda": 60}"#),
    ("softmax/lambda=180", r#"{"name": "softmax", "lambda": 180}"#),
    ("squarecb", r#"{"name": "squarecb", "gamma_scale": 10, "gamma_exponent": 0.5}"#),
    ("regcb", r#"{"name": "regcb", "mellowness": 0.1}"#),
    ("lin_ucb", r#"{"name": "lin_ucb", "alpha": 1}"#),
    ("thompson", r#"{"name": "thompson", "alpha": 1}"#),
];

/// Policies whose parameter has a different effect in the two libraries, because it multiplies
/// estimated scores, whose spread differs. In addition to the cases at equal parameters, our best
/// is compared with their best.
const TUNED: [&str; 1] = ["softmax"];

/// Vowpal Wabbit's policies with the same parameters, by our names, as options in addition to
/// `--cb_explore_adf`. Its `mellowness` is in squared ranges of costs and ours in noise variances;
/// here one range squared is a hundred variances. It has no LinUCB and no posterior; its closest
/// policy to Thompson sampling is a bag of bootstrapped learners.
const VW: [(&str, &str); 8] = [
    ("greedy", "--epsilon 0"),
    ("epsilon_greedy", "--epsilon 0.05"),
    ("softmax/lambda=20", "--softmax --lambda 20"),
    ("softmax/lambda=60", "--softmax --lambda 60"),
    ("softmax/lambda=180", "--softmax --lambda 180"),
    ("squarecb", "--squarecb --gamma_scale 10 --gamma_exponent 0.5"),
    ("regcb", "--regcb --regcbopt --mellowness 0.001 --cb_min_cost -1 --cb_max_cost 0"),
    ("bag", "--bag 5"),
];

/// Policies whose regret must grow sublinearly.
const SUBLINEAR: [&str; 4] = ["lin_ucb", "thompson", "squarecb", "regcb"];

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("bandits");
    let python = if settings.quick { None } else { Python::find() };
    disjoint(settings, python.as_ref(), &mut report)?;
    shared(settings, python.as_ref(), &mut report)?;
    feedback_loop(settings, &mut report)?;
    Ok(report)
}

fn problem(settings: &Settings) -> Problem {
    let rounds: usize = settings.pick(10_000, 200);
    Problem {
        dim: DIM,
        arms: settings.pick(100, 10),
        rounds,
        scale: 0.5,
        constant: 0.5,
        noise: 0.5,
        checkpoints: [100, 50, 20, 10, 5, 2, 1].map(|part| rounds / part).into(),
        seeds: (1..=settings.pick(20, 2)).collect(),
    }
}

fn parse(spec: &str) -> Result<PolicySpec, Failure> {
    serde_json::from_str(spec).map_err(Failure::other)
}

/// One model for each arm, as in the paper of LinUCB and in MABWiser.
fn disjoint(settings: &Settings, python: Option<&Python>, report: &mut Report) -> Result<(), Failure> {
    eprintln!("  one model for each arm …");
    let problem = problem(settings);
    // MABWiser has no noise parameter: its bounds assume a noise of 1.
    let prior = Prior::isotropic(DIM, L2, 1.0).map_err(Failure::other)?;
    let mut ours = Curves::new();
    for name in ["lin_ucb", "thompson"] {
        let spec = parse(&json!({"name": name, "alpha": ALPHA}).to_string())?;
        for &seed in &problem.seeds {
            let curve = play::disjoint(&problem, &prior, spec.policy(), seed)?;
            ours.entry(name.to_owned()).or_default().insert(seed, curve);
        }
    }
    let options = json!({"alpha": ALPHA, "l2": L2});
    let theirs = python.map_or_else(Curves::new, |python| Peer::MabWiser.curves(python, &problem, options));
    for name in ours.keys() {
        compare(report, &format!("regret/{name}"), &ours[name], theirs.get(name));
        growth(report, &format!("sublinear/disjoint/{name}"), &ours[name]);
    }
    let figure = ("regret-disjoint.svg", "Regret with one model for each arm", "MABWiser");
    draw(settings, figure, &problem, [&ours, &theirs])
}

/// One user's weights for all arms, as in Vowpal Wabbit's `--cb_explore_adf`.
fn shared(settings: &Settings, python: Option<&Python>, report: &mut Report) -> Result<(), Failure> {
    eprintln!("  one model for all arms …");
    // Rewards between 0 and 1 with little noise, which suits Vowpal Wabbit's learner and its bounds
    // of costs.
    let problem = Problem { scale: 0.1, noise: 0.1, ..problem(settings) };
    let prior = Prior::isotropic(DIM, L2, problem.noise.powi(2)).map_err(Failure::other)?;
    let mut ours = Curves::new();
    for (name, policy) in SHARED {
        let spec = parse(policy)?;
        for &seed in &problem.seeds {
            let curve = play::shared(&problem, &prior, spec.policy(), seed)?;
            ours.entry(name.to_owned()).or_default().insert(seed, curve);
        }
    }
    let options = json!({"vw": BTreeMap::from(VW)});
    let theirs = python.map_or_else(Curves::new, |python| Peer::VowpalWabbit.curves(python, &problem, options));
    let best = least(&theirs, "");
    for (name, of_policy) in &ours {
        if VW.iter().any(|(of_peer, _)| of_peer == name) {
            compare(report, &format!("regret/{name}"), of_policy, theirs.get(name));
        } else {
            compare(report, &format!("regret/shared/{name}"), of_policy, best.map(|(_, curves)| curves));
        }
        if SUBLINEAR.contains(&name.as_str()) {
            growth(report, &format!("sublinear/{name}"), of_policy);
        }
    }
    for name in TUNED {
        let Some((_, of_policy)) = least(&ours, name) else { continue };
        compare(report, &format!("regret/{name}"), of_policy, least(&theirs, name).map(|(_, curves)| curves));
    }
    let best: Curves = best.map(|(name, curves)| (name.clone(), curves.clone())).into_iter().collect();
    let figure = ("regret-shared.svg", "Regret with one model for all arms", "VW's best");
    draw(settings, figure, &problem, [&ours, &best])
}

/// The feedback loop, in which greedy never corrects its first choice.
fn feedback_loop(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    let seeds = settings.pick(20, 2);
    let rounds = settings.pick(10_000, 200);
    let mut played = BTreeMap::new();
    for name in ["greedy", "epsilon_greedy"] {
        let spec = parse(&json!(name).to_string())?;
        let runs = (1..=seeds).map(|seed| lock_in::play(spec.policy(), rounds, seed));
        let runs: Vec<lock_in::Outcome> = runs.collect::<Result<_, _>>()?;
        let mean = |value: &dyn Fn(&lock_in::Outcome) -> f64| runs.iter().map(value).sum::<f64>() / runs.len() as f64;
        played.insert(name, (mean(&|run| run.regret), mean(&|run| f64::from(run.stuck))));
    }
    let (greedy, epsilon) = (played["greedy"], played["epsilon_greedy"]);
    report.compare("lock_in/epsilon_greedy", "regret", epsilon.0, greedy.0);
    report.compare("lock_in/epsilon_greedy/stuck", "share", epsilon.1, greedy.1);
    Ok(())
}

/// The policy with the lowest regret among those whose names begin with `prefix`.
fn least<'a>(curves: &'a Curves, prefix: &str) -> Option<(&'a String, &'a BTreeMap<u64, Vec<f64>>)> {
    let named = curves.iter().filter(|(name, of_policy)| name.starts_with(prefix) && !of_policy.is_empty());
    named.min_by(|(_, a), (_, b)| total(a, |_| true).total_cmp(&total(b, |_| true)))
}

/// The mean final regret of the seeds for which `counts` holds.
fn total(curves: &BTreeMap<u64, Vec<f64>>, counts: impl Fn(&u64) -> bool) -> f64 {
    let totals: Vec<f64> =
        curves.iter().filter(|(seed, _)| counts(seed)).filter_map(|(_, curve)| curve.last().copied()).collect();
    totals.iter().sum::<f64>() / totals.len() as f64
}

/// Reports our mean regret over all seeds, and the comparison with the peer over the seeds that the
/// peer completed.
fn compare(report: &mut Report, case: &str, ours: &BTreeMap<u64, Vec<f64>>, theirs: Option<&BTreeMap<u64, Vec<f64>>>) {
    report.single(format!("{case}/all_seeds"), "regret", Some(total(ours, |_| true)));
    match theirs.filter(|theirs| !theirs.is_empty()) {
        Some(theirs) => {
            eprintln!("  {case}: the peer managed {} seeds", theirs.len());
            report.compare(case, "regret", total(ours, |seed| theirs.contains_key(seed)), total(theirs, |_| true));
        }
        None => report.measured(case, "regret", total(ours, |_| true), None),
    }
}

/// Reports the regret of the second half of the rounds against that of the first: 1 for linear
/// growth, 0.41 for growth with the square root of the rounds.
fn growth(report: &mut Report, case: &str, curves: &BTreeMap<u64, Vec<f64>>) {
    let mean = |from_end: usize| {
        let points = curves.values().filter_map(|curve| curve.iter().rev().nth(from_end));
        points.sum::<f64>() / curves.len() as f64
    };
    let (all, half) = (mean(0), mean(1));
    report.compare(case, "regret", all - half, half);
}

fn draw(
    settings: &Settings,
    (file, title, peer): (&str, &str, &str),
    problem: &Problem,
    [ours, theirs]: [&Curves; 2],
) -> Result<(), Failure> {
    let Some(path) = settings.figure(file) else { return Ok(()) };
    let series = |name: String, curves: &BTreeMap<u64, Vec<f64>>| {
        let mean = |point: usize| curves.values().map(|curve| curve[point]).sum::<f64>() / curves.len() as f64;
        let points = problem.checkpoints.iter().enumerate().map(|(point, round)| (*round as f64, mean(point)));
        Series { name, points: points.collect() }
    };
    let mut all: Vec<Series> = ours.iter().map(|(name, curves)| series(name.clone(), curves)).collect();
    let played = theirs.iter().filter(|(_, curves)| !curves.is_empty());
    all.extend(played.map(|(name, curves)| series(format!("{peer}: {name}"), curves)));
    Figure { title, x: "rounds", y: "regret so far", series: all }.draw(&path)
}
