//! `celeris-bench switch`: latencies during version switches and a training, second by second,
//! under a constant load.
//!
//! The load is paced: every connection has a schedule for its requests, independent of the
//! responses, and latencies are measured from the scheduled times. A second in which the node
//! stalls therefore affects all requests that were scheduled in it. The baseline is the same load
//! in seconds without switches and trainings.

use std::time::{Duration, Instant};

use celeris_model::ItemId;
use futures_util::future::{join, try_join_all};
use hyper::body::Bytes;
use rand::RngExt;
use serde_json::{Value, json};

use crate::Settings;
use crate::load::{ask, client, connect};
use crate::ndjson;
use crate::process::{MODEL, Server, prepare_versions};
use crate::report::Report;
use crate::requests::asked;
use celeris_cli::Failure;
use celeris_cli::estimate::scene;

const DIM: usize = 50;

const CATALOG: usize = 10_000;

/// Warm users.
const USERS: usize = 5_000;

/// Observations of each user.
const HISTORY: usize = 20;

/// Connections of each kind of request.
const CONNECTIONS: usize = 4;

/// Interval between two requests of one connection.
const PACE: Duration = Duration::from_millis(10);

/// Switches and rollbacks.
const SWITCHES: usize = 10;
const ROLLBACKS: usize = 5;

/// Number of distinct requests of each kind.
const REQUESTS: usize = 500;

/// The kinds of requests.
const KINDS: [&str; 3] = ["predict", "topk", "observe"];

/// One request: its scheduled time, and its latency from then.
type Sample = (Instant, Duration);

/// A time span: start and end.
type Span = (Instant, Instant);

/// The samples of the load by kind, and the time spans of events.
struct Seen {
    samples: [Vec<Sample>; 3],
    steady: Vec<Span>,
    switches: Vec<Span>,
    trainings: Vec<Span>,
}

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("switch");
    let dir = tempfile::tempdir().map_err(Failure::other)?;
    let items = prepare_versions(dir.path(), CATALOG, DIM, 2)?;
    let (node, client) = (Server::node(dir.path())?, client()?);
    let users = settings.pick(USERS, 20);
    client.block_on(ndjson::teach(&node, &items, users, settings.pick(HISTORY, 2)))?;
    let bodies = KINDS.map(|kind| bodies(kind, &items, users));
    let seen = client.block_on(drive(&node, bodies, settings))?;
    let second = settings.pick(Duration::from_secs(1), Duration::from_millis(100));
    for (kind, samples) in KINDS.iter().zip(&seen.samples) {
        let steady = p99(within(samples, &seen.steady));
        report.compare(format!("{kind}/switch/p99"), "us", p99(within(samples, &seen.switches)), steady);
        report.compare(format!("{kind}/training/p99"), "us", p99(within(samples, &seen.trainings)), steady);
    }
    let all: Vec<Sample> = seen.samples.concat();
    let steady = p99(within(&all, &seen.steady));
    // The steady seconds show how much of the variation is due to the machine.
    for (during, spans) in [("steady", &seen.steady), ("switch", &seen.switches), ("training", &seen.trainings)] {
        let mut seconds: Vec<f64> =
            spans.iter().flat_map(|span| seconds_of(*span, second)).map(|span| p99(within(&all, &[span]))).collect();
        seconds.sort_unstable_by(f64::total_cmp);
        let median = seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN);
        report.compare(format!("{during}/second/median"), "us", median, steady);
        report.compare(format!("{during}/second/worst"), "us", seconds.last().copied().unwrap_or(f64::NAN), steady);
    }
    let lengths: Vec<f64> = seen.switches.iter().map(|(from, to)| (*to - *from).as_secs_f64()).collect();
    report.single(
        "switch/length",
        "s",
        Some(lengths.iter().sum::<f64>() / lengths.len() as f64 - second.as_secs_f64()),
    );
    let prepared = node.metric(&format!("celeris_switch_prepared{{model=\"{MODEL}\",what=\"users\"}}"))?;
    report.single("users prepared", "users", prepared);
    node.stop()?;
    Ok(report)
}

async fn drive(node: &Server, bodies: [Result<Vec<Bytes>, Failure>; 3], settings: &Settings) -> Result<Seen, Failure> {
    let [predict, topk, observe] = bodies;
    let bodies = [predict?, topk?, observe?];
    let stop = std::cell::Cell::new(false);
    let connections = (0..KINDS.len() * CONNECTIONS).map(|number| {
        let kind = number % KINDS.len();
        let offset = PACE.mul_f64(number as f64 / (KINDS.len() * CONNECTIONS) as f64);
        let (stop, bodies) = (&stop, &bodies[kind]);
        async move { Ok::<_, Failure>((kind, paced(node, KINDS[kind], bodies, offset, stop).await?)) }
    });
    let script = async {
        let happened = happen(node, settings).await;
        stop.set(true);
        happened
    };
    let (asked, happened) = join(try_join_all(connections), script).await;
    let mut seen = happened?;
    for (kind, samples) in asked? {
        seen.samples[kind].extend(samples);
    }
    Ok(seen)
}

