//! The cache cases of `celeris-bench topk`: the cost of a lookup against that of a score, and hit
//! ratios by budget.

use celeris_bandits::PolicySpec;
use celeris_model::ItemId;
use celeris_predictor::{PredictRequest, PredictorOptions};
use rand_distr::{Distribution, Zipf};
use tokio::runtime::Runtime;

use crate::Settings;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::requests::{asked, request};
use crate::stopwatch::Durations;
use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_cli::estimate::warm::{Ids, Warm};

/// Dimensions at which a lookup is compared with a score.
const DIMS: [usize; 5] = [10, 20, 50, 100, 200];

/// A catalog small enough for all CPU caches, so that only lookup and score differ.
const CATALOG: usize = 10_000;

/// Item counts of the reproduced figure.
const COUNTS: [usize; 5] = [100, 300, 1_000, 3_000, 10_000];

/// Items per request when lookups are measured.
const ASKED: usize = 100;

/// The dimension where hit ratios are measured.
const DIM: usize = 50;

/// Budgets, in percent of the bytes of all entries.
const BUDGETS: [f64; 4] = [5.0, 10.0, 25.0, 50.0];

/// Number of users and items whose bytes are averaged.
const SAMPLE: usize = 100;

/// Observations of a user.
const HISTORY: usize = 20;

/// The exponent of the Zipf popularity: about that of film ratings.
const ZIPF_EXPONENT: f64 = 1.0;

/// Users of the requests, in turn: together more states than fit in a core's cache.
const SMALL_USERS: usize = 1_000;

/// Dimensions and items of the requests by which the default of `memory.prediction_items` was
/// chosen.
const SMALL_DIMS: [usize; 3] = [10, 50, 100];
const SMALL_COUNTS: [usize; 4] = [1, 4, 8, 16];

/// An option value that caches the predictions of every request.
const ALL: usize = usize::MAX;

pub fn run(settings: &Settings, runtime: &Runtime, report: &mut Report) -> Result<(), Failure> {
    look_ups(settings, runtime, report)?;
    small_look_ups(settings, runtime, report)?;
    budgets(settings, runtime, report)
}

fn options(prediction_items_max: usize) -> PredictorOptions {
    PredictorOptions { prediction_items_max, prediction_bytes_max: 1 << 30, ..PredictorOptions::default() }
}

/// The median duration of repeating a ranking, in microseconds.
fn again(runtime: &Runtime, warm: &Warm, count: usize, settings: &Settings) -> Result<f64, Failure> {
    let policy = PolicySpec::named("lin_ucb").map_err(Failure::other)?;
    let mut rng = scene::rng(5);
    let mut durations = Durations::default();
    let times = settings.pick((200_000 / count).clamp(20, 400), 2);
    for _ in 0..settings.pick(3, 1) {
        let request = request(warm, &mut rng, 1, count, Some(&policy))?;
        runtime.block_on(warm.predictor.topk(&request)).map_err(Failure::other)?;
        for _ in 0..times {
            let ranking = durations.time(|| runtime.block_on(warm.predictor.topk(&request)));
            std::hint::black_box(ranking.map_err(Failure::other)?);
        }
    }
    Ok(durations.quantile_micros(0.5))
}

/// `lookup/d=…`: an item of a ranking from the prediction cache, against a computed one. Draws
/// Figure 2.4.
fn look_ups(settings: &Settings, runtime: &Runtime, report: &mut Report) -> Result<(), Failure> {
    let catalog = settings.pick(CATALOG, 200);
    let counts: Vec<usize> = COUNTS.into_iter().filter(|count| *count <= catalog).collect();
    let mut series = Vec::new();
    for dim in DIMS {
        let computing = Warm::open(catalog, dim, &options(0))?;
        let cached = Warm::open(catalog, dim, &options(ALL))?;
        for warm in [&computing, &cached] {
            runtime.block_on(warm.teach(1, HISTORY, Ids::None))?;
        }
        let (hit, computed) = (
            again(runtime, &cached, ASKED, settings)? / ASKED as f64,
            again(runtime, &computing, ASKED, settings)? / ASKED as f64,
        );
        report.compare(format!("lookup/d={dim}"), "ns/item", hit * 1e3, computed * 1e3);
        let points = |warm: &Warm| -> Result<Vec<(f64, f64)>, Failure> {
            counts.iter().map(|count| Ok((*count as f64, again(runtime, warm, *count, settings)? / 1e3))).collect()
        };
        series.push(Series { name: format!("d = {dim}"), points: points(&computing)? });
        if dim == DIMS[DIMS.len() - 1] {
            // A lookup does not depend on the dimension, so one line is enough.
            series.push(Series { name: "cached".to_owned(), points: points(&cached)? });
        }
    }
    let Some(path) = settings.figure("topk-latency.svg") else { return Ok(()) };
    let title = "topK latency against items asked for (Velox, Figure 2.4)";
    Figure { title, x: "items", y: "milliseconds a ranking with uncertainty (median)", series }.draw(&path)
}

