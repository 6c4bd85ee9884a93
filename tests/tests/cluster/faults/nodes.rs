//! Nodes that die, are paused, or are restarted.

use std::fs;

use celeris_tests::eventually;
use rand::RngExt as _;

use crate::run::{Run, scenarios};

scenarios! {
    Default: nothing_is_lost_without_faults,
    Default: an_owner_is_killed_and_comes_back,
    Default: the_coordinator_is_killed_and_comes_back,
    Default: an_owner_is_stopped_while_others_take_over_and_goes_on,
    Default by hand: an_owner_is_stopped_for_any_time_up_to_thirty_seconds,
    Default: everything_is_killed_and_comes_back,
    Default: nodes_are_restarted_one_after_the_other,
    Forgetful: a_node_comes_back_after_its_tail_was_trimmed,
    Default: a_node_comes_back_with_an_empty_folder,
}

fn nothing_is_lost_without_faults(_run: &mut Run) {}

fn an_owner_is_killed_and_comes_back(run: &mut Run) {
    let owner = run.any_owner();
    run.kill_node(owner);
    let (_, owners) = run.cluster.await_owners();
    assert!(!owners.contains(&owner));
    Run::go_on(1.0);
    run.start_node(owner);
}

fn the_coordinator_is_killed_and_comes_back(run: &mut Run) {
    let (coordinator, _) = run.cluster.await_owners();
    run.kill_node(coordinator);
    let (next, _) = run.cluster.await_owners();
    assert_ne!(next, coordinator);
    run.start_node(coordinator);
}

fn stop_an_owner(run: &mut Run, seconds: f64) {
    let (_, owners) = run.cluster.await_owners();
    let owner = owners[run.rng.random_range(0..owners.len())];
    run.cluster.signal(owner, "STOP");
    Run::go_on(seconds);
    run.cluster.signal(owner, "CONT");
}

fn an_owner_is_stopped_while_others_take_over_and_goes_on(run: &mut Run) {
    let seconds = run.rng.random_range(2.0..12.0);
    stop_an_owner(run, seconds);
}

fn an_owner_is_stopped_for_any_time_up_to_thirty_seconds(run: &mut Run) {
    let seconds = run.rng.random_range(2.0..30.0);
    stop_an_owner(run, seconds);
}

fn everything_is_killed_and_comes_back(run: &mut Run) {
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
        run.start_node(node);
    }
}

fn nodes_are_restarted_one_after_the_other(run: &mut Run) {
    for node in 0..run.cluster.len() {
        run.terminate_node(node);
        run.start_node(node);
        run.cluster.await_owners();
    }
}

fn a_node_comes_back_after_its_tail_was_trimmed(run: &mut Run) {
    let owner = run.any_owner();
    run.kill_node(owner);
    // The node has applied nothing beyond this.
    let ends = run.cluster.nats.streams(0);
    eventually("the logs are trimmed beyond what the node has", || {
        let streams = run.cluster.nats.streams(0);
        let first = |name: &str| streams.iter().find(|stream| stream.name == name).map(|stream| stream.first);
        let shards = ends.iter().filter(|stream| stream.name.contains("-s"));
        shards.clone().all(|end| first(&end.name).is_some_and(|first| first > end.last + 1)).then_some(())
    });
    run.start_node(owner);
    let (_, owners) = run.cluster.await_owners();
    assert!(owners.contains(&owner), "{owners:?}");
}

fn a_node_comes_back_with_an_empty_folder(run: &mut Run) {
    let owner = run.any_owner();
    run.kill_node(owner);
    fs::remove_dir_all(run.cluster.data_dir(owner)).unwrap();
    run.start_node(owner);
}
