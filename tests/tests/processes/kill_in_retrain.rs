//! SIGKILL in each step of a retraining, a version switch and a pruning: afterwards a complete
//! version serves, no incomplete version is visible, and leftover files are removed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use celeris_tests::data_dir::versions_of;
use celeris_tests::fixtures::write_dataset;
use celeris_tests::{Client, ModelClient, NodeProcess, ProcessOptions, eventually};
use serde_json::{Value, json};

fn start_retraining(model: &ModelClient) -> String {
    model.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned()
}

fn ended(client: &Client, job: &str) -> Value {
    eventually("the end of the retraining", || {
        let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
    })
}

/// The numbers of the listed versions, and the active version.
fn versions(model: &ModelClient) -> (BTreeSet<u64>, u64) {
    let versions = model.get("versions").expect(200)["versions"].as_array().unwrap().clone();
    let number = |version: &Value| version["version"].as_u64().unwrap();
    let active: Vec<u64> = versions.iter().filter(|version| version["active"] == true).map(number).collect();
    assert_eq!(active.len(), 1, "{versions:?}");
    (versions.iter().map(number).collect(), active[0])
}

/// The numbers of the versions that have a folder.
fn folders(data: &Path) -> BTreeSet<u64> {
    let entries = fs::read_dir(versions_of(data, "films")).unwrap().map(Result::unwrap);
    entries.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap()).collect()
}

fn answers(model: &ModelClient) -> Value {
    let items: Vec<String> = (1..=20).map(|item| item.to_string()).collect();
    let users = ["1", "2", "3", "nobody"].map(|user| {
        let answer = model.post("predict", &json!({"user": user, "items": items})).expect(200);
        (answer["version"].clone(), answer["user_epoch"].clone(), answer["scores"].clone())
    });
    serde_json::to_value(users).unwrap()
}

/// Checks the invariants of an idle node, and returns the active version.
fn assert_whole(node: &NodeProcess, data: &Path, observations: u64) -> u64 {
    let films = node.model("films");
    let (numbers, active) = versions(&films);
    assert!(numbers.contains(&active));
    assert_eq!(folders(data), numbers, "every listed version has a folder, and no other");
    assert!(numbers.iter().all(|version| versions_of(data, "films").join(format!("{version}/_SUCCESS")).is_file()));
    assert!(!data.join("jobs").exists() || fs::read_dir(data.join("jobs")).unwrap().next().is_none());
    assert_eq!(films.get("").expect(200)["observations"], observations);
    active
}

#[test]
fn a_node_killed_in_any_step_serves_a_complete_version_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let ratings = write_dataset(dir.path()).ratings;
    let mut observations = ratings.len() as u64;
    let node = NodeProcess::serve(&data);
    let client = node.client();
    let settings = json!({"name": "films", "dim": 8, "keep_versions": 1, "gate": {"force": true}});
    let _created = client.post("/v1/models", &settings).expect(201);
    let films = client.model("films");
    let lines: String = ratings
        .iter()
        .map(|rating| format!("{}\n", json!({"user": rating.user, "item": rating.item, "label": rating.label})))
        .collect();
    assert_eq!(films.observe_lines(&lines).unwrap().map(Result::unwrap).count(), ratings.len());
    let first = ended(&client, &start_retraining(&films));
    assert_eq!(first["state"], "succeeded", "{first}");
    node.kill_hard();

    for (step, activates) in [
        ("export", false),
        ("training", false),
        ("validation", false),
        ("warming", false),
        ("flip", true),
        ("pruning", true),
    ] {
        let node = ProcessOptions::default().pause_at(step).serve(&data);
        let films = node.model("films");
        let (before, active_before) = versions(&films);
        let answers_before = answers(&films);
        let job = start_retraining(&films);
        node.await_stderr(&format!("reached {step}"));
        // A complete version keeps serving while the step is paused.
        let meanwhile = films.observe(&json!({"user": "meanwhile", "item": "1", "label": 4}));
        observations += 1;
        let (_, active_meanwhile) = versions(&films);
        let serving = answers(&films)[0][0].as_u64().unwrap();
        assert!([active_before, active_meanwhile].contains(&serving), "{step}: {serving}");
        if step != "pruning" {
            assert_eq!(answers(&films), answers_before, "{step}: the old version serves until the flip is done");
        }
        node.kill_hard();

        let node = NodeProcess::serve(&data);
        let films = node.model("films");
        let active = assert_whole(&node, &data, observations);
        assert_eq!(active != active_before, activates, "{step}: version {active_before} served, now {active}");
        assert_eq!(node.client().get(&format!("/v1/jobs/{job}")).expect(200)["state"], "failed", "{step}");
        let of_meanwhile = films.user("meanwhile", 1);
        assert_eq!((&of_meanwhile["user_epoch"], &of_meanwhile["version"]), (&meanwhile["user_epoch"], &json!(active)));
        if !activates {
            assert_eq!(answers(&films), answers_before, "{step}: the same version serves after the kill");
        }
        if step == "pruning" {
            let (after, _) = versions(&films);
            assert!(!before.is_subset(&after), "something was pruned: {before:?}, then {after:?}");
        }
        // Leftovers do not block the next training.
        let again = ended(&node.client(), &start_retraining(&films));
        assert_eq!(again["state"], "succeeded", "{step}: {again}");
        assert_eq!(assert_whole(&node, &data, observations), again["version"].as_u64().unwrap(), "{step}");
        node.kill_hard();
    }
}
