//! `celeris-bench observe`: a node that ingests feedback, against a handler that parses and returns
//! the same JSON.

use celeris_model::ItemId;
use hyper::body::Bytes;
use rand::RngExt;
use serde_json::json;

use crate::load::{Load, ROUND, client};
use crate::ndjson::{Lines, teach};
use crate::process::{MODEL, Server, prepare};
use crate::report::Report;
use crate::{Settings, bytes};
use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_cli::estimate::warm::Ids;

const DIM: usize = 50;

const CATALOG: usize = 10_000;

/// Warm users of the NDJSON stream.
const USERS: usize = 10_000;

/// Observations of each user before the measured streams. At this count, the state has just been
/// solved from scratch.
const HISTORY: usize = 32;

/// Observations of each user in one measured stream.
const EACH: usize = 16;

/// Number of measured streams. Together they bring every user to 64 observations, so that the next
/// solve is included.
const STREAMS: usize = 2;

/// Connections, and rounds of each server. With 50 rounds, the ratio of two busy servers varies by
/// a tenth between runs.
const LOADS: [(usize, usize); 3] = [(1, 50), (2, 50), (64, 200)];

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("observe");
    let dir = tempfile::tempdir().map_err(Failure::other)?;
    let items = prepare(dir.path(), CATALOG, DIM)?;
    let (node, bare, client) = (Server::node(dir.path())?, Server::bare()?, client()?);
    let users = settings.pick(USERS, 50);
    client.block_on(teach(&node, &items, users, settings.pick(HISTORY, 2)))?;
    let (mut lines_sent, mut ours, mut baseline) = (0.0, 0.0, 0.0);
    for stream in 0..STREAMS {
        let lines = Lines::invent(&items, users, settings.pick(EACH, 2), Ids::Given, 40 + stream as u64)?;
        lines_sent += lines.count() as f64;
        ours += client.block_on(lines.send(&node))?;
        baseline += client.block_on(lines.send(&bare))?;
    }
    report.compare("ndjson", "lines/s", lines_sent / ours, lines_sent / baseline);
    let bodies = bodies(&items, users, settings.pick(20_000, 100))?;
    for (connections, rounds) in LOADS {
        let load = Load {
            connections,
            path: &format!("/v1/models/{MODEL}/observe"),
            bodies: &bodies,
            rounds: settings.pick(rounds, 1),
            round: settings.pick(ROUND[0], ROUND[1]),
        };
        let (ours, baseline) = load.drive(&client, &node, &bare)?;
        report.compare(format!("http/c={connections}"), "req/s", ours.rate, baseline.rate);
        report.compare(format!("http/c={connections}/p99"), "us", ours.p99_micros, baseline.p99_micros);
    }
    node.stop()?;
    for (case, ids) in [("bytes/id=none", Ids::None), ("bytes/id=32", Ids::Given)] {
        report.single(case, "bytes", bytes::per_observation(settings, ids)?);
    }
    Ok(report)
}

/// Observations without ids, so that the same one may be sent again.
pub fn bodies(items: &[ItemId], users: usize, count: usize) -> Result<Vec<Bytes>, Failure> {
    let mut rng = scene::rng(50);
    let mut body = || -> Result<Bytes, Failure> {
        let user = scene::user(rng.random_range(0..users)).map_err(Failure::other)?;
        let item = &items[rng.random_range(0..items.len())];
        Ok(json!({ "user": user, "item": item, "label": rng.random_range(1..=5_u8) }).to_string().into())
    };
    (0..count).map(|_| body()).collect()
}
