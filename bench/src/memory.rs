//! `celeris-bench memory`: a million users on a node whose memory holds few of them: resident
//! memory, restart time, and the latency of users who are not in memory.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use celeris_model::ItemId;
use hyper::body::Bytes;
use rand::RngExt;
use rand_distr::{Distribution, Zipf};

use crate::Settings;
use crate::load::{ask, client, connect};
use crate::ndjson::Lines;
use crate::process::{MODEL, Server, prepare};
use crate::report::Report;
use crate::stopwatch::Durations;
use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_cli::estimate::warm::Ids;

const DIM: usize = 50;

/// The node's budgets, 2 GiB including the store's write buffers.
const BUDGETS: [(&str, &str); 4] = [
    ("CELERIS_MEMORY__USERS", "1664MiB"),
    ("CELERIS_MEMORY__FEATURES", "32MiB"),
    ("CELERIS_MEMORY__PREDICTIONS", "32MiB"),
    ("CELERIS_MEMORY__BLOCKS", "224MiB"),
];

/// The sum of the budgets, in GiB.
const BUDGET_GIB: f64 = 2.0;

const GIB: f64 = (1_u64 << 30) as f64;

/// Users whose observations are generated and sent together; bounds the memory of the bench itself.
const USERS_A_STREAM: usize = 50_000;

/// The exponent of the Zipf popularity.
const ZIPF_EXPONENT: f64 = 1.0;

/// Number of restarts; their median is reported.
const RESTARTS: usize = 5;

/// Polling interval of the resident memory.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("memory");
    let (users, history, requests) = settings.pick((1_000_000, 20, 200_000), (200, 5, 200));
    let dir = tempfile::tempdir().map_err(Failure::other)?;
    let items = prepare(dir.path(), settings.pick(10_000, 100), DIM)?;
    let node = Server::node_with(dir.path(), &BUDGETS)?;
    let few = users / 10;
    let mut largest = watched(&node, || teach(&node, &items, 0..few, history))?;
    node.stop()?;
    let early = restart(dir.path())?;
    report.single(format!("restart/observations={}", few * history), "s", Some(early));
    let node = Server::node_with(dir.path(), &BUDGETS)?;
    largest = largest.max(watched(&node, || teach(&node, &items, few..users, history))?);
    largest = largest.max(watched(&node, || zipf(&node, &items, users, requests))?);
    report.compare(format!("resident/users={users}"), "GiB", largest, BUDGET_GIB);
    node.stop()?;
    report.compare(format!("restart/observations={}", users * history), "s", restart(dir.path())?, early);
    let node = Server::node_with(dir.path(), &BUDGETS)?;
    let mut touched = first_touches(&node, &items, users, settings.pick(20_000, 50))?;
    report.single("first_touch/p50", "ms", Some(touched.quantile_micros(0.5) / 1e3));
    report.single("first_touch/p99", "ms", Some(touched.quantile_micros(0.99) / 1e3));
    node.stop()?;
    Ok(report)
}

/// The median time from process start to readiness, on a cleanly stopped data directory, in
/// seconds.
fn restart(data_dir: &Path) -> Result<f64, Failure> {
    let mut durations = Durations::default();
    for _ in 0..RESTARTS {
        let started = Instant::now();
        let node = Server::node_with(data_dir, &BUDGETS)?;
        durations.add(started.elapsed());
        node.stop()?;
    }
    Ok(durations.quantile_micros(0.5) / 1e6)
}

/// Does the work; returns the node's peak resident memory meanwhile, in GiB.
fn watched(node: &Server, work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let (largest, done) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                largest.fetch_max(node.resident_bytes().unwrap_or(0), Ordering::Relaxed);
                thread::sleep(LOOK_EVERY);
            }
        });
        let outcome = work();
        done.store(true, Ordering::Relaxed);
        outcome
    })?;
    Ok(largest.into_inner() as f64 / GIB)
}

fn teach(node: &Server, items: &[ItemId], users: Range<usize>, history: usize) -> Result<(), Failure> {
    let client = client()?;
    for first in users.clone().step_by(USERS_A_STREAM) {
        let some = first..users.end.min(first + USERS_A_STREAM);
        eprintln!("  observations of users {} to {} …", some.start, some.end);
        let lines = Lines::of_users(items, some, history, Ids::None, first as u64)?;
        client.block_on(lines.send(node))?;
    }
    Ok(())
}

fn body(user: usize, item: &ItemId) -> Result<Bytes, Failure> {
    let user = scene::user(user).map_err(Failure::other)?;
    Ok(Bytes::from(format!(r#"{{"user":"{user}","item":"{item}"}}"#)))
}

/// Requests predictions for users by popularity, which is independent of the order of arrival.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank of the distribution is small")]
fn zipf(node: &Server, items: &[ItemId], users: usize, requests: usize) -> Result<(), Failure> {
    eprintln!("  {requests} predictions by a Zipf law …");
    let law = Zipf::new(users as f64, ZIPF_EXPONENT).map_err(Failure::other)?;
    let mut rng = scene::rng(81);
    let path = format!("/v1/models/{MODEL}/predict");
    client()?.block_on(async {
        let mut sender = connect(node.address()).await?;
        for _ in 0..requests {
            let rank = law.sample(&mut rng) as usize - 1;
            // A large odd stride spreads the popular users over all ids.
            let user = rank.wrapping_mul(7_368_787) % users;
            ask(&mut sender, &path, body(user, &items[rng.random_range(0..items.len())])?).await?;
        }
        Ok(())
    })
}

/// The first predictions since the node's start for each of `count` users, over one connection.
fn first_touches(node: &Server, items: &[ItemId], users: usize, count: usize) -> Result<Durations, Failure> {
    let path = format!("/v1/models/{MODEL}/predict");
    let mut durations = Durations::default();
    client()?.block_on(async {
        let mut sender = connect(node.address()).await?;
        for number in 0..count.min(users) {
            let user = number.wrapping_mul(7_368_787) % users;
            let body = body(user, &items[number % items.len()])?;
            let asked = Instant::now();
            ask(&mut sender, &path, body).await?;
            durations.add(asked.elapsed());
        }
        Ok(durations)
    })
}
