//! Clusters under load, and which scenarios are run on them.

use std::env;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use celeris_tests::fixtures::{ITEMS, features};
use celeris_tests::{Client, Cluster, eventually};
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use crate::checker;
use crate::load::{Addresses, Load, MODEL, Operation};

/// The time in which a run of all tests begins scenarios.
const DRAWN_WITHIN: Duration = Duration::from_secs(35);

/// The cluster that a scenario needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setup {
    Default,
    /// The logs in NATS are trimmed at once, and amendments reach all files at once.
    Forgetful,
    /// Each process is on a host of its own.
    Network,
}

/// What happens to a cluster under load.
#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    pub setup: Setup,
    /// Whether a run of all tests may play it.
    pub is_drawn: bool,
    pub play: fn(&mut Run),
}

/// Lists scenarios, functions of this module, and makes a test of each, of the same name, which is run by its
/// name only. Those that take minutes are played `by hand` only.
macro_rules! scenarios {
    ($($setup:ident $(by $hand:ident)?: $name:ident),+ $(,)?) => {
        pub const SCENARIOS: &[crate::run::Scenario] = &[$(crate::run::Scenario {
            name: stringify!($name),
            setup: crate::run::Setup::$setup,
            is_drawn: {
                let by: &[&str] = &[$(stringify!($hand))?];
                by.is_empty()
            },
            play: $name,
        }),+];

        mod by_name {
            $(#[test]
            #[ignore = "faults_drawn_by_a_seed plays some; by name with --ignored, CELERIS_CLUSTER_ROUNDS times"]
            fn $name() {
                crate::run::rounds(stringify!($name), super::SCENARIOS);
            })+
        }
    };
}
pub(crate) use scenarios;

/// A cluster under load.
pub struct Run {
    pub cluster: Cluster,
    pub rng: ChaCha8Rng,
    /// Whether a node may answer 500, as one does that has found damage and has not given its users up yet.
    pub expects_errors: bool,
    addresses: Addresses,
    load: Load,
}

impl Run {
    fn addresses(cluster: &Cluster) -> Vec<Option<Client>> {
        (0..cluster.len()).map(|node| cluster.runs(node).then(|| cluster.client(node))).collect()
    }

    /// Sends requests to all nodes that run.
    pub fn reach_all(&self) {
        *self.addresses.lock().expect("no thread panics with the addresses") = Self::addresses(&self.cluster);
    }

    /// Lets the load go on for this long. The time is part of the scenario, not a wait for something.
    pub fn go_on(seconds: f64) {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            thread::sleep(left);
        }
    }

    /// Waits until this number of further operations was answered.
    #[track_caller]
    pub fn await_operations(&self, operations: u64) {
        let before = self.load.answered();
        eventually("the clients are served", || (self.load.answered() >= before + operations).then_some(()));
    }

    /// Sends no more requests to a node.
    pub fn avoid(&mut self, node: usize) {
        self.addresses.lock().expect("no thread panics with the addresses")[node] = None;
    }

    pub fn kill_node(&mut self, node: usize) {
        self.avoid(node);
        self.cluster.kill(node);
    }

    /// Stops a node as an operator does.
    #[track_caller]
    pub fn terminate_node(&mut self, node: usize) {
        self.avoid(node);
        let exit = self.cluster.terminate(node);
        assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    }

    #[track_caller]
    pub fn start_node(&mut self, node: usize) {
        self.cluster.start_node(node);
        self.reach_all();
    }

    /// An owner of a shard, if possible one that is not the coordinator.
    #[track_caller]
    pub fn any_owner(&mut self) -> usize {
        let (coordinator, mut owners) = self.cluster.await_owners();
        owners.shuffle(&mut self.rng);
        owners.into_iter().find(|owner| *owner != coordinator).unwrap_or(coordinator)
    }

    /// Any of the NATS servers.
    pub fn any_server(&mut self) -> usize {
        self.rng.random_range(0..self.cluster.nats.len())
    }

    /// The stream of any shard.
    pub fn any_stream(&mut self) -> String {
        format!("celeris-test-1-s{:02}", self.rng.random_range(0..6))
    }
}

