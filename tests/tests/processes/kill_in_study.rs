//! SIGKILL during a study: after the next start it goes on, and ends as an undisturbed one.

use std::process::Command;

use celeris_tests::fixtures::write_dataset;
use celeris_tests::{NodeProcess, eventually};
use serde_json::{Value, json};

/// How often the node is killed.
const KILLS: u64 = 3;

fn study(node: &NodeProcess, id: &str) -> Value {
    node.client().get(&format!("/v1/studies/{id}")).expect(200)
}

fn start(node: &NodeProcess) -> String {
    // With one worker, each trial depends on all before it.
    let body = json!({
        "space": {"dim": {"int": [2, 12]}, "regularization": {"float": [0.1, 10.0], "log": true}},
        "trials": 10, "collaborative": true, "then": "retrain",
    });
    node.model("films").post("studies", &body).expect(202)["study"].as_str().unwrap().to_owned()
}

fn ended(node: &NodeProcess, id: &str) -> Value {
    eventually("the end of the study", || {
        let study = study(node, id);
        (study["state"] == "ended").then_some(study)
    })
}

/// What must not depend on kills: the trials with their losses, and the result.
fn outcome(study: &Value) -> Value {
    let trials = study["trials"].as_array().unwrap().iter().map(|trial| {
        json!([trial["params"], trial["warm_from"], trial["state"], trial["value"], trial["standard_error"]])
    });
    json!({
        "trials": trials.collect::<Vec<_>>(), "best": study["best"], "baseline": study["baseline"],
        "why": study["why_stopped"], "importance": study["importance"],
    })
}

#[test]
fn a_study_killed_three_times_ends_as_an_undisturbed_one() {
    let dir = tempfile::tempdir().unwrap();
    let [data, copy] = ["data", "copy"].map(|name| dir.path().join(name));
    let ratings = write_dataset(dir.path()).ratings;
    let node = NodeProcess::serve(&data);
    node.client().post("/v1/models", &json!({"name": "films", "dim": 2, "gate": {"force": true}})).expect(201);
    let lines: String = ratings
        .iter()
        .map(|rating| format!("{}\n", json!({"user": rating.user, "item": rating.item, "label": rating.label})))
        .collect();
    assert_eq!(node.model("films").observe_lines(&lines).unwrap().map(Result::unwrap).count(), ratings.len());
    let _exit = node.terminate();
    assert!(Command::new("cp").arg("-r").args([&data, &copy]).status().unwrap().success());

    let node = NodeProcess::serve(&copy);
    let id = start(&node);
    let undisturbed = ended(&node, &id);
    let _exit = node.terminate();
    assert!(undisturbed["trials"].as_array().unwrap().iter().any(|trial| trial["warm_from"].is_u64()), "{undisturbed}");

    let mut node = NodeProcess::serve(&data);
    let id = start(&node);
    for kill in 1..=KILLS {
        eventually("a trial after further ones", || {
            let study = study(&node, &id);
            let is_running = study["trials"].as_array().unwrap().iter().any(|trial| trial["state"] == "running");
            (is_running && study["complete"].as_u64() >= Some(2 * kill)).then_some(())
        });
        node.kill_hard();
        node = NodeProcess::serve(&data);
    }
    let killed = ended(&node, &id);
    assert_eq!(outcome(&killed), outcome(&undisturbed));
    let attempts = killed["trials"].as_array().unwrap().iter().map(|trial| trial["attempts"].as_u64().unwrap());
    assert_eq!(attempts.sum::<u64>(), 11 + KILLS, "each kill has interrupted a trial: {killed}");
    // What was to follow follows.
    let applied = eventually("the use of the settings", || {
        let study = study(&node, &id);
        (!study["applied"].is_null()).then(|| study["applied"].clone())
    });
    assert_eq!(applied["trial"], killed["best"]["trial"]);
}