/// `lookup/n=…/d=…`: predictions of few items each for many users, from the prediction cache
/// against computed, and `fill/n=…/d=…`: the same where every lookup misses and the predictions are
/// inserted.
fn small_look_ups(settings: &Settings, runtime: &Runtime, report: &mut Report) -> Result<(), Failure> {
    let users = settings.pick(SMALL_USERS, 10);
    for dim in SMALL_DIMS {
        let warm = |prediction_items_max| -> Result<Warm, Failure> {
            let warm = Warm::open(settings.pick(CATALOG, 200), dim, &options(prediction_items_max))?;
            runtime.block_on(warm.teach(users, HISTORY, Ids::None))?;
            Ok(warm)
        };
        let (cached, computing) = (warm(ALL)?, warm(0)?);
        for count in SMALL_COUNTS {
            // Of each side, the first round by itself: it fills the cache.
            let mut first = [Durations::default(), Durations::default()];
            let mut later = [Durations::default(), Durations::default()];
            let rounds = settings.pick(20, 2);
            for round in 0..rounds {
                for (side, warm) in [&cached, &computing].into_iter().enumerate() {
                    let durations = if round == 0 { &mut first[side] } else { &mut later[side] };
                    for user in 0..users {
                        let items = few(warm, user, count);
                        durations.time(|| runtime.block_on(predict(warm, user, items)))?;
                    }
                }
            }
            for (case, durations) in [("lookup", later), ("fill", first)] {
                let [ours, baseline] = durations.map(|mut durations| durations.quantile_micros(0.5) * 1e3);
                report.compare(format!("{case}/n={count}/d={dim}"), "ns", ours, baseline);
            }
        }
    }
    Ok(())
}

/// `count` items for a user, different ones for every count.
fn few(warm: &Warm, user: usize, count: usize) -> Vec<ItemId> {
    let first = user * SMALL_COUNTS[SMALL_COUNTS.len() - 1] + count * 97;
    (first..first + count).map(|index| warm.items[index % warm.items.len()].clone()).collect()
}

/// Lookup counters of a cache.
struct Lookups {
    hits: f64,
    misses: f64,
}

impl Lookups {
    fn until_now(warm: &Warm, cache: &str) -> Self {
        let count = |name| warm.cache_metric(name, cache);
        Self { hits: count("celeris_cache_hits_total"), misses: count("celeris_cache_misses_total") }
    }

    /// The hit ratio of the lookups after `before`.
    fn hit_ratio_since(&self, before: &Self) -> f64 {
        let (hits, misses) = (self.hits - before.hits, self.misses - before.misses);
        hits / (hits + misses)
    }
}

/// The share of requests for the `held` most popular of `count` keys.
fn best_static(count: usize, held: f64) -> f64 {
    let weight = |rank: usize| (rank as f64).powf(-ZIPF_EXPONENT);
    let all: f64 = (1..=count).map(weight).sum();
    (1..=count).take_while(|rank| *rank as f64 <= held).map(weight).sum::<f64>() / all
}

/// `zipf/budget=…`: hit ratios by the share of all bytes that the budget allows, against an ideal
/// static cache of the most popular keys.
fn budgets(settings: &Settings, runtime: &Runtime, report: &mut Report) -> Result<(), Failure> {
    let users = settings.pick(4_000, 100);
    let sample = Warm::open(CATALOG, DIM, &options(ALL))?;
    runtime.block_on(sample.teach(SAMPLE, HISTORY, Ids::None))?;
    let user_bytes = sample.held_bytes("users") / SAMPLE as f64;
    runtime.block_on(predict(&sample, 0, asked(&mut scene::rng(6), &sample.items, SAMPLE)?))?;
    let prediction_bytes = sample.held_bytes("predictions") / SAMPLE as f64;
    drop(sample);
    for percent in BUDGETS {
        let held = users as f64 * percent / 100.0;
        let options = PredictorOptions { user_bytes_max: bytes(held * user_bytes), ..options(0) };
        let warm = Warm::open(CATALOG, DIM, &options)?;
        runtime.block_on(warm.teach(users, HISTORY, Ids::None))?;
        let ours = hit_ratio(settings, runtime, &warm, Popular::Users(users))?;
        report.compare(format!("zipf/budget={percent}%/users"), "hit ratio", ours, best_static(users, held));
    }
    for percent in BUDGETS {
        let held = CATALOG as f64 * percent / 100.0;
        let options = PredictorOptions { prediction_bytes_max: bytes(held * prediction_bytes), ..options(ALL) };
        let warm = Warm::open(CATALOG, DIM, &options)?;
        let ours = hit_ratio(settings, runtime, &warm, Popular::Items)?;
        report.compare(format!("zipf/budget={percent}%/predictions"), "hit ratio", ours, best_static(CATALOG, held));
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes in memory")]
fn bytes(bytes: f64) -> usize {
    bytes as usize
}

/// The keys that are requested by popularity.
#[derive(Clone, Copy)]
enum Popular {
    /// This many users; their states are cached.
    Users(usize),
    /// The items of the catalog, for one user; predictions are cached.
    Items,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank of the distribution is small")]
fn hit_ratio(settings: &Settings, runtime: &Runtime, warm: &Warm, popular: Popular) -> Result<f64, Failure> {
    let (count, cache) = match popular {
        Popular::Users(users) => (users, "users"),
        Popular::Items => (warm.items.len(), "predictions"),
    };
    let zipf = Zipf::new(count as f64, ZIPF_EXPONENT).map_err(Failure::other)?;
    let mut rng = scene::rng(7);
    let requests = settings.pick(40_000, 200);
    let mut before = Lookups::until_now(warm, cache);
    for request in 0..requests {
        if request == requests / 2 {
            // The first half fills the cache.
            before = Lookups::until_now(warm, cache);
        }
        let rank = zipf.sample(&mut rng) as usize - 1;
        let (user, item) = match popular {
            Popular::Users(_) => (rank, 0),
            Popular::Items => (0, rank),
        };
        runtime.block_on(predict(warm, user, vec![warm.items[item].clone()]))?;
    }
    Ok(Lookups::until_now(warm, cache).hit_ratio_since(&before))
}

async fn predict(warm: &Warm, user: usize, items: Vec<ItemId>) -> Result<(), Failure> {
    let user = scene::user(user).map_err(Failure::other)?;
    let request =
        PredictRequest { model: warm.model.clone(), user, items, min_epoch: None, segment: None, context: None };
    warm.predictor.predict(&request).await.map(drop).map_err(Failure::other)
}
