//! Versions are listed with their lineage, compared, pinned, and pruned unless they are needed.

use std::collections::BTreeSet;

use celeris_tests::data_dir::versions_of;
use celeris_tests::fixtures::write_dataset;
use celeris_tests::{Client, ModelClient, Node, eventually};
use serde_json::{Value, json};

fn retrain(client: &Client, films: &ModelClient) -> Value {
    let job = films.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    eventually("the end of the retraining", || {
        let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
    })
}

fn listed(films: &ModelClient) -> Vec<Value> {
    films.get("versions").expect(200)["versions"].as_array().unwrap().clone()
}

fn numbers(films: &ModelClient) -> BTreeSet<u64> {
    listed(films).iter().map(|version| version["version"].as_u64().unwrap()).collect()
}

#[test]
fn versions_are_compared_pinned_and_pruned_unless_needed() {
    let dir = tempfile::tempdir().unwrap();
    let ratings = write_dataset(dir.path()).ratings;
    let data = dir.path().join("data");
    let node = Node::serve(&data);
    let client = node.client();
    let settings = json!({"name": "films", "dim": 8, "keep_versions": 2, "gate": {"force": true}});
    let created = client.post("/v1/models", &settings).expect(201);
    assert_eq!((&created["keep_versions"], &created["gate"]["force"]), (&json!(2), &json!(true)));
    assert_eq!((&created["gate"]["holdout_share"], &created["guard"]["observations"]), (&json!(0.05), &json!(1000)));
    let films = client.model("films");
    // Every other item occurs only in the second part.
    let is_late = |item: &str| item.parse::<usize>().unwrap() % 2 == 0;
    let (late, early): (Vec<_>, Vec<_>) = ratings.iter().partition(|rating| is_late(rating.item.as_str()));
    for part in [early, late] {
        let lines: String = part
            .iter()
            .map(|rating| format!("{}\n", json!({"user": rating.user, "item": rating.item, "label": rating.label})))
            .collect();
        assert_eq!(films.observe_lines(&lines).unwrap().map(Result::unwrap).count(), part.len());
        assert_eq!(retrain(&client, &films)["state"], "succeeded");
    }

    // Lineage, and the reports of the gate.
    let versions = listed(&films);
    let parents: Vec<&Value> = versions.iter().map(|version| &version["parent"]).collect();
    assert_eq!(parents, [&json!(2), &json!(1), &Value::Null]);
    assert!(versions[0]["gate"]["holdout"]["observations"].as_u64().unwrap() > 0 && versions[2]["gate"].is_null());
    let read = |version: &Value| -> u64 {
        version["watermark"].as_array().unwrap().iter().map(|sequence| sequence.as_u64().unwrap()).sum()
    };
    let (all, trained) = (ratings.len() as f64, versions[0]["metrics"]["ratings"].as_f64().unwrap());
    assert_eq!(read(&versions[0]) as f64, all, "the watermark is the end of the log");
    let held = versions[0]["gate"]["holdout"]["observations"].as_f64().unwrap();
    assert_eq!(trained, all - held, "a training leaves out its holdout");
    // A share of 0.05 within four standard deviations of the draw.
    assert!((held - 0.05 * all).abs() < 4.0 * (0.1 * all).sqrt() / 2.0, "{held} of {all}");
    assert_eq!((&versions[1]["rollback_target"], &versions[0]["active"]), (&json!(true), &json!(true)));

    // The difference between an early and a late version, and none between a version and itself.
    let diff = films.get("versions/2/diff/3").expect(200);
    assert_eq!((&diff["from"]["version"], &diff["to"]["version"]), (&json!(2), &json!(3)));
    let named =
        |field: &str| diff[field]["first"].as_array().unwrap().iter().all(|item| is_late(item.as_str().unwrap()));
    assert!(diff["items_added"]["count"].as_u64().unwrap() > 20 && named("items_added"), "{diff}");
    assert_eq!(diff["items_removed"]["count"], 0, "{diff}");
    assert!(diff["loss"]["difference"].as_f64().unwrap() < 0.0, "the later version has the later items: {diff}");
    let moved = |diff: &Value, field: &str| diff["rankings"][field].as_f64().unwrap();
    assert!(moved(&diff, "overlap_at_10") < 1.0 && moved(&diff, "kendall_tau") < 0.9, "{diff}");
    let same = films.get("versions/3/diff/3").expect(200);
    assert_eq!((moved(&same, "overlap_at_10"), &same["loss"]["difference"]), (1.0, &json!(0.0)), "{same}");
    assert!(moved(&same, "kendall_tau") > 0.99, "{same}");
    assert_eq!(films.get("versions/2/diff/9").status, 404);

    // Pruning keeps the pinned version, the active one, its rollback target, and the two newest of
    // the others.
    assert_eq!(films.post("versions/1/pin", &json!({})).expect(200)["pinned"], true);
    for _ in 0..4 {
        assert_eq!(retrain(&client, &films)["state"], "succeeded");
    }
    assert_eq!(numbers(&films), BTreeSet::from([1, 4, 5, 6, 7]));
    let folder = versions_of(&data, "films");
    assert!(!folder.join("2").exists() && folder.join("1").exists());
    assert_eq!(films.post("versions/2/activate", &json!({})).status, 404);
    assert_eq!(films.post("rollback", &json!({})).expect(200)["active_version"], 6);
    assert_eq!(films.delete("versions/1/pin").expect(200)["pinned"], false);
    films.post("versions/7/activate", &json!({})).expect(200);
    assert_eq!(retrain(&client, &films)["version"], 8);
    // 8 is active and 7 is its rollback target: of the rest, 6 and 5 are the newest.
    assert_eq!(numbers(&films), BTreeSet::from([5, 6, 7, 8]));
    let events = films.get("events?limit=100").expect(200)["events"].as_array().unwrap().clone();
    let of = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count();
    assert_eq!((of("pinned"), of("unpinned"), of("pruned"), of("rolled_back")), (1, 1, 4, 1), "{events:?}");
}

#[test]
fn invalid_settings_are_refused_with_the_field() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    for (settings, named) in [
        (json!({"gate": {"margin": 1}}), "gate.margin"),
        (json!({"gate": {"holdout_share": 0.6}}), "gate.holdout_share"),
        (json!({"gate": {"shadow_seconds": 4000}}), "gate.shadow_seconds"),
        (json!({"gate": {"maximum": 4000}}), "maximum"),
        (json!({"guard": {"margin": -0.1}}), "guard.margin"),
        (json!({"keep_versions": 0}), "keep_versions"),
    ] {
        let mut model = settings.clone();
        model["name"] = "films".into();
        let refused = node.client().post("/v1/models", &model);
        assert_eq!(refused.status, 422, "{}", refused.text);
        assert!(refused.json()["detail"].as_str().unwrap().contains(named), "{}", refused.text);
    }
    assert_eq!(node.model("films").get("").status, 404);
}
