//! `celeris-bench serve`: a node and a bare handler under the same load.

use celeris_model::ItemId;
use hyper::body::Bytes;
use rand::RngExt;
use serde_json::json;

use crate::Settings;
use crate::load::{Load, ROUND, ask_with, client, open};
use crate::ndjson;
use crate::process::{MODEL, Server, prepare};
use crate::report::Report;
use crate::requests::asked;
use celeris_cli::Failure;
use celeris_cli::estimate::scene;

/// Connections of the load.
pub(crate) const CONNECTIONS: usize = 32;

pub(crate) const DIM: usize = 50;

pub(crate) const CATALOG: usize = 10_000;

/// Warm users that are requested.
pub(crate) const USERS: usize = 1_000;

/// Observations of each user.
pub(crate) const HISTORY: usize = 20;

/// Number of distinct requests of each kind.
pub(crate) const REQUESTS: usize = 1_000;

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("serve");
    let dir = tempfile::tempdir().map_err(Failure::other)?;
    let items = prepare(dir.path(), CATALOG, DIM)?;
    let (node, bare, client) = (Server::node(dir.path())?, Server::bare()?, client()?);
    let users = settings.pick(USERS, 10);
    client.block_on(ndjson::teach(&node, &items, users, settings.pick(HISTORY, 2)))?;
    let count = settings.pick(REQUESTS, 20);
    let cases =
        [("predict", "predict", predicts(&items, users, count)?), ("topk/n=100", "topk", topks(&items, users, count)?)];
    for (case, call, bodies) in cases {
        let path = format!("/v1/models/{MODEL}/{call}");
        client.block_on(warm_up(&node, &path, &bodies))?;
        let load = Load {
            connections: CONNECTIONS,
            path: &path,
            bodies: &bodies,
            rounds: settings.pick(60, 1),
            round: settings.pick(ROUND[0], ROUND[1]),
        };
        let (ours, baseline) = load.drive(&client, &node, &bare)?;
        report.compare(case, "req/s", ours.rate, baseline.rate);
        report.compare(format!("{case}/p99"), "us", ours.p99_micros, baseline.p99_micros);
    }
    node.stop()?;
    Ok(report)
}

/// Sends every request once, so that all users are warm.
pub async fn warm_up(node: &Server, path: &str, bodies: &[Bytes]) -> Result<(), Failure> {
    let mut sender = open(node).await?;
    for body in bodies {
        ask_with(&mut sender, path, body.clone(), node.authorization()).await?;
    }
    Ok(())
}

pub fn predicts(items: &[ItemId], users: usize, count: usize) -> Result<Vec<Bytes>, Failure> {
    let mut rng = scene::rng(20);
    let mut body = || -> Result<Bytes, Failure> {
        let user = scene::user(rng.random_range(0..users)).map_err(Failure::other)?;
        let item = &items[rng.random_range(0..items.len())];
        Ok(json!({ "user": user, "item": item }).to_string().into())
    };
    (0..count).map(|_| body()).collect()
}

pub fn topks(items: &[ItemId], users: usize, count: usize) -> Result<Vec<Bytes>, Failure> {
    let mut rng = scene::rng(21);
    let mut body = || -> Result<Bytes, Failure> {
        let user = scene::user(rng.random_range(0..users)).map_err(Failure::other)?;
        let items = asked(&mut rng, items, 100)?;
        Ok(json!({ "user": user, "items": items, "k": 10 }).to_string().into())
    };
    (0..count).map(|_| body()).collect()
}
