//! A model that searches its settings by itself, after a time and with new observations.

use celeris_tests::eventually;
use serde_json::{Value, json};

use crate::studies::{ended, rated};

#[test]
fn a_trigger_starts_a_study_and_the_next_one_with_new_observations() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, client, films) = rated(dir.path(), &json!({"name": "films", "dim": 1, "gate": {"force": true}}));
    let trigger = json!({"every": 1, "space": {"dim": {"int": [3, 6]}}, "trials": 1, "then": "retrain"});
    let model = films.patch("", &json!({"triggers": {"study": trigger}})).expect(200);
    assert_eq!(model["triggers"]["study"]["trials"], 1);
    let studies = || films.get("studies").expect(200)["studies"].as_array().unwrap().clone();
    let first = eventually("a study", || studies().pop());
    let study = ended(&client, first["study"].as_str().unwrap());
    let why = study["why"].as_str().unwrap().to_owned();
    assert!(why.starts_with("study: ") && why.contains("since the model was created"), "{why}");
    let events = || films.get("events").expect(200)["events"].as_array().unwrap().clone();
    let of_kind = |kind: &str| -> Vec<Value> { events().into_iter().filter(|event| event["kind"] == kind).collect() };
    let (triggered, started) = (of_kind("triggered"), of_kind("study_started"));
    assert_eq!((triggered.len(), started.len()), (1, 1));
    assert_eq!((&triggered[0]["details"]["trigger"], &triggered[0]["why"]), (&json!("study"), &json!(why)));
    assert_eq!((&started[0]["by"], &started[0]["why"]), (&json!("trigger"), &json!(why)));
    // What was to follow follows, as after any study.
    eventually("the use of the settings", || {
        let study = client.get(&format!("/v1/studies/{}", study["study"].as_str().unwrap())).expect(200);
        (!study["applied"].is_null()).then_some(())
    });
    eventually("the end of the training", || {
        let jobs = client.get("/v1/jobs").expect(200);
        (jobs["jobs"][0]["state"] == "succeeded").then_some(())
    });
    assert_eq!(studies().len(), 1, "a study of the same observations would find the same");
    films.observe(&json!({"user": "1", "item": "1", "label": 4}));
    let next = eventually("another study", || Some(studies()).filter(|studies| studies.len() == 2));
    assert!(next[0]["why"].as_str().unwrap().contains("since the last study began"), "{next:?}");
    films.patch("", &json!({"triggers": {"study": null}})).expect(200);
    assert!(films.get("").expect(200)["triggers"]["study"].is_null());
}

#[test]
fn a_trigger_of_a_study_that_the_model_cannot_have_is_refused_by_field() {
    let dir = tempfile::tempdir().unwrap();
    let (_node, _client, films) = rated(dir.path(), &json!({"name": "films", "dim": 4}));
    let valid = json!({"every": 60, "space": {"dim": {"int": [3, 6]}}});
    for (name, value, part) in [
        ("every", json!(0.5), "triggers.study.every"),
        ("space", json!({"dims": {"int": [3, 6]}}), "space.dims"),
        ("space", json!({"alpha": {"float": [1, 6]}}), "space.alpha"),
        ("space", json!({"dim": {"int": [6, 3]}}), "space.dim.int"),
        ("trials", json!(0), "trials"),
        ("trials", json!(501), "trials"),
        ("workers", json!(0), "workers"),
        ("patience", json!(0), "patience"),
        ("seed", json!(1), "seed"),
    ] {
        let mut trigger = valid.clone();
        trigger[name] = value.clone();
        let refused = films.patch("", &json!({"triggers": {"study": trigger}}));
        assert!([400, 422].contains(&refused.status), "{name} {value}: {}", refused.status);
        assert!(refused.json()["detail"].as_str().unwrap().contains(part), "{name} {value}: {}", refused.json());
    }
    films.patch("", &json!({"triggers": {"study": valid}, "gate": {"holdout_share": 0}})).expect(422);
    films.patch("", &json!({"triggers": {"study": valid}})).expect(200);
    assert_eq!(films.get("").expect(200)["triggers"]["study"]["trials"], 30);
}
