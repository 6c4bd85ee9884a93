//! A model knows its labels and times: what is outside is refused or clipped, and one wrong label
//! neither ruins a user nor the figures of the model.

use celeris_tests::fixtures::{config_file, create_model};
use celeris_tests::{ModelClient, Node, Reply, eventually};
use serde_json::{Value, json};

/// Labels on a scale from 1 to 5, by user and item.
fn stars(user: usize, item: usize) -> f64 {
    1.0 + ((user * 7 + item * 3 + user * item) % 5) as f64
}

fn event(user: &str, item: usize, label: f64) -> Value {
    json!({"user": user, "item": format!("item-{item}"), "label": label})
}

fn score(model: &ModelClient, user: &str, item: usize) -> f64 {
    let reply = model.post("predict", &json!({"user": user, "item": format!("item-{item}")})).expect(200);
    reply["scores"][0]["score"].as_f64().unwrap()
}

fn history(model: &ModelClient, user: &str) -> Vec<Value> {
    model.user(user, 10)["history"].as_array().unwrap().clone()
}

#[track_caller]
fn assert_names(reply: Reply, words: &[&str]) {
    let problem = reply.expect(422);
    let detail = problem["detail"].as_str().unwrap();
    for word in words {
        assert!(detail.contains(word), "{word:?} is missing: {detail}");
    }
}

#[test]
fn a_label_outside_of_the_range_is_refused_everywhere_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    create_model(&node.client(), "films", 101);
    let films = node.model("films");
    let changed = films.patch("", &json!({"label_range": [1, 5]})).expect(200);
    assert_eq!((&changed["label_range"], &changed["labels_outside"]), (&json!([1.0, 5.0]), &json!("refuse")));
    let first = films.observe(&event("u", 1, 4.0));
    let id = first["observation_id"].as_str().unwrap();
    let before = score(&films, "u", 1);
    let names = ["label", "1 to 5", "500", "films"];
    assert_names(films.post("observe", &event("u", 1, 500.0)), &names);
    assert_names(films.put(&format!("observations/{id}"), &json!({"label": 500})), &names);
    let past = json!({"history": [{"item": "item-1", "label": 500}], "k": 1});
    assert_names(films.post("recommend", &past), &names);
    let mut lines = films.observe_lines(&event("u", 1, 500.0).to_string()).unwrap();
    assert!(lines.next().unwrap().unwrap()["error"]["detail"].as_str().unwrap().contains("label_range"));
    assert_eq!(score(&films, "u", 1), before);
    assert_eq!(history(&films, "u").len(), 1);
    node.stop();

    let node = Node::serve(dir.path());
    let films = node.model("films");
    assert_names(films.post("observe", &event("u", 1, 0.5)), &["1 to 5", "0.5"]);
    let reward = json!({"default_reward": {"label": 0, "after_seconds": 60}});
    assert_names(films.patch("", &reward), &["default_reward.label", "label_range", "0"]);
    films.patch("", &json!({"label_range": null})).expect(200);
    films.observe(&event("u", 1, 0.5));
}

#[test]
fn a_clipped_label_is_recorded_as_the_nearest_of_the_range() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let settings = json!({"name": "films", "dim": 8, "label_range": [1, 5], "labels_outside": "clip"});
    node.client().post("/v1/models", &settings).expect(201);
    let films = node.model("films");
    let mut sent = event("u", 1, 500.0);
    sent["observation_id"] = json!("wild");
    let reply = films.observe(&sent);
    assert_eq!((&reply["clipped"], &reply["duplicate"]), (&json!(5.0), &json!(false)));
    let repeated = films.observe(&sent);
    assert_eq!((&repeated["clipped"], &repeated["duplicate"]), (&json!(5.0), &json!(true)), "{repeated}");
    assert_eq!(films.observe(&event("u", 2, 4.0)).get("clipped"), None);
    let labels: Vec<f64> = history(&films, "u").iter().map(|event| event["label"].as_f64().unwrap()).collect();
    assert!(labels.contains(&5.0) && !labels.contains(&500.0), "{labels:?}");
}

#[test]
fn one_wrong_label_ruins_neither_a_user_nor_the_figures_nor_the_next_version() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    node.client().post("/v1/models", &json!({"name": "films", "dim": 4, "guard": {"observations": 0}})).expect(201);
    let films = node.model("films");
    let train = || {
        let job = films.post("retrain", &json!({"cold": true})).expect(202)["job"].as_str().unwrap().to_owned();
        eventually("the end of the training", || {
            let job = node.client().get(&format!("/v1/jobs/{job}")).expect(200);
            ["succeeded", "rejected", "failed"].contains(&job["state"].as_str().unwrap()).then_some(job)
        })
    };
    let lines: Vec<String> =
        (0..600).map(|n| event(&format!("u-{}", n % 40), n % 25, stars(n % 40, n % 25)).to_string()).collect();
    assert_eq!(films.observe_lines(&lines.join("\n")).unwrap().count(), 600);
    assert_eq!(train()["state"], "succeeded");
    let version = films.get("versions").expect(200)["versions"][0].clone();
    assert_eq!(version["label_range"], json!([1.0, 5.0]), "{version}");
    let usual = score(&films, "u-3", 1);

    films.observe(&event("u-3", 1, 500.0));
    let after = score(&films, "u-3", 1);
    assert!((after - usual).abs() < 9.0, "{usual} became {after}");
    let recent = eventually("the loss of the label", || {
        let model = node.client().get("/v1/models/films").expect(200);
        (model["recent_loss"]["count"] == 601).then(|| model["recent_loss"].clone())
    });
    assert!(recent["value"].as_f64().unwrap() < 3.0, "{recent}");
    let job = train();
    assert_ne!(job["state"], "failed", "{job}");
    let versions = films.get("versions").expect(200)["versions"].clone();
    let range = versions[0]["label_range"].clone();
    assert!(range[1].as_f64().unwrap() <= 9.0, "{range}");
}

