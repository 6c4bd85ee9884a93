//! Streams are trimmed, and a copy that needs what was trimmed reports it.

use std::time::Duration;

use async_nats::jetstream::stream::{State, Stream};
use celeris_cluster::short_name;
use celeris_model::LogId;
use tokio::sync::Mutex;

use crate::nodes::{TestNode, eventually, options, settled, stop, user, write};
use crate::servers::{Servers, Sync};

async fn stream_of(servers: &Servers, log: LogId) -> Stream {
    let client = async_nats::connect(servers.urls()).await.unwrap();
    let name = format!("celeris-test-1-{}", short_name(log));
    async_nats::jetstream::new(client).get_stream(name).await.unwrap()
}

/// A node that trims whatever it may, and looks this often.
fn trimming(servers: &Servers, number: usize, upkeep: Duration) -> TestNode {
    let mut node = TestNode::new(options(servers, number));
    node.options.streams.trim_bytes = 0;
    node.options.streams.copies_min = 1;
    node.options.timing.upkeep = upkeep;
    node
}

/// The shard of the first user, and its stream, after many writes: long enough for many looks at the streams.
async fn written(servers: &Servers, nodes: Vec<TestNode>) -> (Vec<TestNode>, LogId, Stream) {
    let nodes = Mutex::new(nodes);
    for number in 0..300 {
        write(&nodes, number).await;
    }
    let nodes = nodes.into_inner();
    let shard = LogId::Shard(nodes[0].running().storage.log().shard_of(&user(0)));
    let stream = stream_of(servers, shard).await;
    (nodes, shard, stream)
}

async fn await_stream(stream: &mut Stream, is_so: impl Fn(&State) -> bool) {
    let deadline = std::time::Instant::now() + crate::nodes::LIMIT;
    while !is_so(&stream.info().await.unwrap().state) {
        assert!(std::time::Instant::now() < deadline, "{:?}", stream.cached_info().state);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_write_of_a_log_does_not_stay_in_the_stream() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let mut node = trimming(&servers, 0, Duration::from_millis(50));
    // What is appended for its sake is not counted on.
    node.options.timing.renew = Duration::from_secs(3600);
    node.start().await.unwrap();
    settled(&[&node]).await;
    let shard = LogId::Shard(node.running().storage.log().shard_of(&user(0)));
    let nodes = Mutex::new(vec![node]);
    write(&nodes, 0).await;
    let mut stream = stream_of(&servers, shard).await;
    // Servers do not rewrite the file that they append to: only the last message takes what was before with it.
    await_stream(&mut stream, |state| state.messages == 0).await;
    // The node goes on from its copy, whose cursor is the end of the log.
    let mut node = nodes.into_inner().remove(0);
    node.stop().await;
    node.start().await.unwrap();
    settled(&[&node]).await;
    assert_eq!(node.running().status(shard).problem, None);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_kept_for_a_node_that_starts() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let mut nodes: Vec<TestNode> = (0..2).map(|number| trimming(&servers, number, Duration::from_millis(20))).collect();
    let joined = nodes[1].join().await.unwrap();
    nodes[0].start().await.unwrap();
    settled(&[&nodes[0]]).await;
    let mut starting = nodes.pop().unwrap();
    let (mut nodes, shard, mut stream) = written(&servers, nodes).await;
    assert_eq!(stream.info().await.unwrap().state.first_sequence, 1);
    starting.start_joined(joined).await.unwrap();
    nodes.push(starting);
    settled(&[&nodes[0], &nodes[1]]).await;
    let ends = || [0, 1].map(|node: usize| nodes[node].running().status(shard).applied);
    eventually("the copy is complete", || ends()[0] == ends()[1]).await;
    // From then on it holds nothing up.
    await_stream(&mut stream, |state| state.first_sequence >= 10).await;
    stop(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_needs_what_was_trimmed_fails_the_node() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let mut nodes: Vec<TestNode> = (0..2).map(|number| trimming(&servers, number, Duration::from_millis(50))).collect();
    for node in &mut nodes {
        node.start().await.unwrap();
    }
    settled(&[&nodes[0], &nodes[1]]).await;
    nodes[1].stop().await;
    settled(&[&nodes[0]]).await;
    let mut behind = nodes.pop().unwrap();
    let (mut nodes, _, mut stream) = written(&servers, nodes).await;
    await_stream(&mut stream, |state| state.first_sequence >= 10).await;
    behind.start().await.unwrap();
    // Whichever log finds it first stops all.
    let failure = behind.running().cluster.failure();
    eventually("the node fails", || failure.borrow().is_some()).await;
    let said = failure.borrow().clone().unwrap();
    assert!(said.contains("the log begins at") && said.contains("start the node again"), "{said}");
    // A copy that has everything goes on.
    nodes[0].stop().await;
    behind.stop().await;
    nodes[0].start().await.unwrap();
    settled(&[&nodes[0]]).await;
    nodes[0].stop().await;
}
