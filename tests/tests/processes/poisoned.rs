//! A failed write to disk: nothing more is acknowledged, durable data can still be read, and a
//! restart on a working disk has everything that was acknowledged.

use std::fs;
use std::path::Path;

use celeris_tests::fixtures::{any_item, any_label, create_model, weights};
use celeris_tests::{ModelClient, NodeProcess, ProcessOptions, Reply};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// 1 MiB: larger than any other file of a small node, small enough for the log to reach soon.
const FILE_BLOCKS_MAX: u32 = 2048;

/// Long ids fill the log sooner.
fn long_id(number: usize) -> String {
    format!("{number:0>256}")
}

fn observation(random: &mut ChaCha8Rng, number: usize) -> Value {
    json!({
        "user": format!("{:0>250}", number % 3), "item": any_item(random), "label": any_label(random),
        "observation_id": long_id(number),
    })
}

/// Checks the response of a node that cannot write.
#[track_caller]
fn assert_unavailable(reply: &Reply) {
    assert_eq!(reply.status, 503, "{}", reply.text);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    let seconds: u64 = reply.header("retry-after").expect("503 says when to try again").parse().unwrap();
    assert!(seconds >= 1);
}

fn assert_history(films: &ModelClient, acknowledged: &[(Value, Value)]) {
    for user in 0..3 {
        let user = format!("{user:0>250}");
        let state = films.user(&user, 10_000);
        let mut expected: Vec<(Value, Value)> = acknowledged
            .iter()
            .filter(|(sent, _)| sent["user"] == user)
            .map(|(sent, reply)| (sent["observation_id"].clone(), reply["user_epoch"].clone()))
            .collect();
        expected.reverse();
        let events = state["history"].as_array().unwrap();
        let found: Vec<(Value, Value)> =
            events.iter().map(|event| (event["observation_id"].clone(), event["user_epoch"].clone())).collect();
        assert_eq!(found, expected);
        assert_eq!(state["user_epoch"], expected.len(), "an epoch that was not acknowledged is not shown");
        assert_eq!(state["observations"], expected.len());
    }
}

fn bytes_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .map(|entry| if entry.path().is_dir() { bytes_of(&entry.path()) } else { entry.metadata().unwrap().len() })
        .sum()
}

#[test]
fn a_node_that_cannot_write_reports_it_still_reads_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = ProcessOptions::default().file_blocks_max(FILE_BLOCKS_MAX).serve(dir.path());
    let films = create_model(&node.client(), "films", 41);
    let mut random = ChaCha8Rng::seed_from_u64(42);
    let mut acknowledged: Vec<(Value, Value)> = Vec::new();
    let refused = loop {
        let sent = observation(&mut random, acknowledged.len());
        let reply = films.try_observe(&sent).unwrap();
        if reply.status != 200 {
            break reply;
        }
        acknowledged.push((sent, reply.json()));
        assert!(
            acknowledged.len() < 20_000,
            "the log never reached its limit; it takes {} bytes",
            bytes_of(dir.path())
        );
    };
    assert!(acknowledged.len() > 100, "{} acknowledged before {}", acknowledged.len(), refused.text);
    assert_unavailable(&refused);

    for _ in 0..3 {
        assert_unavailable(&films.try_observe(&observation(&mut random, acknowledged.len())).unwrap());
    }
    assert_unavailable(&films.put("items/item-0", &json!({"attributes": {"title": "Unwritten"}})));
    assert_unavailable(&node.client().get("/readyz"));
    assert_eq!(node.client().get("/healthz").status, 200);
    let line = films.observe_lines(&observation(&mut random, acknowledged.len()).to_string()).unwrap();
    let answers: Vec<Value> = line.map(Result::unwrap).collect();
    assert_eq!(answers[0]["error"]["status"], 503, "{answers:?}");

    assert_history(&films, &acknowledged);
    let user = acknowledged[0].0["user"].as_str().unwrap().to_owned();
    let epoch = films.user(&user, 0)["user_epoch"].clone();
    let predicted = films.post("predict", &json!({"user": user, "item": "item-0", "min_epoch": epoch})).expect(200);
    let ranked = films.post("topk", &json!({"user": user, "items": ["item-0", "item-1"], "k": 2, "policy": "greedy"}));
    assert_eq!(ranked.expect(200)["user_epoch"], epoch);
    let title = films.get("items/item-0").expect(200)["attributes"]["title"].clone();
    assert_eq!(title, "Film 0");
    let learnt = weights(&films, &user);
    let exit = node.terminate();
    assert!(exit.code.is_some(), "it was not killed by a signal: {}", exit.stderr);

    let node = NodeProcess::serve(dir.path());
    let films = node.model("films");
    assert_history(&films, &acknowledged);
    assert_eq!(weights(&films, &user), learnt, "the served state equals that of the log");
    let again = films.post("predict", &json!({"user": user, "item": "item-0"})).expect(200);
    assert_eq!(again["scores"], predicted["scores"]);
    let next = films.observe(&observation(&mut random, acknowledged.len()));
    assert_eq!(next["duplicate"], false, "what was refused can be sent again");
}