#[test]
fn the_half_life_of_a_version_is_the_one_that_it_was_trained_with() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    create_model(&node.client(), "films", 102);
    let films = node.model("films");
    for (n, label) in [(0, 1.0), (1, 5.0)] {
        let mut event = event("u", 1, label);
        event["timestamp"] = json!(1_700_000_000_000_i64 + n * 86_400_000);
        films.observe(&event);
    }
    let before = score(&films, "u", 1);
    assert_eq!(films.patch("", &json!({"half_life": 3600})).expect(200)["half_life"], 3600.0);
    assert_eq!(score(&films, "u", 1), before, "the active version learns as before");
    node.stop();
    let node = Node::serve(dir.path());
    assert_eq!(score(&node.model("films"), "u", 1), before, "also after a restart");
}

#[test]
fn the_default_policy_can_be_changed() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    create_model(&node.client(), "films", 103);
    let films = node.model("films");
    let policy_of = |films: &ModelClient| {
        let ranked = films.post("topk", &json!({"user": "u", "items": ["item-1", "item-2"], "k": 1})).expect(200);
        (ranked["policy"].clone(), ranked["pool"].clone())
    };
    assert_eq!(policy_of(&films).0["name"], "epsilon_greedy");
    let changed = films.patch("", &json!({"policy": {"name": "thompson"}, "pool_share": 1})).expect(200);
    assert_eq!((&changed["policy"]["name"], &changed["pool_share"]), (&json!("thompson"), &json!(1.0)));
    let expected = (json!("thompson"), json!(true));
    let named = |(policy, pool): (Value, Value)| (policy["name"].clone(), pool);
    assert_eq!(named(policy_of(&films)), expected);
    node.stop();
    let node = Node::serve(dir.path());
    assert_eq!(named(policy_of(&node.model("films"))), expected);
}

#[test]
fn times_in_another_unit_are_refused_with_the_unit() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(&dir.path().join("a"));
    let films = create_model(&node.client(), "films", 104);
    let at = |time: Value| {
        let mut event = event("u", 1, 4.0);
        event["timestamp"] = time;
        event
    };
    assert_names(films.post("observe", &at(json!(1_700_000_000))), &["timestamp", "seconds", "1000"]);
    assert_names(films.post("observe", &at(json!(1_700_000_000_000_000_i64))), &["timestamp", "microseconds"]);
    assert_names(films.post("observe", &at(json!("1999-12-31T23:59:59Z"))), &["timestamp", "limits.earliest_time"]);
    films.observe(&at(json!("2000-01-01T00:00:00Z")));

    let config = config_file(dir.path(), "[limits]\nearliest_time = \"1990-01-01T00:00:00Z\"\n");
    let node = Node::configured(&dir.path().join("b"), &config);
    create_model(&node.client(), "films", 104).observe(&at(json!("1999-12-31T23:59:59Z")));
}

#[test]
fn a_selection_takes_the_labels_that_all_of_its_arms_take() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    let create = |body: Value| client.post("/v1/models", &body).expect(201);
    create(json!({"name": "narrow", "stream": "films", "dim": 4, "label_range": [1, 5]}));
    create(json!({"name": "wide", "stream": "films", "dim": 4}));
    for (name, arms) in [("first", ["narrow", "wide"]), ("second", ["wide", "narrow"])] {
        create(
            json!({"name": name, "kind": "selection", "arms": arms, "strategy": {"name": "ab"}, "label_range": [1, 5]}),
        );
        let selection = node.model(name);
        let refused = selection.try_observe(&json!({"user": "u", "item": "i", "label": 77})).unwrap();
        assert_names(refused, &["label", "77", "1 to 5"]);
        selection.observe(&json!({"user": "u", "item": "i", "label": 4, "observation_id": name}));
        assert_eq!(selection.put(&format!("observations/{name}"), &json!({"label": 600})).status, 422);
    }
    node.model("narrow").patch("", &json!({"labels_outside": "clip"})).expect(200);
    let second = node.model("second");
    assert_eq!(second.observe(&json!({"user": "u", "item": "i", "label": 77}))["clipped"], 5.0);
    let corrected = second.put("observations/second", &json!({"label": 600})).expect(200);
    assert_eq!(corrected["clipped"], 5.0, "{corrected}");
}
