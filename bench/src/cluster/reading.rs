//! Predictions by the owner of a user, and by another node that forwards them, against a node on its
//! own.

use celeris_model::UserId;
use hyper::body::Bytes;
use rand::RngExt;
use serde_json::json;
use tokio::runtime::Runtime;

use super::Scene;
use crate::load::{Load, ROUND, ask, connect};
use crate::process::{MODEL, Server};
use crate::report::Report;
use celeris_cli::Failure;
use celeris_cli::estimate::scene;

/// Connections of the load.
const CONNECTIONS: usize = 32;

/// Distinct requests.
const REQUESTS: usize = 1_000;

/// Rounds of each node.
const ROUNDS: usize = 60;

/// The path of predictions.
pub fn path() -> String {
    format!("/v1/models/{MODEL}/predict")
}

/// # Errors
/// If a request fails.
pub fn run(scene: &Scene<'_>, client: &Runtime, report: &mut Report) -> Result<(), Failure> {
    let owner = scene.owners[0];
    let other = (owner + 1) % scene.nodes.running().count();
    let bodies = predictions(scene, &scene.users[0], scene.settings.pick(REQUESTS, 20));
    let path = path();
    for node in [scene.nodes.node(owner), scene.alone] {
        client.block_on(warm_up(node, &path, &bodies))?;
    }
    let load = Load {
        connections: CONNECTIONS,
        path: &path,
        bodies: &bodies,
        rounds: scene.settings.pick(ROUNDS, 1),
        round: scene.settings.pick(ROUND[0], ROUND[1]),
    };
    for (case, node) in [("predict/owner", owner), ("predict/forwarded", other)] {
        let (ours, alone) = load.drive(client, scene.nodes.node(node), scene.alone)?;
        report.compare(case, "req/s", ours.rate, alone.rate);
        report.compare(format!("{case}/p99"), "us", ours.p99_micros, alone.p99_micros);
    }
    Ok(())
}

/// Sends every request once, so that all users are warm.
async fn warm_up(node: &Server, path: &str, bodies: &[Bytes]) -> Result<(), Failure> {
    let mut sender = connect(node.address()).await?;
    for body in bodies {
        ask(&mut sender, path, body.clone()).await?;
    }
    Ok(())
}

/// Requests for some of these users.
pub fn predictions(scene: &Scene<'_>, users: &[UserId], count: usize) -> Vec<Bytes> {
    let (mut rng, items) = (scene::rng(620), scene.nodes.items());
    let mut body = || {
        let (user, item) = (&users[rng.random_range(0..users.len())], &items[rng.random_range(0..items.len())]);
        json!({ "user": user, "item": item }).to_string().into()
    };
    (0..count).map(|_| body()).collect()
}
