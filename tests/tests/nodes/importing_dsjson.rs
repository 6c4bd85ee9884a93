//! `celeris import-personalizer` and `celeris import` of logs of decisions in dsjson.

use std::fs;
use std::path::Path;

use celeris_tests::binary::{self, Finished};
use celeris_tests::{Client, ModelClient, Node};
use serde_json::{Value, json};

/// A decision as Personalizer logs it: the second of three actions was shown.
fn decision(event: &str, user: &str, reward: f64) -> Value {
    json!({
        "_label_cost": -reward, "_label_probability": 0.8, "_label_Action": 2, "_labelIndex": 1,
        "o": [{"v": reward, "EventId": event, "ActionTaken": false}],
        "Timestamp": "2026-01-10T16:31:29.2460000Z", "Version": "1", "EventId": event, "a": [2, 1, 3],
        "c": {
            "FromUrl": [{"timeofday": "morning", "_internal": 1}], "Geo": {"state": "Ohio"}, "Account": {"user_id": user},
            "_multi": [
                {"_tag": "news", "i": {"constant": 1, "id": "news"}, "j": [{"topic": "politics", "length": 3}]},
                {"_tag": "film", "i": {"constant": 1, "id": "film"}, "j": [{"topic": "arts", "color=red": 1, "color=blue": 1}]},
                {"_tag": "game", "i": {"constant": 1, "id": "game"}, "j": [{"topic": "fun"}]},
            ],
        },
        "p": [0.8, 0.1, 0.1], "VWState": {"m": "x/y"}, "_original_label_cost": -reward,
    })
}

fn with(mut decision: Value, field: &str, value: Value) -> Value {
    decision[field] = value;
    decision
}

/// Writes lines into a file below `folder`.
fn write(folder: &Path, name: &str, lines: &[String]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

fn create(client: &Client, name: &str) -> ModelClient {
    client.post("/v1/models", &json!({"name": name, "dim": 4})).expect(201);
    client.model(name)
}

fn import(model: &ModelClient, command: &str, arguments: &[&str]) -> Finished {
    binary::run([command, "--url", model.node().url(), "--model", model.name()].iter().chain(arguments))
}

#[track_caller]
fn imported(model: &ModelClient, command: &str, arguments: &[&str]) -> String {
    let done = import(model, command, arguments);
    assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
    done.stderr
}

#[track_caller]
fn assert_contains(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "no {word:?} in\n{message}");
    }
}

fn history(model: &ModelClient, user: &str) -> Vec<Value> {
    model.user(user, 100)["history"].as_array().unwrap().clone()
}

/// A log as Azure stores it: two days, with what else such files have.
fn write_log(folder: &Path) {
    let text = |value: Value| value.to_string();
    let waiting = with(decision("e-3", "ann", 1.0), "DeferredAction", json!(true));
    let activated = with(
        with(decision("e-4", "ann", 1.0), "DeferredAction", json!(true)),
        "o",
        json!([{"v": 1.0, "EventId": "e-4"}, {"EventId": "e-4", "ActionTaken": true}]),
    );
    let sampled = with(decision("e-5", "bob", 0.0), "pdrop", json!(0.75));
    let first = [
        "[CHECKPOINT INFO LINE]".to_owned(),
        text(decision("e-1", "ann", 1.0)),
        text(decision("e-2", "bob", 0.5)),
        text(waiting),
        text(with(decision("e-6", "ann", 1.0), "_skipLearn", json!(true))),
        String::new(),
    ];
    let second = [
        text(activated),
        text(sampled),
        // Sent twice by the service.
        text(decision("e-1", "ann", 1.0)),
        text(json!({"RewardValue": 1.0, "EnqueuedTimeUtc": "2026-01-11T01:48:38.423Z", "EventId": "elsewhere"})),
    ];
    write(folder, "20260110153842/data/2026/01/10_0.json", &first);
    write(folder, "20260110153842/data/2026/01/11_0.json", &second);
    write(folder, "20260110153842/model/current.json", &["{\"not\": \"a log\"}".to_owned()]);
}

#[test]
fn logs_of_personalizer_become_observations_exactly_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let model = create(&node.client(), "home");
    let folder = dir.path().join("logs");
    write_log(&folder);
    let logs = folder.to_str().unwrap();
    let said = imported(&model, "import-personalizer", &[logs, "--attributes", "action.topic,action.color"]);
    assert_contains(
        &said,
        &[
            "4 observations taken, 1 were there already",
            " items described",
            "2 decisions never activated or to be skipped",
            "1 rewards without a decision",
            "user=user item=item label=label",
        ],
    );
    let ann = history(&model, "ann");
    assert_eq!(ann.len(), 2, "{ann:?}");
    assert_eq!((&ann[0]["item"], &ann[0]["label"]), (&json!("film"), &json!(1.0)), "{ann:?}");
    let context = json!({"timeofday": "morning", "Geo.state": "Ohio"});
    assert_eq!(ann[0]["context"], context, "{ann:?}");
    let bob = history(&model, "bob");
    let labels: Vec<(f64, f64)> =
        bob.iter().map(|one| (one["label"].as_f64().unwrap(), one["weight"].as_f64().unwrap_or(1.0))).collect();
    assert!(labels.contains(&(0.5, 1.0)) && labels.contains(&(0.0, 4.0)), "{bob:?}");
    let film = model.get("items/film").expect(200);
    assert_eq!(film["attributes"], json!({"topic": "arts", "color": ["blue", "red"]}), "{film}");

    // The same again, and with one day more.
    assert_contains(&imported(&model, "import-personalizer", &[logs]), &["0 observations taken, 5 were there already"]);
    write(&folder, "20260110153842/data/2026/01/12_0.json", &[decision("e-7", "ann", 0.0).to_string()]);
    assert_contains(&imported(&model, "import", &[logs]), &["1 observations taken, 5 were there already"]);
    assert_eq!(history(&model, "ann").len(), 3);
}

