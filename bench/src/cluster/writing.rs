//! Observations, one by one and as lines, against raw appends to the same servers.

use std::time::{Duration, Instant};

use celeris_model::UserId;
use hyper::body::Bytes;
use rand::RngExt;
use serde_json::json;
use tokio::runtime::Runtime;

use super::Scene;
use super::nodes::SHARDS;
use super::raw::Raw;
use super::rounds::{Client, Samples, round};
use crate::ndjson::Lines;
use crate::process::MODEL;
use crate::report::Report;
use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_cli::estimate::warm::Ids;

/// A round of observations: many times as long as an append, so that its end weighs little.
const ROUND: [Duration; 2] = [Duration::from_millis(500), Duration::from_millis(100)];

/// Rounds of each side.
const ROUNDS: usize = 12;

/// Distinct observations of a client.
const BODIES: usize = 200;

/// Users of the lines, observations of each, and streams of them.
const LINES: (usize, usize, usize) = (10_000, 8, 3);

/// Where clients send their observations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    /// To the owner of the user, as the map of the cluster tells it.
    Owner,
    /// To any node, which forwards them.
    Any,
}

/// Measures observations one by one; returns the rate of 64 clients.
///
/// # Errors
/// If a request fails.
pub fn observe(scene: &Scene<'_>, client: &Runtime, report: &mut Report) -> Result<f64, Failure> {
    let mut rate = 0.0;
    for (clients, to) in [(1, To::Owner), (64, To::Owner), (256, To::Owner), (1, To::Any), (64, To::Any)] {
        let streams = if clients == 1 { 1 } else { usize::from(SHARDS) };
        let (mut ours, mut baseline) = client.block_on(compare(scene, (clients, to), streams))?;
        let suffix = if to == To::Any { "/any" } else { "" };
        let case = format!("observe/c={clients}{suffix}");
        report.compare(format!("{case}/p50"), "ms", ours.quantile_ms(0.5), baseline.quantile_ms(0.5));
        report.compare(case, "req/s", ours.rate(), baseline.rate());
        if (clients, to) == (64, To::Owner) {
            rate = ours.rate();
        }
    }
    Ok(rate)
}

/// Observations and raw appends in turn.
async fn compare(scene: &Scene<'_>, (clients, to): (usize, To), streams: usize) -> Result<(Samples, Samples), Failure> {
    let path = format!("/v1/models/{MODEL}/observe");
    let length = scene.settings.pick(ROUND[0], ROUND[1]);
    let raw = Raw::create(scene.nats, "group", streams).await?;
    let writers = raw.writers();
    let mut connections = Vec::with_capacity(clients);
    for number in 0..clients {
        connections.push(connection(scene, number, to).await?);
    }
    let (mut ours, mut baseline) = (Samples::default(), Samples::default());
    for number in 0..=scene.settings.pick(ROUNDS, 1) {
        if number == 1 {
            // The first round warmed both sides up.
            (ours, baseline) = (Samples::default(), Samples::default());
        }
        round(&mut connections, &path, length, &mut ours).await?;
        writers.round(clients, length, &mut baseline).await?;
    }
    drop(writers);
    raw.delete().await?;
    Ok((ours, baseline))
}

/// A client with observations of users of one shard, so that clients are spread evenly over the
/// shards, as they are over the raw streams.
async fn connection(scene: &Scene<'_>, number: usize, to: To) -> Result<Client, Failure> {
    let shard = number % usize::from(SHARDS);
    let owner = scene.owners[shard];
    let node = match to {
        To::Owner => owner,
        // Over all nodes, of which one is the owner.
        To::Any => (owner + 1 + number / usize::from(SHARDS)) % scene.nodes.running().count(),
    };
    Client::connect(scene.nodes.address(node), observations(scene, &scene.users[shard], number as u64)?).await
}

/// Observations without ids, so that the same one may be sent again.
pub fn observations(scene: &Scene<'_>, users: &[UserId], seed: u64) -> Result<Vec<Bytes>, Failure> {
    let (mut rng, items) = (scene::rng(600 + seed), scene.nodes.items());
    let mut body = || {
        let (user, item) = (&users[rng.random_range(0..users.len())], &items[rng.random_range(0..items.len())]);
        json!({ "user": user, "item": item, "label": rng.random_range(1..=5_u8) }).to_string().into()
    };
    Ok((0..BODIES).map(|_| body()).collect())
}

/// Measures lines.
///
/// # Errors
/// If a line is rejected.
pub fn lines(scene: &Scene<'_>, client: &Runtime, report: &mut Report) -> Result<(), Failure> {
    let (users, each, streams) = scene.settings.pick(LINES, (50, 2, 1));
    let length = scene.settings.pick(Duration::from_secs(1), ROUND[1]);
    let raw = client.block_on(Raw::create(scene.nats, "blocks", usize::from(SHARDS)))?;
    let mut lasts = Vec::new();
    let (mut count, mut bytes, mut seconds) = (0, 0, 0.0);
    let (mut raw_bytes, mut raw_seconds, mut alone_seconds) = (0, 0.0, 0.0);
    for stream in 0..=streams as u64 {
        let lines = Lines::invent(scene.nodes.items(), users, each, Ids::Given, 700 + stream)?;
        let took = client.block_on(lines.send(scene.nodes.node(0)))?;
        let took_alone = client.block_on(lines.send(scene.alone))?;
        let started = Instant::now();
        let appended = client.block_on(raw.blocks(&mut lasts, length))?;
        // The first stream warms both sides up.
        if stream > 0 {
            (raw_bytes, raw_seconds) = (raw_bytes + appended, raw_seconds + started.elapsed().as_secs_f64());
            (count, bytes, seconds) = (count + lines.count(), bytes + lines.bytes(), seconds + took);
            alone_seconds += took_alone;
        }
    }
    client.block_on(raw.delete())?;
    let megabytes = |bytes: f64, seconds: f64| bytes / 1e6 / seconds;
    let baseline = megabytes(raw_bytes as f64, raw_seconds);
    report.compare("lines", "MB/s", megabytes(bytes as f64, seconds), baseline);
    report.compare("lines/alone", "lines/s", count as f64 / seconds, count as f64 / alone_seconds);
    Ok(())
}