/// Whether something comes true in this time.
pub fn within(limit: Duration, mut look: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < limit {
        if look() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().and_then(|text| text.parse().ok())
}

fn any_seed() -> u64 {
    number("CELERIS_CLUSTER_SEED").unwrap_or_else(|| rand::rng().random::<u32>().into())
}

/// Plays a scenario `CELERIS_CLUSTER_ROUNDS` times.
pub fn rounds(name: &str, scenarios: &[Scenario]) {
    let scenario = scenarios.iter().find(|scenario| scenario.name == name).expect("it is listed");
    let seed = any_seed();
    for round in 0..number("CELERIS_CLUSTER_ROUNDS").unwrap_or(1) {
        if play(scenario, seed + round).is_none() {
            return;
        }
    }
}

/// Plays scenarios that a seed draws for as long as a run of all tests may take.
pub fn draw(mut scenarios: Vec<Scenario>) {
    let seed = any_seed();
    scenarios.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let started = Instant::now();
    for scenario in scenarios.into_iter().filter(|scenario| scenario.is_drawn) {
        if started.elapsed() < DRAWN_WITHIN {
            play(&scenario, seed);
        }
    }
}

fn settings(setup: Setup) -> String {
    let forgetful = match setup {
        Setup::Default | Setup::Network => "",
        Setup::Forgetful => "trim_delay = \"1s\"\n[sealing]\ninterval = \"2s\"\n",
    };
    format!("{forgetful}[verification]\ndelay = \"1s\"")
}

/// Plays a scenario under load, and checks what the clients were answered. `None` if it was skipped.
fn play(scenario: &Scenario, seed: u64) -> Option<()> {
    eprintln!("CELERIS_CLUSTER_SEED={seed} {}", scenario.name);
    let started = Instant::now();
    let cluster = match scenario.setup {
        Setup::Network => Cluster::in_network(3, 3)?,
        setup => Cluster::configured(3, 3, &settings(setup))?,
    };
    create_model(&cluster);
    let addresses = Arc::new(Mutex::new(Run::addresses(&cluster)));
    let load = Load::start(&addresses, seed);
    let rng = ChaCha8Rng::seed_from_u64(seed);
    let mut run = Run { cluster, rng, expects_errors: false, addresses, load };
    Run::go_on(1.0);
    (scenario.play)(&mut run);
    Run::go_on(1.0);
    run.cluster.nats.await_ready();
    run.cluster.await_owners();
    let Run { cluster, load, expects_errors, .. } = run;
    let errors = load.errors();
    assert!(expects_errors || errors.is_empty(), "{errors:?}");
    let operations: Vec<Operation> = load.stop();
    assert!(operations.len() > 50, "the clients were hardly served");
    let played = started.elapsed();
    checker::check(cluster, &operations);
    let (played, all) = (played.as_secs_f64(), started.elapsed().as_secs_f64());
    eprintln!("{}: {} operations, {played:.1} s and {:.1} s of checks", scenario.name, operations.len(), all - played);
    Some(())
}

/// The model of the load, and some of its items; those of the load that are not described get the features of
/// unknown items.
fn create_model(cluster: &Cluster) {
    create_model_at(&cluster.client(0));
    let body = json!({"user": "nobody", "items": ["item-1"]});
    for node in 0..cluster.len() {
        let served = || (cluster.model(node, MODEL).post("predict", &body).status == 200).then_some(());
        eventually("the node serves the model", served);
    }
}

pub fn create_model_at(node: &Client) {
    let settings = json!({"name": MODEL, "dim": 8, "gate": {"force": true}});
    node.post("/v1/models", &settings).expect(201);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let line = |item| format!("{}\n", json!({"item": format!("item-{item}"), "features": features(&mut random)}));
    let lines: String = (0..ITEMS).map(line).collect();
    let path = format!("/v1/models/{MODEL}/items");
    let reply = node.try_send("POST", &path, "application/x-ndjson", &lines).expect("the node answers");
    assert!(reply.status == 200 && reply.text.matches("\"effective\"").count() == ITEMS, "{}", reply.text);
}
