//! The users whose states three nodes hold in memory, against those of one node with the same
//! budget.

use std::path::Path;

use celeris_model::UserId;
use serde_json::json;
use tokio::runtime::Runtime;

use super::nats::Nats;
use super::nodes::{Nodes, Plan, shard_of};
use super::reading::path;
use crate::Settings;
use crate::load::{Sender, ask, connect};
use crate::ndjson::Lines;
use crate::process::Server;
use crate::report::Report;
use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_cli::estimate::warm::Ids;

/// The budget of each node: predictions are not cached, so that each is looked up in the states.
const BUDGETS: [(&str, &str); 2] = [("CELERIS_MEMORY__USERS", "24MiB"), ("CELERIS_MEMORY__PREDICTION_ITEMS", "0")];

const CATALOG: usize = 100;

/// Users, of whom three nodes can hold a part, and observations of each.
const USERS: (usize, usize) = (16_000, 4);

/// # Errors
/// If a request fails.
pub fn run(
    (settings, nats, folder): (&Settings, &Nats, &Path),
    client: &Runtime,
    report: &mut Report,
) -> Result<(), Failure> {
    let (users, each) = settings.pick(USERS, (200, 2));
    let plan = Plan { folder, name: "bench-memory", catalog: CATALOG, dim: super::DIM, configuration: &BUDGETS };
    let (nodes, alone) = Nodes::start(&plan, nats)?;
    let owners = nodes.await_owners()?;
    let held = client.block_on(async {
        let lines = Lines::invent(nodes.items(), users, each, Ids::None, 800)?;
        lines.send(nodes.node(0)).await?;
        lines.send(&alone).await?;
        let cluster: Vec<&Server> = nodes.running().map(|node| nodes.node(node)).collect();
        let by_owner = |user: &UserId| owners[shard_of(user)];
        let item = nodes.items()[0].as_str();
        let ours = held(&cluster, by_owner, (users, item)).await?;
        let baseline = held(&[&alone], |_| 0, (users, item)).await?;
        Ok::<_, Failure>((ours, baseline))
    })?;
    report.compare("users_in_memory", "users", held.0, held.1);
    Ok(())
}

/// Asks for each user, the last observed ones first; returns how many were in memory. Those that were
/// not are loaded, and take the place of users who were asked for already.
async fn held(
    nodes: &[&Server],
    node_of: impl Fn(&UserId) -> usize,
    (users, item): (usize, &str),
) -> Result<f64, Failure> {
    let hits = || -> Result<f64, Failure> {
        let of = |node: &&Server| node.metric("celeris_cache_hits_total{cache=\"users\"}");
        nodes.iter().map(|node| Ok(of(node)?.unwrap_or(0.0))).sum()
    };
    let mut senders: Vec<Sender> = Vec::new();
    for node in nodes {
        senders.push(connect(node.address()).await?);
    }
    let (before, path) = (hits()?, path());
    for number in (0..users).rev() {
        let user = scene::user(number).map_err(Failure::other)?;
        let body = json!({ "user": user, "item": item }).to_string();
        ask(&mut senders[node_of(&user)], &path, body.into()).await?;
    }
    Ok(hits()? - before)
}
