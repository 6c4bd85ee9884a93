//! Faults under load.
//!
//! `CELERIS_CLUSTER_SEED` repeats a run, `CELERIS_CLUSTER_ROUNDS` runs each scenario that many times.

use std::env;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use celeris_tests::{Client, Cluster, eventually};
use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use crate::checker::check;
use crate::load::{Addresses, Load, MODEL};

/// A cluster under load.
struct Run {
    cluster: Cluster,
    addresses: Addresses,
    load: Load,
    rng: ChaCha8Rng,
}

impl Run {
    fn addresses(cluster: &Cluster) -> Vec<Option<Client>> {
        (0..cluster.len()).map(|node| cluster.runs(node).then(|| cluster.client(node))).collect()
    }

    fn refresh(&self) {
        *self.addresses.lock().expect("no thread panics with the addresses") = Self::addresses(&self.cluster);
    }

    /// Lets the load go on for this long. The time is part of the scenario, not a wait for something.
    fn go_on(seconds: f64) {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            thread::sleep(left);
        }
    }

    fn kill_node(&mut self, node: usize) {
        self.addresses.lock().expect("no thread panics with the addresses")[node] = None;
        self.cluster.kill(node);
    }

    fn restart_node(&mut self, node: usize) {
        self.cluster.start_node(node);
        self.refresh();
    }
}

/// Runs a scenario under load, in as many rounds as asked for, and checks each.
fn under_load(scenario: impl Fn(&mut Run)) {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let rounds = number("CELERIS_CLUSTER_ROUNDS").unwrap_or(1);
    for round in 0..rounds {
        let seed = number("CELERIS_CLUSTER_SEED").unwrap_or_else(|| rand::rng().random::<u32>().into()) + round;
        eprintln!("CELERIS_CLUSTER_SEED={seed}");
        let Some(cluster) = Cluster::start(3, 3) else { return };
        cluster.client(0).post("/v1/models", &json!({"name": MODEL, "dim": 8})).expect(201);
        let body = json!({"user": "nobody", "items": ["item-1"]});
        for node in 0..cluster.len() {
            let served = || (cluster.model(node, MODEL).post("predict", &body).status == 200).then_some(());
            eventually("the node serves the model", served);
        }
        let addresses = Arc::new(Mutex::new(Run::addresses(&cluster)));
        let load = Load::start(&addresses, seed);
        let mut run = Run { cluster, addresses, load, rng: ChaCha8Rng::seed_from_u64(seed) };
        Run::go_on(1.0);
        scenario(&mut run);
        Run::go_on(1.0);
        let Run { cluster, load, .. } = run;
        cluster.nats.await_ready();
        cluster.await_owners();
        let operations = load.stop();
        eprintln!("{} operations", operations.len());
        assert!(operations.len() > 50, "the clients were hardly served");
        check(cluster, &operations);
    }
}

#[test]
fn nothing_is_lost_without_faults() {
    under_load(|_| {});
}

#[test]
fn an_owner_is_killed_and_comes_back() {
    under_load(|run| {
        let (coordinator, owners) = run.cluster.await_owners();
        let owner = owners.into_iter().find(|owner| *owner != coordinator).unwrap_or(coordinator);
        run.kill_node(owner);
        let (_, owners) = run.cluster.await_owners();
        assert!(!owners.contains(&owner));
        Run::go_on(1.0);
        run.restart_node(owner);
    });
}

#[test]
fn the_coordinator_is_killed_and_comes_back() {
    under_load(|run| {
        let (coordinator, _) = run.cluster.await_owners();
        run.kill_node(coordinator);
        let (next, _) = run.cluster.await_owners();
        assert_ne!(next, coordinator);
        run.restart_node(coordinator);
    });
}

#[test]
fn an_owner_is_stopped_while_others_take_over_and_goes_on() {
    under_load(|run| {
        let (_, owners) = run.cluster.await_owners();
        let owner = owners[0];
        let seconds = run.rng.random_range(2.0..12.0);
        run.cluster.signal(owner, "STOP");
        Run::go_on(seconds);
        run.cluster.signal(owner, "CONT");
    });
}

#[test]
fn nats_servers_are_killed_one_after_the_other() {
    under_load(|run| {
        for server in 0..run.cluster.nats.len() {
            run.cluster.nats.kill(server);
            Run::go_on(3.0);
            run.cluster.nats.start_server(server);
            run.cluster.nats.await_ready();
        }
    });
}

#[test]
fn a_nats_server_is_stopped_and_goes_on() {
    under_load(|run| {
        let server = run.rng.random_range(0..run.cluster.nats.len());
        run.cluster.nats.signal(server, "STOP");
        Run::go_on(8.0);
        run.cluster.nats.signal(server, "CONT");
    });
}

#[test]
fn reads_go_on_without_a_quorum_of_nats_servers() {
    under_load(|run| {
        run.cluster.nats.kill(0);
        run.cluster.nats.kill(1);
        let body = json!({"user": "user-1", "items": ["item-1"]});
        for node in 0..run.cluster.len() {
            run.cluster.model(node, MODEL).post("predict", &body).expect(200);
        }
        Run::go_on(2.0);
        run.cluster.nats.start_server(0);
        run.cluster.nats.start_server(1);
    });
}

#[test]
fn everything_is_killed_and_comes_back() {
    under_load(|run| {
        for node in 0..run.cluster.len() {
            run.kill_node(node);
        }
        for server in 0..run.cluster.nats.len() {
            run.cluster.nats.kill(server);
        }
        for server in 0..run.cluster.nats.len() {
            run.cluster.nats.start_server(server);
        }
        run.cluster.nats.await_ready();
        for node in 0..run.cluster.len() {
            run.restart_node(node);
        }
    });
}

#[test]
fn nodes_are_restarted_one_after_the_other() {
    under_load(|run| {
        for node in 0..run.cluster.len() {
            run.addresses.lock().expect("no thread panics with the addresses")[node] = None;
            let exit = run.cluster.terminate(node);
            assert_eq!(exit.code, Some(0), "{}", exit.stderr);
            run.restart_node(node);
            run.cluster.await_owners();
        }
    });
}
