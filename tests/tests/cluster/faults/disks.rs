//! Disks that are full.

use rand::RngExt as _;

use crate::run::{Run, scenarios};

scenarios! {
    Default: the_disk_of_a_nats_server_is_full,
    Default: the_disk_of_a_node_is_full,
}

/// Far more than the files of a run take.
const SERVER_MEBIBYTES: u32 = 256;
const NODE_MEBIBYTES: u32 = 1024;

fn the_disk_of_a_nats_server_is_full(run: &mut Run) {
    let server = run.any_server();
    run.cluster.nats.kill(server);
    let skipped = run.cluster.nats.shrink_disk(server, SERVER_MEBIBYTES).is_none();
    run.cluster.nats.start_server(server);
    run.cluster.nats.await_ready();
    if skipped {
        return;
    }
    for stream in 0..3 {
        // So that a leader has no room, too.
        let _ = run.cluster.nats.step_to(&format!("celeris-test-1-s{stream:02}"), server);
    }
    run.cluster.nats.disk(server).fill();
    let seconds = run.rng.random_range(3.0..8.0);
    Run::go_on(seconds);
    run.await_operations(50);
    run.cluster.nats.disk(server).make_room();
    run.cluster.nats.kill(server);
    run.cluster.nats.start_server(server);
    run.cluster.nats.await_ready();
}

fn the_disk_of_a_node_is_full(run: &mut Run) {
    let owner = run.any_owner();
    run.terminate_node(owner);
    let skipped = run.cluster.shrink_disk(owner, NODE_MEBIBYTES).is_none();
    run.start_node(owner);
    run.cluster.await_owners();
    if skipped {
        return;
    }
    run.cluster.disk(owner).fill();
    let seconds = run.rng.random_range(3.0..8.0);
    Run::go_on(seconds);
    // More than clients that all wait for users of this node would complete.
    run.await_operations(200);
    run.cluster.disk(owner).make_room();
    run.kill_node(owner);
    run.start_node(owner);
}
