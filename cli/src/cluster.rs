//! `celeris cluster`: the state of a cluster, draining of a node, and recovery from a copy.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::iter;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use celeris_api::cluster::{begin_incarnation, check_recovery, replace_secret};
use celeris_api::config::{self, Config};
use celeris_api::node::StartError;
use celeris_storage::{Storage, StorageOptions};
use serde_json::{Value, json};

use crate::Failure;
use crate::models::{aligned, print};
use crate::node_client::{NodeArgs, NodeClient};
use crate::serve::runtime;

/// Between two lines of `status --watch`.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// A backup of a copy that may be older than this is not made.
const STALE_SECONDS: f64 = 60.0;

/// How long `drain` waits for the other nodes.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Shows and operates a cluster.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Shows the nodes, their users and the state of the logs, as one node knows them.
    Status(StatusArgs),
    /// Has a node give its users up to the other nodes, and waits until it has; then it can be stopped.
    Drain(DrainArgs),
    /// Makes the copy of the store in a data directory the log of the cluster: after the loss of the logs in
    /// NATS, or to begin a cluster with the store of a node on its own.
    Recover(RecoverArgs),
    /// Gives a cluster whose nodes are all stopped the secret that `cluster.secret_file` names, in place of the one it has; or
    /// none.
    Secret(SecretArgs),
}

#[derive(Debug, clap::Args)]
struct SecretArgs {
    /// The configuration of a node, in TOML, with the section `[cluster]`.
    #[arg(long)]
    config: PathBuf,
}

#[derive(Debug, clap::Args)]
struct StatusArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// Prints the answer of the node as JSON.
    #[arg(long, conflicts_with = "watch")]
    json: bool,
    /// Prints one line a second until it is stopped.
    #[arg(long)]
    watch: bool,
}

#[derive(Debug, clap::Args)]
struct DrainArgs {
    /// The node to drain.
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Debug, clap::Args)]
struct RecoverArgs {
    /// The data directory of a node that does not run: of all copies, the one with the most observations.
    #[arg(long)]
    data_dir: PathBuf,
    /// The configuration of the node, in TOML, with the section `[cluster]`.
    #[arg(long)]
    config: PathBuf,
    /// Does it. Without, the command only says what it would do.
    #[arg(long)]
    yes: bool,
    /// Loses what the logs in the NATS servers have beyond the store; without, that is an error.
    #[arg(long)]
    discard_logs: bool,
}

/// # Errors
/// If the node cannot be reached or is in no cluster, or the recovery is not possible.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Status(args) => status(args),
        Command::Drain(args) => drain(args),
        Command::Recover(args) => recover(args),
        Command::Secret(args) => secret(args),
    }
}

/// The answer of a node in a cluster.
fn cluster_of(client: &NodeClient) -> Result<Value, Failure> {
    let reply = client.get("/v1/cluster")?;
    if reply["enabled"] == true {
        return Ok(reply);
    }
    Err(Failure::bad_input(format!("{}: the node is in no cluster; its configuration has no [cluster]", client.url())))
}

