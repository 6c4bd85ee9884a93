//! NATS servers that die or are paused.

use celeris_tests::eventually;
use rand::RngExt as _;
use serde_json::json;

use crate::load::MODEL;
use crate::run::{Run, scenarios};

scenarios! {
    Default: nats_servers_are_killed_one_after_the_other,
    Default: nats_servers_are_restarted_one_after_the_other,
    Default: a_nats_server_is_stopped_and_goes_on,
    Default: the_leader_of_a_log_is_stopped_and_goes_on,
    Default: reads_go_on_without_a_quorum_of_nats_servers,
}

fn nats_servers_are_killed_one_after_the_other(run: &mut Run) {
    for server in 0..run.cluster.nats.len() {
        run.cluster.nats.kill(server);
        Run::go_on(3.0);
        run.cluster.nats.start_server(server);
        run.cluster.nats.await_ready();
    }
}

fn nats_servers_are_restarted_one_after_the_other(run: &mut Run) {
    for server in 0..run.cluster.nats.len() {
        run.cluster.nats.terminate(server);
        run.cluster.nats.start_server(server);
        run.cluster.nats.await_ready();
    }
}

fn stop(run: &mut Run, server: usize) {
    let seconds = run.rng.random_range(2.0..15.0);
    run.cluster.nats.signal(server, "STOP");
    Run::go_on(seconds);
    run.cluster.nats.signal(server, "CONT");
}

fn a_nats_server_is_stopped_and_goes_on(run: &mut Run) {
    let server = run.any_server();
    stop(run, server);
}

fn the_leader_of_a_log_is_stopped_and_goes_on(run: &mut Run) {
    let stream = run.any_stream();
    let leader = eventually("the stream has a leader", || run.cluster.nats.leader(&stream));
    run.cluster.nats.signal(leader, "STOP");
    let next =
        eventually("another server leads", || run.cluster.nats.leader(&stream).filter(|server| *server != leader));
    assert_ne!(next, leader);
    let seconds = run.rng.random_range(0.0..10.0);
    Run::go_on(seconds);
    run.cluster.nats.signal(leader, "CONT");
}

fn reads_go_on_without_a_quorum_of_nats_servers(run: &mut Run) {
    let alive = run.any_server();
    let dead: Vec<usize> = (0..run.cluster.nats.len()).filter(|server| *server != alive).collect();
    for server in &dead {
        run.cluster.nats.kill(*server);
    }
    // A user of the load may have a write under way, for which a reading waits.
    let body = json!({"user": "reader", "items": ["item-1"]});
    for node in 0..run.cluster.len() {
        run.cluster.model(node, MODEL).post("predict", &body).expect(200);
    }
    Run::go_on(2.0);
    for server in &dead {
        run.cluster.nats.start_server(*server);
    }
}
