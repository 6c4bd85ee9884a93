//! Producer, broker and node are killed while messages pass.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream;
use celeris_tests::{Nats, NodeProcess, Publisher, eventually};

use super::nats::table;
use super::{Ingesting, USERS, create_model, labels, message, status};

/// Kills of each, unless [`ROUNDS_VARIABLE`] is set: `CELERIS_KILL_ROUNDS=20` passes 100,000 messages.
const ROUNDS: usize = 2;

const ROUNDS_VARIABLE: &str = "CELERIS_KILL_ROUNDS";

/// Messages for each kill of one of the three.
const MESSAGES_A_ROUND: usize = 5000;

/// Tells this test's program that it is to produce: the address of the broker, and the number of messages.
const PRODUCE_VARIABLE: &str = "CELERIS_TEST_PRODUCE";

/// Messages that are sent before the first of them is acknowledged.
const IN_FLIGHT: usize = 256;

/// Produces messages in a process of its own, in the order of their numbers, each with its number as its id.
/// It goes on after the last one that the stream has.
#[test]
#[ignore = "it is started by the test below"]
fn producer() {
    let Ok(task) = std::env::var(PRODUCE_VARIABLE) else { return };
    let (url, count) = task.split_once(' ').unwrap();
    let count: usize = count.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The broker is killed too: whatever fails is begun again.
    while runtime.block_on(produce(url, count)).is_err() {}
}

async fn produce(url: &str, count: usize) -> Result<(), async_nats::Error> {
    let client = async_nats::ConnectOptions::new().connection_timeout(Duration::from_secs(1)).connect(url).await?;
    let context = jetstream::new(client);
    let mut stream = context.get_stream("CLICKS").await?;
    let last = stream.info().await?.state.last_sequence;
    let mut next = match last {
        0 => 0,
        last => number(&stream.get_raw_message(last).await?.payload) + 1,
    };
    while next < count {
        let mut acknowledgements = Vec::with_capacity(IN_FLIGHT);
        for number in next..count.min(next + IN_FLIGHT) {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", number.to_string().as_str());
            let sent = context.publish_with_headers("clicks.web", headers, message(number).into()).await?;
            acknowledgements.push(sent);
        }
        next += acknowledgements.len();
        for acknowledgement in acknowledgements {
            tokio::time::timeout(Duration::from_secs(2), acknowledgement).await??;
        }
    }
    Ok(())
}

fn number(payload: &[u8]) -> usize {
    let message: serde_json::Value = serde_json::from_slice(payload).unwrap();
    usize::try_from(message["label"].as_u64().unwrap()).unwrap()
}

fn start_producer(nats: &Nats, count: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "ingest::kills::producer"]);
    command.env(PRODUCE_VARIABLE, format!("{} {count}", nats.urls()[0]));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn kill(child: &mut Child) {
    // It may have ended.
    let _ = child.kill();
    child.wait().unwrap();
}

/// How many messages the node has read, as far as it answers.
fn position(node: &NodeProcess) -> u64 {
    status(node)["partitions"][0]["position"].as_u64().unwrap_or_default()
}

#[test]
fn each_message_counts_once_while_producer_broker_and_node_are_killed() {
    let Some(mut nats) = Nats::start(1) else { return };
    let rounds: usize = std::env::var(ROUNDS_VARIABLE).map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let count = rounds * MESSAGES_A_ROUND;
    Publisher::new(&nats).create("CLICKS", "clicks.>");
    let ingesting = Ingesting::new(&table(&nats, ""));
    let mut node = ingesting.start();
    create_model(&node);
    let mut producer = start_producer(&nats, count);
    for round in 0..3 * rounds {
        let reached = (round * count / (3 * rounds + 1)) as u64;
        eventually("messages pass", || (position(&node) > reached).then_some(()));
        match round % 3 {
            0 => {
                kill(&mut producer);
                producer = start_producer(&nats, count);
            }
            1 => {
                nats.kill(0);
                nats.start_server(0);
                nats.await_ready();
            }
            _ => {
                node.kill_hard();
                node = ingesting.start();
            }
        }
    }
    let stored = Publisher::new(&nats);
    eventually("all messages are in the stream", || (stored.count("CLICKS") >= count as u64).then_some(()));
    kill(&mut producer);
    let contents: Vec<usize> = stored.contents("CLICKS").iter().map(|payload| number(payload)).collect();
    eventually("all messages are read", || (position(&node) >= contents.len() as u64).then_some(()));
    assert_eq!(node.terminate().code, Some(0));
    let distinct: BTreeSet<usize> = contents.iter().copied().collect();
    assert_eq!(distinct.len(), count, "each message was published");
    let mut expected = std::collections::BTreeMap::<String, Vec<usize>>::new();
    for number in contents {
        expected.entry(format!("u{}", number % USERS)).or_default().push(number);
    }
    assert_eq!(labels(&ingesting.data_dir()), expected);
}