fn status(args: &StatusArgs) -> Result<(), Failure> {
    let client = NodeClient::new(&args.node);
    if args.watch {
        cluster_of(&client)?;
        return watch(&args.node);
    }
    let reply = cluster_of(&client)?;
    if args.json {
        return print(&format!("{reply}\n"));
    }
    print(&as_text(&reply))
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn as_text(reply: &Value) -> String {
    let (map, status) = (&reply["map"], &reply["status"]);
    let mut text = format!(
        "cluster {}, incarnation {}, map {}.{}, as node {} knows it\n\n",
        text_of(&status["cluster"]),
        status["incarnation"],
        map["revision"]["epoch"],
        map["revision"]["number"],
        text_of(&map["node"]),
    );
    let header = ["NODE", "STATE", "SHARDS", "URL", ""].map(str::to_owned);
    let nodes = list(&status["nodes"]).map(|node| node_row(node, map));
    text.push_str(&aligned(&iter::once(header).chain(nodes).collect::<Vec<_>>()));
    text.push('\n');
    let header = ["LOG", "OWNER", "EPOCH", "APPLIED", "SYNCED", "LACKS", "AGE", "THIS NODE"].map(str::to_owned);
    let logs = list(&status["logs"]).map(log_row);
    text.push_str(&aligned(&iter::once(header).chain(logs).collect::<Vec<_>>()));
    text.push_str(
        "Applied: the last batch in the copy of this node. Synced: the last one that a power failure leaves; an owner does\nnot sync what only says that it is alive. Lacks: the batches that are not here yet. Age: in seconds, at most.\n",
    );
    if let Some(failure) = status["failure"].as_str() {
        let _ = writeln!(text, "\n{failure}");
    }
    text
}

fn node_row(node: &Value, map: &Value) -> [String; 5] {
    let is = |state: &str| node[state] == true;
    let state = match (is("live"), is("draining")) {
        (false, _) if is("starting") => "starting",
        (false, _) => "DOWN",
        (true, true) => "draining",
        (true, false) => "live",
    };
    let is_coordinator = node["node"] == map["coordinator"];
    // The catalog is a log too.
    let shards = node["owns"].as_u64().unwrap_or(0).saturating_sub(u64::from(is_coordinator));
    let role = if is_coordinator { "coordinator" } else { "" };
    [
        text_of(&node["node"]).to_owned(),
        state.to_owned(),
        shards.to_string(),
        text_of(&node["url"]).to_owned(),
        role.to_owned(),
    ]
}

fn log_row(log: &Value) -> [String; 8] {
    let problem = log["problem"].as_str().map(|problem| format!(": {problem}")).unwrap_or_default();
    [
        text_of(&log["log"]).to_owned(),
        text_of(&log["owner"]).to_owned(),
        log["epoch"].to_string(),
        log["applied"].to_string(),
        log["durable"].to_string(),
        log["lag"].as_u64().map_or_else(|| "-".to_owned(), |lag| lag.to_string()),
        log["staleness_seconds"].as_f64().map_or_else(|| "-".to_owned(), |age| format!("{age:.0}")),
        format!("{}{problem}", text_of(&log["phase"])),
    ]
}

/// One line a second: who owns how many shards, and how fast the logs grow. If the node does not answer,
/// another one that it has named is asked.
fn watch(args: &NodeArgs) -> Result<(), Failure> {
    let mut urls = vec![args.url.clone()];
    let mut last: Option<(Instant, u64)> = None;
    loop {
        let reply = urls.iter().find_map(|url| cluster_of(&NodeClient::new(&args.at(url))).ok());
        let line = match reply {
            Some(reply) => {
                urls = list(&reply["map"]["nodes"]).map(|node| text_of(&node["url"]).to_owned()).collect();
                urls.push(args.url.clone());
                let batches: u64 = list(&reply["status"]["logs"]).filter_map(|log| log["applied"].as_u64()).sum();
                let now = Instant::now();
                let rate = last.map(|(at, before)| batches.saturating_sub(before) as f64 / (now - at).as_secs_f64());
                last = Some((now, batches));
                as_line(&reply, rate.unwrap_or(0.0))
            }
            None => "no node of the cluster answers".to_owned(),
        };
        print(&format!("{} {line}\n", jiff::Zoned::now().strftime("%H:%M:%S")))?;
        thread::sleep(WATCH_EVERY);
    }
}

fn as_line(reply: &Value, rate: f64) -> String {
    let (map, status) = (&reply["map"], &reply["status"]);
    let mut shards: BTreeMap<&str, usize> = list(&map["nodes"]).map(|node| (text_of(&node["node"]), 0)).collect();
    let mut unowned = 0;
    for shard in list(&map["shards"]) {
        match shard["owner"].as_str() {
            Some(owner) => *shards.entry(owner).or_default() += 1,
            None => unowned += 1,
        }
    }
    let owners: Vec<String> = shards.iter().map(|(node, count)| format!("{node}:{count}")).collect();
    let lag: u64 = list(&status["logs"]).filter_map(|log| log["lag"].as_u64()).max().unwrap_or(0);
    let problems = list(&status["logs"]).filter(|log| !log["problem"].is_null()).count();
    format!(
        "shards {}, without owner {unowned}, coordinator {}, {rate:.0} batches/s, lag {lag}, problems {problems}",
        owners.join(" "),
        text_of(&map["coordinator"])
    )
}

fn drain(args: &DrainArgs) -> Result<(), Failure> {
    let client = NodeClient::new(&args.node);
    cluster_of(&client)?;
    client.post("/v1/cluster/drain", &json!({}))?;
    let until = Instant::now() + DRAIN_TIMEOUT;
    loop {
        let reply = cluster_of(&client)?;
        let node = text_of(&reply["map"]["node"]).to_owned();
        let owns = list(&reply["status"]["nodes"]).find(|other| other["node"] == node.as_str());
        let owns = owns.and_then(|node| node["owns"].as_u64()).unwrap_or(0);
        if owns == 0 {
            return print(&format!("node {node} owns nothing any more and can be stopped\n"));
        }
        let takes = |other: &Value| other["live"] == true && other["draining"] != true;
        if !list(&reply["status"]["nodes"]).any(takes) {
            return Err(Failure::other(format!(
                "node {node} keeps its {owns} logs: all other nodes are down or drain as well; a node that is started \
                 again does not drain any more"
            )));
        }
        if Instant::now() > until {
            let seconds = DRAIN_TIMEOUT.as_secs();
            return Err(Failure::other(format!(
                "node {node} owns {owns} logs still, after {seconds} seconds; see `celeris cluster status`"
            )));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Why the copy of the store of the node that gave this answer is not to be relied on.
fn flaw(reply: &Value) -> Option<String> {
    let status = &reply["status"];
    if let Some(failure) = status["failure"].as_str() {
        return Some(failure.to_owned());
    }
    list(&status["logs"]).find_map(|log| {
        let name = text_of(&log["log"]);
        match text_of(&log["phase"]) {
            "stuck" => Some(format!("{name}: {}", text_of(&log["problem"]))),
            "following" => match log["staleness_seconds"].as_f64() {
                Some(age) if age <= STALE_SECONDS => None,
                Some(age) => Some(format!("its copy of {name} may be {age:.0} seconds old")),
                None => Some(format!("it does not know how old its copy of {name} is")),
            },
            _ => None,
        }
    })
}

/// Fails if the node is in a cluster and its store lacks what others have, and names a better node.
///
/// # Errors
/// Also if the node cannot be reached.
pub fn check_is_whole(args: &NodeArgs, client: &NodeClient) -> Result<(), Failure> {
    let reply = client.get("/v1/cluster")?;
    let Some(flaw) = flaw(&reply) else { return Ok(()) };
    let better = list(&reply["map"]["nodes"]).find(|node| {
        let client = NodeClient::new(&args.at(text_of(&node["url"])));
        cluster_of(&client).is_ok_and(|reply| self::flaw(&reply).is_none())
    });
    let advice = match better {
        Some(node) => format!("node {} is up to date: --url {}", text_of(&node["node"]), text_of(&node["url"])),
        None => "no other node is known to be better; see `celeris cluster status`".to_owned(),
    };
    Err(Failure::other(format!("node {} is not up to date: {flaw}. {advice}", text_of(&reply["map"]["node"]))))
}

/// The number of events in a store.
fn events_of(storage: &Storage) -> u64 {
    storage.log().streams().iter().map(|stream| storage.log().watermark(stream).records()).sum()
}

/// The configuration of a node of a cluster.
fn of_cluster(file: &Path) -> Result<Config, Failure> {
    let config = config::load(Some(file), None).map_err(Failure::BadInput)?;
    if config.cluster.name.is_none() {
        return Err(Failure::bad_input(format!("{}: there is no section [cluster] with a name", file.display())));
    }
    Ok(config)
}

fn secret(args: &SecretArgs) -> Result<(), Failure> {
    let config = of_cluster(&args.config)?;
    let has_secret = runtime()?.block_on(replace_secret(&config.cluster)).map_err(StartError::Cluster)?;
    let name = config.cluster.name.unwrap_or_default();
    print(&if has_secret {
        format!("cluster {name} has this secret: nodes without it do not join\n")
    } else {
        format!("cluster {name} has no secret: the next node with one gives it its own\n")
    })
}

fn recover(args: &RecoverArgs) -> Result<(), Failure> {
    let config = of_cluster(&args.config)?;
    let storage = Storage::open_existing(&args.data_dir, &StorageOptions::default())?;
    let events = events_of(&storage);
    let of = match storage.cluster()? {
        Some(cluster) => format!("copy of cluster {}, incarnation {}", cluster.name, cluster.incarnation),
        None => "store of a node on its own".to_owned(),
    };
    print(&format!("{}: {of}, with {events} events\n", args.data_dir.display()))?;
    let runtime = runtime()?;
    if !args.yes {
        let batches = runtime.block_on(check_recovery(&config.cluster, &storage)).map_err(StartError::Cluster)?;
        if batches > 0 {
            print(&format!(
                "The NATS servers have {batches} batches that this store lacks: a node that starts with it, without a recovery, \
                 reads them. --discard-logs loses them.\n"
            ))?;
        }
        return print(
            "With --yes, this store becomes the log of the cluster. What other copies have beyond it is lost: compare the numbers of \
             events first, and stop all nodes. The other nodes then get a copy of it when they start, and set aside what they have.\n",
        );
    }
    let next = begin_incarnation(&config.cluster, &storage, args.discard_logs);
    let next = runtime.block_on(next).map_err(StartError::Cluster)?;
    storage.begin_incarnation(&next)?;
    print(&format!("incarnation {} of cluster {} begins with it; start this node first\n", next.incarnation, next.name))
}