#[test]
fn rankings_of_several_slots_become_an_observation_for_each_slot() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let model = create(&node.client(), "home");
    let ranking = json!({
        "Timestamp": "2026-01-10T16:31:29Z", "EventId": "e-1", "c": {
            "User": {"id": "ann"}, "_multi": [{"id": "a"}, {"id": "b"}, {"id": "c"}], "_slots": [{"_id": "x"}, {"_id": "y"}],
        },
        "_outcomes": [
            {"_label_cost": -1.0, "_id": "x", "_a": [2, 0, 1], "_p": [0.5, 0.25, 0.25], "_o": [1.0]},
            {"_label_cost": 0.0, "_id": "y", "_a": 0, "_p": 0.5, "_o": []},
        ],
    });
    write(dir.path(), "ccb.dsjson", &[ranking.to_string()]);
    let file = dir.path().join("ccb.dsjson");
    assert_contains(&imported(&model, "import", &[file.to_str().unwrap()]), &["2 observations taken"]);
    let ann = history(&model, "ann");
    let mut taken: Vec<(&str, f64)> =
        ann.iter().map(|one| (one["item"].as_str().unwrap(), one["label"].as_f64().unwrap())).collect();
    taken.sort_by(|a, b| a.0.cmp(b.0));
    assert_eq!(taken, [("a", 0.0), ("c", 1.0)]);
}

#[test]
fn lines_that_are_no_decisions_are_set_aside_with_their_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let model = create(&node.client(), "home");
    let no_id = json!({"_multi": [{"j": [{"topic": "arts"}]}], "Account": {"user_id": "ann"}});
    let bad: [(String, &str); 9] = [
        (
            with(decision("b-1", "ann", 1.0), "_label_probability", json!(0)).to_string(),
            "_label_probability: expected a",
        ),
        (with(decision("b-2", "ann", 1.0), "_label_Action", json!(3)).to_string(), "are two actions"),
        (
            with(decision("b-3", "ann", 1.0), "_labelIndex", json!(9)).to_string(),
            "_labelIndex: expected an action from 0 to 2",
        ),
        (with(decision("b-4", "ann", 1.0), "_label_cost", json!("free")).to_string(), "_label_cost: expected a number"),
        (
            with(decision("b-5", "ann", 1.0), "_label_cost", json!(1e300)).to_string(),
            "_label_cost: expected a number between",
        ),
        (with(decision("b-6", "ann", 1.0), "pdrop", json!(1)).to_string(), "pdrop: expected a probability below 1"),
        (
            with(
                with(with(decision("b-7", "ann", 1.0), "c", no_id), "_labelIndex", json!(0)),
                "_label_Action",
                json!(1),
            )
            .to_string(),
            "column item: is empty",
        ),
        ("{\"_label_cost\": -1, \"c\":".to_owned(), "not a JSON object"),
        (with(decision(&"e".repeat(300), "ann", 1.0), "a", json!([2])).to_string(), "is not an id"),
    ];
    let good = decision("e-1", "ann", 1.0).to_string();
    let lines: Vec<String> = std::iter::once(good).chain(bad.iter().map(|(line, _)| line.clone())).collect();
    write(dir.path(), "bad.dsjson", &lines);
    let file = dir.path().join("bad.dsjson");
    let refused = import(&model, "import-personalizer", &[file.to_str().unwrap()]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert_contains(&refused.stderr, &["bad.dsjson:2", "9 rows of this file are bad", "nothing was taken"]);
    let aside = dir.path().join("aside.csv");
    let said =
        imported(&model, "import-personalizer", &[file.to_str().unwrap(), "--skip-bad", aside.to_str().unwrap()]);
    assert_contains(&said, &["1 observations taken", "9 skipped"]);
    let aside = fs::read_to_string(aside).unwrap();
    for (_, reason) in &bad {
        assert!(aside.contains(reason), "no {reason:?} in\n{aside}");
    }
}

#[test]
fn a_log_without_users_needs_a_field_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("data"));
    let model = create(&node.client(), "home");
    let mut anonymous = decision("e-1", "ann", 1.0);
    anonymous["c"].as_object_mut().unwrap().remove("Account");
    write(dir.path(), "log.json", &[anonymous.to_string()]);
    let file = dir.path().join("log.json");
    let file = file.to_str().unwrap();
    let refused = import(&model, "import-personalizer", &[file]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert_contains(&refused.stderr, &["no column for the user", "--map user=COLUMN"]);
    assert_contains(
        &imported(&model, "import-personalizer", &[file, "--map", "user=event_id"]),
        &["1 observations taken"],
    );
    assert_eq!(history(&model, "e-1").len(), 1);
    // Other files are for `import`.
    write(dir.path(), "rows.csv", &["user,item,rating".to_owned(), "a,b,1".to_owned()]);
    let rows = dir.path().join("rows.csv");
    let other = import(&model, "import-personalizer", &[rows.to_str().unwrap()]);
    assert_eq!(other.code, Some(2), "{other:?}");
    assert_contains(&other.stderr, &["is no log of decisions in dsjson"]);
}
