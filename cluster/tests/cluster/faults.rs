//! Faults of servers, of the network, and of messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use celeris_cluster::batch::{Batch, Body};
use celeris_cluster::{Phase, Problem};
use celeris_model::LogId;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, watch};

use crate::nodes::{assert_equal_and_complete, eventually, settled, start, stop, user, write};
use crate::servers::{Servers, Sync};

/// A way to a server that can be closed: connections through it end, and others are not accepted.
pub struct Gate {
    pub port: u16,
    is_open: watch::Sender<bool>,
}

impl Gate {
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_open = watch::Sender::new(true);
        let state = is_open.subscribe();
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let mut state = state.clone();
                tokio::spawn(async move {
                    if !*state.borrow() {
                        return;
                    }
                    let Ok(mut to) = TcpStream::connect(("127.0.0.1", to)).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut from, &mut to) => {}
                        _ = state.wait_for(|is_open| !*is_open) => {}
                    }
                });
            }
        });
        Self { port, is_open }
    }

    pub fn close(&self) {
        self.is_open.send_replace(false);
    }

    pub fn open(&self) {
        self.is_open.send_replace(true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_servers_are_killed_or_paused() {
    let Some(mut servers) = Servers::start(3, Sync::Always) else { return };
    let nodes = start(&servers, 3).await;
    settled(&[&nodes[0], &nodes[1], &nodes[2]]).await;
    let nodes = Arc::new(Mutex::new(nodes));
    let written = Arc::new(AtomicUsize::new(0));
    let (count, writers) = (1200, 4);
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let (nodes, written) = (Arc::clone(&nodes), Arc::clone(&written));
            tokio::spawn(async move {
                for number in (writer..count).step_by(writers) {
                    write(&nodes, number).await;
                    written.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let reached = |records: usize| {
        let written = Arc::clone(&written);
        eventually("records are written", move || written.load(Ordering::Relaxed) >= records)
    };
    // Any server, then the leader of a shard, then a leader that hangs.
    reached(200).await;
    servers.kill(0);
    reached(400).await;
    servers.start_again(0);
    let leader = servers.leader("celeris-test-1-s01").await;
    servers.kill(leader);
    reached(650).await;
    servers.start_again(leader);
    let leader = servers.leader("celeris-test-1-s02").await;
    servers.pause(leader);
    reached(900).await;
    servers.resume(leader);
    for task in tasks {
        task.await.unwrap();
    }
    let mut nodes = Arc::into_inner(nodes).unwrap().into_inner();
    settled(&[&nodes[0], &nodes[1], &nodes[2]]).await;
    assert_equal_and_complete(&nodes, count).await;
    stop(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_all_servers_changes_no_owner() {
    let Some(mut servers) = Servers::start(1, Sync::Always) else { return };
    let mut nodes = start(&servers, 2).await;
    settled(&[&nodes[0], &nodes[1]]).await;
    let logs = nodes[0].running().logs();
    let epochs = |nodes: &[crate::nodes::TestNode]| -> Vec<u64> {
        logs.iter().map(|log| nodes.iter().map(|node| node.running().status(*log).epoch).max().unwrap()).collect()
    };
    let before = epochs(&nodes);
    servers.kill(0);
    let since = std::time::Instant::now();
    let outage = nodes[0].options.timing.dead_after * 3;
    eventually("the outage lasts", || since.elapsed() > outage).await;
    servers.start_again(0);
    let nodes_of_writer = Mutex::new(std::mem::take(&mut nodes));
    for number in 0..12 {
        write(&nodes_of_writer, number).await;
    }
    nodes = nodes_of_writer.into_inner();
    assert_equal_and_complete(&nodes, 12).await;
    assert_eq!(epochs(&nodes), before);
    stop(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_a_batch_stops_its_readers_and_its_owner() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let mut nodes = start(&servers, 2).await;
    settled(&[&nodes[0], &nodes[1]]).await;
    let (log, other) = {
        let storage = &nodes[0].running().storage;
        let log = LogId::Shard(storage.log().shard_of(&user(0)));
        (log, (1..).find(|number| LogId::Shard(storage.log().shard_of(&user(*number))) != log).unwrap())
    };
    let LogId::Shard(shard) = log else { unreachable!() };
    let nodes_of_writer = Mutex::new(std::mem::take(&mut nodes));
    write(&nodes_of_writer, 0).await;
    nodes = nodes_of_writer.into_inner();
    let client = async_nats::connect(servers.urls()).await.unwrap();
    let stream = async_nats::jetstream::new(client.clone());
    let mut stream = stream.get_stream(format!("celeris-test-1-s{:02}", shard.index())).await.unwrap();
    let last = stream.info().await.unwrap().state.last_sequence;
    let mut message = stream.get_raw_message(last).await.unwrap().payload.to_vec();
    assert!(matches!(Batch::decode(&message).unwrap().body, Body::Group(_)));
    message[70] ^= 1;
    client.publish(format!("celeris.test.1.log.s{:02}", shard.index()), message.into()).await.unwrap();
    let is_stuck = |node: &crate::nodes::TestNode| {
        let status = node.running().status(log);
        status.phase == Phase::Stuck
            && matches!(&status.problem, Some(Problem::Broken { reason }) if reason.contains("damaged"))
    };
    // The follower reads it; the owner meets it when it appends.
    eventually("a reader stops", || nodes.iter().any(is_stuck)).await;
    let owner = nodes.iter().find(|node| node.running().owns(log)).unwrap();
    let refused = crate::nodes::write_at(&owner.running().storage, crate::nodes::USERS).await;
    assert!(refused.is_err(), "{refused:?}");
    eventually("both have stopped", || nodes.iter().all(is_stuck)).await;
    // The other logs are not concerned.
    let nodes_of_writer = Mutex::new(std::mem::take(&mut nodes));
    write(&nodes_of_writer, other).await;
    nodes = nodes_of_writer.into_inner();
    stop(&mut nodes).await;
}
