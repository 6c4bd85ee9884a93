//! `celeris-bench topk`: in-process rankings of given items through the predictor, over a real
//! store.

use std::collections::HashMap;

use celeris_bandits::PolicySpec;
use celeris_features::Theta;
use celeris_model::{ItemId, UserModel};
use celeris_predictor::PredictorOptions;
use tokio::runtime::Runtime;

use crate::report::Report;
use crate::requests::{SLOTS, request};
use crate::stopwatch::Durations;
use crate::{Settings, caches, cold, logging};
use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_cli::estimate::warm::{Ids, Warm};
use celeris_cli::serve::runtime;

/// The dimension of the cases with targets.
const DIM: usize = 50;

/// Observations of each requested user.
const HISTORY: usize = 50;

/// Users requested in turn: warm, but more than fit in the nearest CPU cache.
const USERS: usize = 64;

/// The two catalog sizes with targets.
const CATALOGS: [usize; 2] = [10_000, 1_000_000];

/// The two kinds of ranking with targets.
#[derive(Clone, Copy)]
enum Kind {
    Greedy,
    Uncertainty,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::Uncertainty => "uncertainty",
        }
    }

    fn policy(self) -> Result<PolicySpec, Failure> {
        let name = match self {
            Self::Greedy => "greedy",
            Self::Uncertainty => "lin_ucb",
        };
        PolicySpec::named(name).map_err(Failure::other)
    }
}

/// The straightforward baseline: a hash map from item text to row, and a dot product per row.
struct Plain<'a> {
    rows: HashMap<String, usize>,
    theta: &'a Theta,
    weights: Vec<f32>,
    gram_inverse: Vec<f32>,
}

impl<'a> Plain<'a> {
    #[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest f32 is what is asked for")]
    fn new(theta: &'a Theta, state: &UserModel) -> Self {
        let rows = theta.items().iter().enumerate().map(|(row, item)| (item.as_str().to_owned(), row)).collect();
        let single = |values: Vec<f64>| values.into_iter().map(|value| value as f32).collect();
        Self { rows, theta, weights: single(state.weights()), gram_inverse: single(state.gram_inverse()) }
    }

    fn rank(&self, items: &[ItemId], kind: Kind) -> Vec<(f32, usize)> {
        let scores = items.iter().enumerate().filter_map(|(position, item)| {
            let row = self.theta.row(*self.rows.get(item.as_str())?);
            let score = row.offset + dot(&self.weights, row.features);
            let variance = match kind {
                Kind::Greedy => 0.0,
                Kind::Uncertainty => self.variance(row.features),
            };
            Some((score + variance.sqrt(), position))
        });
        let mut scores: Vec<(f32, usize)> = scores.collect();
        scores.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        scores.truncate(SLOTS);
        scores
    }

    /// `x^T A^-1 x`, one item at a time.
    fn variance(&self, x: &[f32]) -> f32 {
        self.gram_inverse.chunks_exact(x.len()).zip(x).map(|(row, x_i)| x_i * dot(row, x)).sum()
    }
}

fn dot(left: &[f32], right: &[f32]) -> f32 {
    left.iter().zip(right).map(|(a, b)| a * b).sum()
}

/// Our durations and the baseline's for one case.
struct Timed {
    ours: Durations,
    baseline: Durations,
}

fn measure(runtime: &Runtime, warm: &Warm, plain: &Plain, case: (Kind, usize, usize)) -> Result<Timed, Failure> {
    let (kind, count, times) = case;
    let policy = kind.policy()?;
    let mut rng = scene::rng(4);
    let mut timed = Timed { ours: Durations::default(), baseline: Durations::default() };
    for _ in 0..times.div_ceil(TURN) {
        for _ in 0..TURN {
            // Created just before use, like a request that was just parsed.
            let request = request(warm, &mut rng, USERS, count, Some(&policy))?;
            let ranking = timed.ours.time(|| runtime.block_on(warm.predictor.topk(&request)));
            let ranking = ranking.map_err(Failure::other)?;
            debug_assert_eq!(ranking.items.len(), SLOTS.min(count));
            std::hint::black_box(ranking);
        }
        for _ in 0..TURN {
            let request = request(warm, &mut rng, USERS, count, Some(&policy))?;
            let ranked = timed.baseline.time(|| plain.rank(&request.items, kind));
            std::hint::black_box(ranked);
        }
    }
    Ok(timed)
}

