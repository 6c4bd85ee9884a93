//! Observations from a message broker, which all nodes of a cluster read.

use std::collections::BTreeMap;

use celeris_tests::{Cluster, Nats, Publisher, eventually};
use serde_json::json;

/// Message `n` is for user `n % USERS`, and has `n` as its label.
const USERS: usize = 30;

fn publish(publisher: &Publisher, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let message = json!({ "user": format!("u{}", number % USERS), "item": "i", "label": number });
        publisher.publish("clicks", message.to_string());
    }
}

/// The labels that a user's observations have, in their order.
fn labels(cluster: &Cluster, node: usize, user: usize) -> Vec<u64> {
    let Ok(reply) = cluster.client(node).try_send("GET", &format!("/v1/models/m/users/u{user}?history=100"), "", "")
    else {
        return Vec::new();
    };
    let reply = reply.json();
    let observations = reply["history"].as_array().into_iter().flatten();
    let mut labels: Vec<(u64, u64)> = observations
        .map(|one| (one["user_epoch"].as_u64().unwrap_or_default(), one["label"].as_f64().unwrap_or_default() as u64))
        .collect();
    labels.sort_unstable();
    labels.into_iter().map(|(_, label)| label).collect()
}

#[test]
fn each_message_counts_once_while_shards_change_their_owners() {
    let Some(broker) = Nats::start(1) else { return };
    let publisher = Publisher::new(&broker);
    publisher.create("CLICKS", "clicks");
    let table = format!(
        "[[ingest]]\nname = \"clicks\"\nmodel = \"m\"\n[ingest.nats]\nservers = {:?}\nstream = \"CLICKS\"\n",
        broker.urls()
    );
    let Some(mut cluster) = Cluster::configured(3, 1, &table) else { return };
    publish(&publisher, 0..300);
    cluster.client(0).post("/v1/models", &json!({ "name": "m", "dim": 4 })).expect(201);
    let all = |cluster: &Cluster, node: usize, count: usize| {
        let mut expected = BTreeMap::<usize, Vec<u64>>::new();
        (0..count).for_each(|number| expected.entry(number % USERS).or_default().push(number as u64));
        eventually("every node's users have their messages", || {
            expected.iter().all(|(user, labels)| self::labels(cluster, node, *user).len() >= labels.len()).then_some(())
        });
        for (user, expected) in expected {
            assert_eq!(labels(cluster, node, user), expected, "user u{user}");
        }
    };
    all(&cluster, 0, 300);
    cluster.kill(1);
    publish(&publisher, 300..600);
    all(&cluster, 0, 600);
    cluster.start_node(1);
    cluster.terminate(2);
    publish(&publisher, 600..900);
    all(&cluster, 1, 900);
}
