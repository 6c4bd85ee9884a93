//! A trainer that learns inverted labels: the gate refuses its version; if the gate is forced open,
//! the guard rolls the version back.

use std::fs;
use std::path::Path;

use celeris_datasets::Rating;
use celeris_tests::data_dir::versions_of;
use celeris_tests::fixtures::write_dataset;
use celeris_tests::{Client, ModelClient, NodeProcess, ProcessOptions, binary, eventually};
use serde_json::{Value, json};

/// The highest label of the data set plus the lowest: `MIRROR - label` inverts the ratings.
const MIRROR: f32 = 5.5;

/// Number of ratings at the end of the data set that serve as live traffic.
const LIVE: usize = 900;

fn lines(ratings: &[Rating], label: impl Fn(f32) -> f32) -> String {
    let line = |rating: &Rating| {
        let label = label(rating.label);
        format!("{}\n", json!({"user": rating.user, "item": rating.item, "label": label}))
    };
    ratings.iter().map(line).collect()
}

fn observe(model: &ModelClient, lines: &str) {
    let results = model.observe_lines(lines).unwrap().map(Result::unwrap);
    assert_eq!(results.filter(|result| result["duplicate"] == false).count(), lines.lines().count());
}

fn retrain(client: &Client, model: &ModelClient) -> Value {
    let job = model.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    eventually("the end of the retraining", || {
        let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
    })
}

fn active(model: &ModelClient) -> u64 {
    model.get("").expect(200)["active_version"].as_u64().unwrap()
}

/// Kind and originator of the model's events, newest first.
fn events(model: &ModelClient) -> Vec<(String, String)> {
    let events = model.get("events").expect(200)["events"].as_array().unwrap().clone();
    let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
    events.iter().map(|event| (text(event, "kind"), text(event, "by"))).collect()
}

/// Replaces the binary by a script whose `train` command delivers a version of model `source` as
/// one of the model of the job. All other commands are passed to the real binary.
fn poison(installed: &Path, source_version: &Path, source: &str) {
    let script = format!(
        r#"#!/bin/sh
[ "$1" = train ] || exec {real} "$@"
while [ "$1" != --job ]; do shift || exit 9; done
job="$2"
target=$(tr -d ' \n' < "$job" | sed 's/.*"model":"\([^"]*\)".*/\1/')
mkdir -p "$(dirname "$job")/version"
cp {version}/*.parquet {version}/*.json "$(dirname "$job")/version/"
sed "s/\"model\": *\"{source}\"/\"model\": \"$target\"/" {version}/_SUCCESS > "$(dirname "$job")/version/_SUCCESS"
"#,
        real = binary::path().display(),
        version = source_version.display(),
    );
    let aside = installed.with_extension("sh");
    fs::write(&aside, script).unwrap();
    binary::install(&aside, installed);
}

#[test]
fn the_gate_refuses_a_poisoned_version_and_the_guard_rolls_back_a_forced_one() {
    let dir = tempfile::tempdir().unwrap();
    let ratings = write_dataset(dir.path()).ratings;
    let (past, live) = ratings.split_at(ratings.len() - LIVE);
    let copy = dir.path().join("celeris");
    binary::install(&binary::path(), &copy);
    let data = dir.path().join("data");
    let node = ProcessOptions::default().binary(&copy).serve(&data);
    let client = node.client();
    let _created = client.post("/v1/models", &json!({"name": "films", "dim": 8})).expect(201);
    let _created = client
        .post(
            "/v1/models",
            &json!({"name": "open", "stream": "films", "dim": 8, "gate": {"force": true},
                    "guard": {"observations": 2000, "seconds": 3000}}),
        )
        .expect(201);
    let _created = client.post("/v1/models", &json!({"name": "mirrored", "dim": 8})).expect(201);
    let (films, open, mirrored) = (client.model("films"), client.model("open"), client.model("mirrored"));
    observe(&films, &lines(past, |label| label));
    observe(&mirrored, &lines(past, |label| MIRROR - label));
    for model in [&films, &open, &mirrored] {
        let done = retrain(&client, model);
        assert_eq!((&done["state"], &done["version"]), (&json!("succeeded"), &json!(2)), "{done}");
        assert_eq!(done["gate"]["verdict"], "passed", "a first training beats an untrained version: {done}");
        let (holdout, report) = (&done["gate"]["holdout"], &done["gate"]);
        assert!(holdout["candidate"].as_f64() < holdout["incumbent"].as_f64(), "{report}");
        assert_eq!((&report["measure"], &report["incumbent"]), (&json!("rmse"), &json!(1)));
    }
    poison(&copy, &versions_of(&data, "mirrored").join("2"), "mirrored");

    // The refused version is kept with the report of the gate, and not activated.
    let refused = retrain(&client, &films);
    assert_eq!((&refused["state"], &refused["version"]), (&json!("rejected"), &json!(3)), "{refused}");
    let report = &refused["gate"];
    assert_eq!((&report["verdict"], &report["incumbent"]), (&json!("refused"), &json!(2)), "{refused}");
    let holdout = &report["holdout"];
    assert!(
        holdout["observations"].as_u64().unwrap() >= 50 && holdout["standard_error"].as_f64().unwrap() > 0.0,
        "{report}"
    );
    assert!(holdout["difference"].as_f64().unwrap() > holdout["standard_error"].as_f64().unwrap(), "{report}");
    assert_eq!(active(&films), 2);
    let newest = films.get("versions").expect(200)["versions"][0].clone();
    assert_eq!((&newest["version"], &newest["active"], &newest["gate"]), (&json!(3), &json!(false), report));
    assert!(events(&films).contains(&("gate_refused".into(), "job".into())), "{:?}", events(&films));

    // With the gate forced open, the version serves until its loss on live traffic is known.
    let forced = retrain(&client, &open);
    assert_eq!((&forced["state"], &forced["gate"]["verdict"]), (&json!("succeeded"), &json!("forced")), "{forced}");
    assert_eq!(active(&open), 3);
    let guarding = open.get("").expect(200)["guarding"].clone();
    assert_eq!(guarding["against"], 2, "{guarding}");
    let mut chunks = live.chunks(25);
    eventually("the guard's rollback", || {
        if active(&open) == 2 {
            return Some(());
        }
        if let Some(chunk) = chunks.next() {
            observe(&films, &lines(chunk, |label| label));
        }
        None
    });
    let model = open.get("").expect(200);
    assert_eq!(model["guarding"], Value::Null, "{model}");
    let rolled_back = open.get("events?limit=1").expect(200)["events"][0].clone();
    assert_eq!((&rolled_back["kind"], &rolled_back["by"]), (&json!("rolled_back"), &json!("guard")), "{rolled_back}");
    assert_eq!((&rolled_back["before"], &rolled_back["after"]), (&json!(3), &json!(2)), "{rolled_back}");
    assert!(rolled_back["why"].as_str().unwrap().contains("live loss"), "{rolled_back}");
    let metrics = client.get("/metrics").text;
    assert!(metrics.contains(r#"celeris_switches_total{model="open",kind="rolled_back"} 1"#), "{metrics}");
    assert_eq!(active(&films), 2);
    assert_eq!(node.terminate().code, Some(0));
    // The refused and the rolled back version are kept.
    let node = NodeProcess::serve(&data);
    for model in ["films", "open"] {
        let model = node.model(model);
        assert_eq!(active(&model), 2);
        assert_eq!(model.get("versions").expect(200)["versions"].as_array().unwrap().len(), 3);
    }
}