/// Compares the default policy, pool included, with rankings that compute the uncertainty of every
/// item.
fn default_policy(settings: &Settings, runtime: &Runtime, warm: &Warm, report: &mut Report) -> Result<(), Failure> {
    const COUNT: usize = 1_000;
    let uncertainty = Kind::Uncertainty.policy()?;
    let mut rng = scene::rng(5);
    let mut sides = [(None, Durations::default()), (Some(&uncertainty), Durations::default())];
    for _ in 0..settings.pick(100, 1) {
        for (policy, durations) in &mut sides {
            for _ in 0..TURN {
                let request = request(warm, &mut rng, USERS, COUNT, *policy)?;
                let ranking = durations.time(|| runtime.block_on(warm.predictor.topk(&request)));
                std::hint::black_box(ranking.map_err(Failure::other)?);
            }
        }
    }
    let [ours, baseline] = sides.map(|(_, mut durations)| durations.quantile_micros(0.5));
    report.compare(format!("default/n={COUNT}/d={DIM}"), "us", ours, baseline);
    Ok(())
}

/// Consecutive rankings of one side, before the other side's turn.
const TURN: usize = 20;

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("topk");
    let runtime = runtime()?;
    for catalog in CATALOGS {
        rank(settings, &runtime, &mut report, catalog)?;
    }
    logging::run(settings, &runtime, &mut report)?;
    caches::run(settings, &runtime, &mut report)?;
    cold::run(settings, &runtime, &mut report)?;
    Ok(report)
}

fn rank(settings: &Settings, runtime: &Runtime, report: &mut Report, catalog: usize) -> Result<(), Failure> {
    eprintln!("  a catalog of {catalog} items …");
    // Only features are cached, so every score is computed.
    let options = PredictorOptions { prediction_items_max: 0, ..PredictorOptions::default() };
    let warm = Warm::open(settings.pick(catalog, 2_000), DIM, &options)?;
    runtime.block_on(warm.teach(USERS, HISTORY, Ids::None))?;
    let version = warm.version()?;
    let state = UserModel::from_prior(&version.learning).map_err(Failure::other)?;
    let plain = Plain::new(&version.theta, &state);
    let large = catalog == CATALOGS[1];
    let counts: &[usize] = if large { &[1_000] } else { &[10, 100, 1_000, 10_000] };
    let suffix = if large { format!("/catalog={}", CATALOGS[1]) } else { String::new() };
    if !large {
        default_policy(settings, runtime, &warm, report)?;
    }
    for kind in [Kind::Greedy, Kind::Uncertainty] {
        let mut cost_an_item = Vec::new();
        for &count in counts {
            let times = settings.pick((2_000_000 / count).clamp(200, 2_000), 2);
            let mut timed = measure(runtime, &warm, &plain, (kind, count, times))?;
            let case = format!("{}/n={count}/d={DIM}{suffix}", kind.name());
            let (ours, baseline) = (timed.ours.quantile_micros(0.5), timed.baseline.quantile_micros(0.5));
            report.compare(&case, "us", ours, baseline);
            report.compare(
                format!("{case}/p99"),
                "us",
                timed.ours.quantile_micros(0.99),
                timed.baseline.quantile_micros(0.99),
            );
            cost_an_item.push((count, ours / count as f64));
        }
        let cost = |wanted: usize| cost_an_item.iter().find(|(count, _)| *count == wanted).map(|(_, cost)| cost * 1e3);
        if let (Some(many), Some(few)) = (cost(10_000), cost(1_000)) {
            // Linear cost means the same cost per item for any number of items.
            report.compare(format!("linear/{}", kind.name()), "ns/item", many, few);
        }
    }
    Ok(())
}
