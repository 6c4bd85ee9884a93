//! Ingests from NATS JetStream.

use celeris_tests::{Nats, Publisher, binary, eventually};
use serde_json::json;

use super::{Ingesting, await_count, create_model, expected, labels, lag, message, status};

pub(super) fn table(nats: &Nats, more: &str) -> String {
    let servers = nats.urls();
    format!(
        "[[ingest]]\nname = \"clicks\"\nmodel = \"m\"\n{more}\n[ingest.nats]\nservers = {servers:?}\nstream = \"CLICKS\"\n"
    )
}

#[test]
fn messages_are_observations_once_and_in_their_order() {
    let Some(nats) = Nats::start(1) else { return };
    let publisher = Publisher::new(&nats);
    publisher.create("CLICKS", "clicks.>");
    (0..300).for_each(|number| publisher.publish("clicks.web", message(number)));
    let ingesting = Ingesting::new(&table(&nats, ""));
    let node = ingesting.start();
    // The model is not there yet, and its messages wait for it.
    eventually("the ingest waits for the model", || {
        status(&node)["problem"].as_str().is_some_and(|problem| problem.contains("no model is named m")).then_some(())
    });
    create_model(&node);
    await_count(&node, 300);
    node.kill_hard();
    (300..500).for_each(|number| publisher.publish("clicks.web", message(number)));
    let node = ingesting.start();
    await_count(&node, 200);
    assert_eq!(lag(&status(&node)), Some(0));
    assert_eq!(status(&node)["partitions"][0]["position"], 500);
    let metrics = node.client().try_send("GET", "/metrics", "", "").unwrap();
    assert!(metrics.text.contains("celeris_ingest_lag_messages{ingest=\"clicks\",partition=\"CLICKS\"} 0"));
    assert_eq!(node.terminate().code, Some(0));
    assert_eq!(labels(&ingesting.data_dir()), expected(0..500));
}

#[test]
fn what_is_no_observation_goes_to_the_dead_letters_and_stops_nothing() {
    let Some(nats) = Nats::start(1) else { return };
    let publisher = Publisher::new(&nats);
    publisher.create("CLICKS", "clicks.>");
    let poison: [&[u8]; 6] = [
        b"",
        b"\xff\x00",
        b"[1]",
        br#"{"user": "u", "item": "i", "label": "high"}"#,
        br#"{"user": "u", "item": "i", "label": 1e39}"#,
        br#"{"user": "u", "item": "i", "label": 1, "colour": "red"}"#,
    ];
    for (number, payload) in poison.iter().enumerate() {
        publisher.publish("clicks.web", message(number));
        publisher.publish("clicks.web", *payload);
    }
    let ingesting = Ingesting::new(&table(&nats, ""));
    let node = ingesting.start();
    create_model(&node);
    await_count(&node, 2 * poison.len() as u64);
    let letters = ingesting.dead_letters("clicks");
    let offsets: Vec<u64> = letters.iter().map(|letter| letter["offset"].as_u64().unwrap()).collect();
    assert_eq!(offsets, [2, 4, 6, 8, 10, 12]);
    let fields: Vec<Option<&str>> = letters.iter().map(|letter| letter["field"].as_str()).collect();
    assert_eq!(fields, [None, None, None, Some("label"), Some("label"), Some("colour")]);
    assert_eq!(letters[1]["payload_base64"], "/wA=");
    assert_eq!(letters[2]["payload"], "[1]");
    assert_eq!(node.terminate().code, Some(0));
    assert_eq!(labels(&ingesting.data_dir()), expected(0..poison.len()));
    // The command says the same without a node.
    let check = ["ingest", "check", "--messages", "100", "--config", ingesting.config.to_str().unwrap()];
    let checked = binary::run(check);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(checked.stderr.contains("6 of the messages are no observations"), "{checked:?}");
    assert_eq!(checked.stdout.lines().count(), 12);
}

#[test]
fn dead_letters_go_to_a_subject_and_fields_are_mapped() {
    let Some(nats) = Nats::start(1) else { return };
    let publisher = Publisher::new(&nats);
    publisher.create("CLICKS", "clicks.>");
    publisher.create("DEAD", "dead.>");
    publisher
        .publish("clicks.web", json!({ "who": { "id": 7 }, "sku": "a", "event": "purchase", "at": 1.7e9 }).to_string());
    publisher.publish("clicks.web", json!({ "who": { "id": 7 }, "sku": "a", "event": "hover" }).to_string());
    publisher.publish("clicks.app", json!({ "who": { "id": 8 }, "sku": "a", "event": "view" }).to_string());
    let more = "dead_letters_to = \"dead.clicks\"\ntime_unit = \"s\"\n\
                map = { user = \"who.id\", item = \"sku\", label = \"event\", timestamp = \"at\" }\n\
                labels = { view = 0, purchase = 1 }\nvalues = { feedback = \"click\" }";
    let ingesting = Ingesting::new(&(table(&nats, more) + "subjects = [\"clicks.web\"]\n"));
    let node = ingesting.start();
    create_model(&node);
    await_count(&node, 2);
    let user = node.model("m").user("7", 10);
    assert_eq!(user["history"][0]["label"], 1.0, "{user}");
    assert_eq!(user["history"][0]["timestamp"], 1_700_000_000_000_i64, "{user}");
    let dead = publisher.contents("DEAD");
    let letter: serde_json::Value = serde_json::from_slice(&dead[0]).unwrap();
    assert_eq!((dead.len(), &letter["offset"], &letter["field"]), (1, &json!(2), &json!("label")));
    assert_eq!(node.model("m").user("8", 1)["cold"], true, "its message has another subject");
}

#[test]
fn messages_that_the_broker_removes_are_counted() {
    let Some(nats) = Nats::start(1) else { return };
    let publisher = Publisher::new(&nats);
    publisher.create_of_latest("CLICKS", "clicks.>");
    let ingesting = Ingesting::new(&table(&nats, ""));
    let node = ingesting.start();
    create_model(&node);
    publisher.publish("clicks.web", message(0));
    await_count(&node, 1);
    // Each message removes the one before, read or not.
    (1..2000).for_each(|number| publisher.publish("clicks.web", message(number)));
    eventually("the last message is read", || {
        let status = status(&node);
        (status["partitions"][0]["position"] == 2000).then_some(())
    });
    let metrics = node.client().try_send("GET", "/metrics", "", "").unwrap().text;
    let outcome = "celeris_ingest_messages_total{ingest=\"clicks\",outcome=\"removed\"} ";
    let removed = metrics.lines().find_map(|line| line.strip_prefix(outcome)?.parse::<u64>().ok());
    assert!(removed.is_some_and(|removed| removed > 0), "the reading was overtaken: {metrics}");
    assert_eq!(status(&node)["observations"].as_u64().zip(removed).map(|(read, removed)| read + removed), Some(2000));
}

#[test]
fn a_stream_that_was_created_again_is_read_anew() {
    let Some(nats) = Nats::start(1) else { return };
    let publisher = Publisher::new(&nats);
    publisher.create("CLICKS", "clicks.>");
    (0..20).for_each(|number| publisher.publish("clicks.web", message(number)));
    let ingesting = Ingesting::new(&table(&nats, ""));
    let node = ingesting.start();
    create_model(&node);
    await_count(&node, 20);
    publisher.delete("CLICKS");
    publisher.create("CLICKS", "clicks.>");
    (20..50).for_each(|number| publisher.publish("clicks.web", message(number)));
    await_count(&node, 50);
    assert_eq!(node.terminate().code, Some(0));
    assert_eq!(labels(&ingesting.data_dir()), expected(0..50));
}
