//! Streams are trimmed, and a copy that needs what was trimmed reports it.

use std::time::Duration;

use celeris_cluster::{Phase, Problem};
use celeris_model::LogId;
use tokio::sync::Mutex;

use crate::nodes::{TestNode, eventually, options, settled, user, write};
use crate::servers::{Servers, Sync};

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_needs_what_was_trimmed_is_told_so() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let mut nodes: Vec<TestNode> = (0..2).map(|number| TestNode::new(options(&servers, number))).collect();
    for node in &mut nodes {
        node.options.streams.trim_bytes = 0;
        node.options.streams.copies_min = 1;
        node.options.timing.upkeep = Duration::from_millis(50);
        node.start().await.unwrap();
    }
    settled(&[&nodes[0], &nodes[1]]).await;
    nodes[1].stop().await;
    settled(&[&nodes[0]]).await;
    let mut behind = nodes.pop().unwrap();
    let nodes = Mutex::new(nodes);
    for number in 0..300 {
        write(&nodes, number).await;
    }
    let mut nodes = nodes.into_inner();
    let shard = LogId::Shard(nodes[0].running().storage.log().shard_of(&user(0)));
    let client = async_nats::connect(servers.urls()).await.unwrap();
    let stream = async_nats::jetstream::new(client);
    let LogId::Shard(number) = shard else { unreachable!() };
    let name = format!("celeris-test-1-s{:02}", number.index());
    let mut stream = stream.get_stream(name).await.unwrap();
    let deadline = std::time::Instant::now() + crate::nodes::LIMIT;
    loop {
        let state = stream.info().await.unwrap().state.clone();
        if state.first_sequence >= 10 {
            assert!(state.messages > 0, "the last one stays");
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{state:?}");
    }
    behind.start().await.unwrap();
    eventually("it says that it is behind", || {
        let status = behind.running().status(shard);
        status.phase == Phase::Stuck && matches!(status.problem, Some(Problem::Behind { first, .. }) if first >= 10)
    })
    .await;
    // A copy that has everything goes on.
    nodes[0].stop().await;
    behind.stop().await;
    nodes[0].start().await.unwrap();
    settled(&[&nodes[0]]).await;
    nodes[0].stop().await;
}