/// Sends requests at their scheduled times until `stop` is set.
async fn paced(
    node: &Server,
    call: &str,
    bodies: &[Bytes],
    offset: Duration,
    stop: &std::cell::Cell<bool>,
) -> Result<Vec<Sample>, Failure> {
    let path = format!("/v1/models/{MODEL}/{call}");
    let mut sender = connect(node.address()).await?;
    let mut samples = Vec::new();
    let mut due = Instant::now() + offset;
    for body in bodies.iter().cycle() {
        if stop.get() {
            break;
        }
        tokio::time::sleep_until(due.into()).await;
        ask(&mut sender, &path, body.clone()).await?;
        samples.push((due, due.elapsed()));
        due += PACE;
    }
    Ok(samples)
}

/// Runs the switches and a training, with quiet times between them.
async fn happen(node: &Server, settings: &Settings) -> Result<Seen, Failure> {
    let quiet = settings.pick(Duration::from_secs(2), Duration::from_millis(50));
    let second = settings.pick(Duration::from_secs(1), Duration::from_millis(100));
    let mut seen =
        Seen { samples: Default::default(), steady: Vec::new(), switches: Vec::new(), trainings: Vec::new() };
    let mut sender = connect(node.address()).await?;
    let path = |call: &str| format!("/v1/models/{MODEL}/{call}");
    let empty = || Bytes::from_static(b"{}");
    // Warm-up, not counted.
    tokio::time::sleep(quiet).await;
    let switches = settings.pick(SWITCHES, 2);
    let rollbacks = settings.pick(ROLLBACKS, 1);
    let calls = (0..switches).map(|index| format!("versions/{}/activate", 2 + index % 2));
    for call in calls.chain((0..rollbacks).map(|_| "rollback".to_owned())) {
        let rest = Instant::now();
        tokio::time::sleep(quiet).await;
        let started = Instant::now();
        seen.steady.push((rest, started));
        ask(&mut sender, &path(&call), empty()).await?;
        // Work that remains after the flip counts as part of the switch.
        tokio::time::sleep(second).await;
        seen.switches.push((started, Instant::now()));
    }
    let rest = Instant::now();
    tokio::time::sleep(quiet).await;
    let started = Instant::now();
    seen.steady.push((rest, started));
    retrain(node).await?;
    seen.trainings.push((started, Instant::now()));
    Ok(seen)
}

/// Retrains the model and waits for the job's end.
async fn retrain(node: &Server) -> Result<(), Failure> {
    let accepted: Value = {
        let url = format!("http://{}/v1/models/{MODEL}/retrain", node.address());
        let text = tokio::task::spawn_blocking(move || {
            ureq::post(&url)
                .content_type("application/json")
                .send("{}")
                .and_then(|mut reply| reply.body_mut().read_to_string())
        });
        serde_json::from_str(&text.await.map_err(Failure::other)?.map_err(Failure::other)?).map_err(Failure::other)?
    };
    let url = format!("http://{}/v1/jobs/{}", node.address(), accepted["job"].as_str().unwrap_or_default());
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let url = url.clone();
        let text = tokio::task::spawn_blocking(move || {
            ureq::get(&url).call().and_then(|mut reply| reply.body_mut().read_to_string())
        });
        let job: Value = serde_json::from_str(&text.await.map_err(Failure::other)?.map_err(Failure::other)?)
            .map_err(Failure::other)?;
        match job["state"].as_str() {
            Some("queued" | "running") => {}
            Some("succeeded" | "rejected") => return Ok(()),
            _ => return Err(Failure::other(format!("the training under load failed: {job}"))),
        }
    }
}

/// The latencies of the requests that were scheduled within one of the spans.
fn within<'s>(samples: &'s [Sample], spans: &'s [Span]) -> impl Iterator<Item = Duration> + 's {
    let inside = |due: &Instant| spans.iter().any(|(from, to)| from <= due && due < to);
    samples.iter().filter(move |(due, _)| inside(due)).map(|(_, latency)| *latency)
}

/// The whole seconds of a span; the last one is aligned to its end.
fn seconds_of((from, to): Span, second: Duration) -> Vec<Span> {
    let mut seconds = Vec::new();
    let mut begin = from;
    while begin + second <= to {
        seconds.push((begin, begin + second));
        begin += second;
    }
    if let Some(last) = to.checked_sub(second)
        && begin < to
    {
        seconds.push((last, to));
    }
    seconds
}

/// The 99th percentile, in microseconds; NaN if there are no latencies.
fn p99(latencies: impl Iterator<Item = Duration>) -> f64 {
    let mut latencies: Vec<Duration> = latencies.collect();
    latencies.sort_unstable();
    latencies.get(latencies.len() * 99 / 100).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e6)
}

fn bodies(kind: &str, items: &[ItemId], users: usize) -> Result<Vec<Bytes>, Failure> {
    let mut rng = scene::rng(60 + kind.len() as u64);
    let mut body = || -> Result<Bytes, Failure> {
        let user = scene::user(rng.random_range(0..users)).map_err(Failure::other)?;
        let item = items[rng.random_range(0..items.len())].clone();
        let body = match kind {
            "predict" => json!({ "user": user, "item": item }),
            "topk" => json!({ "user": user, "items": asked(&mut rng, items, 100)?, "k": 10 }),
            _ => json!({ "user": user, "item": item, "label": rng.random_range(1..=5_u8) }),
        };
        Ok(body.to_string().into())
    };
    (0..REQUESTS).map(|_| body()).collect()
}
