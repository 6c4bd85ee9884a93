//! `celeris-bench selection`: Clipper's figures on simulated models, and the cost of a choice.

use std::hint::black_box;

use celeris_bandits::selection::trial::{Dialects, Failure as ModelFailure, Kept, Trial, alone, cumulative_mean};
use celeris_bandits::selection::{Exp3, Exp4, HalfLifeRecords, Layout, Outcome, Place, State, Strategy, TsallisInf};

use crate::Settings;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::stopwatch::Least;
use celeris_cli::Failure;

/// Simulated runs, each with its own queries.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=10;

/// Number of queries in which losses decay by half.
const HALF_LIFE: u64 = 1000;

/// Maximum number of points of a line in a figure.
const POINTS: usize = 400;

const STRATEGIES: [&str; 3] = ["exp3", "exp4", "tsallis_inf"];

fn strategy(name: &str) -> Box<dyn Strategy> {
    match name {
        "exp3" => Box::new(Exp3::default()),
        "exp4" => Box::new(Exp4::default()),
        _ => Box::new(TsallisInf::default()),
    }
}

fn half_life() -> Result<Option<HalfLifeRecords>, Failure> {
    HalfLifeRecords::new(HALF_LIFE).map(Some).map_err(Failure::other)
}

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("selection");
    failure(settings, &mut report)?;
    dialects(&mut report)?;
    cost(settings, &mut report)?;
    Ok(report)
}

/// Clipper's figure 8: mean errors over all queries, the weight of the model that failed and
/// recovered, and the plot.
fn failure(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    let best = ModelFailure::NOISE.len() - 1;
    let runs = settings.pick(SEEDS.count(), 2) as f64;
    let (mut errors, mut weights) = ([0.0; STRATEGIES.len()], [0.0; STRATEGIES.len()]);
    let (mut agreed, mut all) = ((0.0, 0.0), (0.0, 0.0));
    let mut singles = vec![0.0; best + 1];
    for seed in SEEDS.take(settings.pick(SEEDS.count(), 2)) {
        let queries = ModelFailure::of_the_paper(seed).queries();
        for (arm, single) in singles.iter_mut().enumerate() {
            *single += alone(&queries, arm).last().copied().unwrap_or_default() / runs;
        }
        for (index, name) in STRATEGIES.iter().enumerate() {
            let strategy = strategy(name);
            let trial = Trial { strategy: &*strategy, half_life: half_life()?, kept: Kept::Together, seed };
            let answered = trial.run(&queries);
            errors[index] += answered.iter().map(|answer| answer.error).sum::<f64>() / answered.len() as f64 / runs;
            let late = &answered[answered.len() - HALF_LIFE as usize..];
            weights[index] += late.iter().map(|answer| answer.weights[best]).sum::<f64>() / late.len() as f64 / runs;
            for answer in &answered {
                let Some(confidence) = answer.confidence else { continue };
                all = (all.0 + answer.error, all.1 + 1.0);
                if confidence >= 0.8 {
                    agreed = (agreed.0 + answer.error, agreed.1 + 1.0);
                }
            }
        }
    }
    let best_single = singles.iter().copied().fold(f64::INFINITY, f64::min);
    for (index, name) in STRATEGIES.iter().enumerate() {
        report.compare(format!("failure/{name}"), "stars", errors[index], best_single);
        report.compare(format!("failure/{name}/readopted"), "weight", weights[index], 1.0 / singles.len() as f64);
    }
    report.compare("agreement/exp4", "stars", agreed.0 / agreed.1, all.0 / all.1);
    report.single("agreement/exp4/share", "share", Some(agreed.1 / all.1));
    draw(settings)
}

/// Draws one run of the failure.
fn draw(settings: &Settings) -> Result<(), Failure> {
    let (Some(errors), Some(weights)) =
        (settings.figure("selection-failure.svg"), settings.figure("selection-weights.svg"))
    else {
        return Ok(());
    };
    let queries = ModelFailure::of_the_paper(*SEEDS.start()).queries();
    let best = ModelFailure::NOISE.len() - 1;
    let mut of_errors: Vec<Series> =
        (0..=best).map(|arm| series(format!("model {}", arm + 1), &alone(&queries, arm))).collect();
    let mut of_weights = Vec::new();
    for name in STRATEGIES {
        let strategy = strategy(name);
        let trial = Trial { strategy: &*strategy, half_life: half_life()?, kept: Kept::Together, seed: *SEEDS.start() };
        let answered = trial.run(&queries);
        let mean = cumulative_mean(answered.iter().map(|answer| answer.error));
        of_errors.push(series(name.to_owned(), &mean));
        let weights: Vec<f64> = answered.iter().map(|answer| answer.weights[best]).collect();
        of_weights.push(series(name.to_owned(), &weights));
    }
    let title = "Model 5 fails after 5,000 queries and recovers after 10,000";
    Figure { title, x: "queries", y: "mean error so far, in stars", series: of_errors }.draw_linear(&errors)?;
    Figure { title, x: "queries", y: "weight of model 5", series: of_weights }.draw_linear(&weights)
}

fn series(name: String, values: &[f64]) -> Series {
    let every = (values.len() / POINTS).max(1);
    let points = values.iter().enumerate().skip(every - 1).step_by(every);
    Series { name, points: points.map(|(at, value)| ((at + 1) as f64, *value)).collect() }
}

/// Clipper's figure 10: a state for each user against one state for all.
fn dialects(report: &mut Report) -> Result<(), Failure> {
    let queries = Dialects { users: 50, queries_each: 400, kinds: 4, seed: 1 }.queries();
    for name in ["exp4", "tsallis_inf"] {
        let strategy = strategy(name);
        let mean = |kept| -> Result<f64, Failure> {
            let answered = Trial { strategy: &*strategy, half_life: half_life()?, kept, seed: 2 }.run(&queries);
            Ok(answered.iter().map(|answer| answer.error).sum::<f64>() / answered.len() as f64)
        };
        report.compare(format!("dialects/{name}"), "stars", mean(Kept::ByUser)?, mean(Kept::Together)?);
    }
    Ok(())
}

/// A choice among five arms by a full state of 64 partitions, with and without new records since
/// the last choice.
fn cost(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    const LANES: usize = 64;
    let half_life = HalfLifeRecords::new(10_000).map_err(Failure::other)?;
    let mut state = State::new(Layout { arms: 5, groups: 1, lanes: LANES, half_life: Some(half_life) });
    let strategy = TsallisInf::default();
    let records: u64 = settings.pick(2_000, 100);
    state.advance(&[records; LANES]);
    for lane in 0..LANES {
        for position in 1..=records {
            let arm = (position % 5) as usize;
            let contribution = strategy.observe(Outcome::Served { arm, propensity: 0.2, loss: 0.5 });
            state.add(Place { lane, position, group: 0 }, &contribution);
        }
    }
    let (mut news, mut choice) = (Least::NONE, Least::NONE);
    let times = settings.pick(100, 1);
    for _ in 0..settings.pick(200, 2) {
        news.sample(times, || (0..times).for_each(|_| drop(black_box(black_box(&state).faded(0)))));
        let faded = state.faded(0);
        choice.sample(times, || (0..times).for_each(|_| drop(black_box(strategy.weights(black_box(&faded))))));
    }
    report.single("choose/arms=5/after-news", "µs", Some(news.micros() + choice.micros()));
    report.single("choose/arms=5", "µs", Some(choice.micros()));
    Ok(())
}
