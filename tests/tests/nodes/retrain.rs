//! Retraining runs concurrently with serving and loses no feedback, and every version can be
//! activated again.

use std::path::Path;

use celeris_tests::fixtures::{DATASET_ITEMS as ITEMS, DATASET_RATINGS as RATINGS, write_dataset};
use celeris_tests::{Client, ModelClient, Node, NodeProcess, ProcessOptions, binary, eventually};
use serde_json::{Value, json};

fn import(client: &Client, model: &str, dataset: &Path) {
    let imported =
        binary::run(["import", "--url", client.url(), "--model", model, "--dataset", dataset.to_str().unwrap()]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
}

fn start_retraining(model: &ModelClient) -> String {
    let accepted = model.post("retrain", &json!({"why": "a test asked"})).expect(202);
    accepted["job"].as_str().unwrap().to_owned()
}

/// The job once it has ended; `meanwhile` is called after every poll before that.
fn ended(client: &Client, job: &str, mut meanwhile: impl FnMut()) -> Value {
    eventually("the end of the retraining", || {
        let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
        if matches!(state["state"].as_str(), Some("queued" | "running")) {
            meanwhile();
            return None;
        }
        Some(state)
    })
}

fn predict(model: &ModelClient, user: &str) -> Value {
    let items: Vec<String> = (1..=ITEMS).map(|item| item.to_string()).collect();
    model.post("predict", &json!({"user": user, "items": items})).expect(200)
}

fn scores(prediction: &Value) -> Vec<f64> {
    prediction["scores"].as_array().unwrap().iter().map(|score| score["score"].as_f64().unwrap()).collect()
}

/// The numbers of the versions, newest first, and the active one.
fn versions(model: &ModelClient) -> (Vec<u64>, u64) {
    let versions = model.get("versions").expect(200)["versions"].as_array().unwrap().clone();
    let number = |version: &Value| version["version"].as_u64().unwrap();
    let active: Vec<u64> = versions.iter().filter(|version| version["active"] == true).map(number).collect();
    assert_eq!(active.len(), 1, "{versions:?}");
    (versions.iter().map(number).collect(), active[0])
}

#[test]
fn a_new_version_learns_from_the_log_and_every_version_can_be_activated_again() {
    let dataset = tempfile::tempdir().unwrap();
    let written = write_dataset(dataset.path());
    let of_user_1 = written.ratings.iter().filter(|rating| rating.user.as_str() == "1").count();
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    let created = client.post("/v1/models", &json!({"name": "films", "dim": 8})).expect(201);
    assert_eq!(created["active_version"], 1);
    let films = client.model("films");
    import(&client, "films", dataset.path());
    assert_eq!(films.get("").expect(200)["observations"], RATINGS);
    assert_eq!(films.user("1", 0)["user_epoch"], of_user_1);
    // A repeated import adds nothing.
    import(&client, "films", dataset.path());
    assert_eq!(films.get("").expect(200)["observations"], RATINGS);
    assert!(films.get("items/1").expect(200)["attributes"]["title"].is_string());

    let untrained = predict(&films, "1");
    assert_eq!(untrained["version"], 1);
    let job = start_retraining(&films);
    let refused = films.post("retrain", &json!({}));
    assert_eq!(refused.status, 409, "one training of a model at a time: {}", refused.text);
    assert!(refused.json()["detail"].as_str().unwrap().contains(&job));

    let mut fed = 0;
    let done = ended(&client, &job, || {
        let reply = films.observe(&json!({"user": "during", "item": (fed % ITEMS + 1).to_string(), "label": 4}));
        fed += 1;
        assert_eq!(reply["user_epoch"], fed);
        let answer = predict(&films, "during");
        assert!([1, 2].map(Value::from).contains(&answer["version"]), "serving goes on: {answer}");
    });
    assert_eq!(done["state"], "succeeded", "{done}");
    assert_eq!((&done["why"], &done["version"], &done["progress"]), (&json!("a test asked"), &json!(2), &json!(1.0)));
    assert!(done["metrics"].as_object().is_some_and(|metrics| !metrics.is_empty()), "{done}");
    assert!(fed > 0, "the training ended before any observation");
    let during = films.user("during", 10_000);
    assert_eq!(
        (&during["version"], &during["user_epoch"], &during["observations"]),
        (&json!(2), &json!(fed), &json!(fed))
    );

    assert_eq!(versions(&films), (vec![2, 1], 2));
    let listed = films.get("versions").expect(200)["versions"][0].clone();
    assert_eq!((&listed["parent"], &listed["items"]), (&json!(1), &json!(ITEMS)));
    let trained = predict(&films, "1");
    assert_eq!((&trained["version"], &trained["user_epoch"]), (&json!(2), &untrained["user_epoch"]));
    assert_ne!(scores(&trained), scores(&untrained));

    let activate = |version: u64| films.post(&format!("versions/{version}/activate"), &json!({})).expect(200);
    assert_eq!(activate(1)["active_version"], 1);
    assert_eq!(predict(&films, "1")["scores"], untrained["scores"], "the old version answers as it did, bit for bit");
    // An observation made under one version counts under all.
    films.observe(&json!({"user": "during", "item": "1", "label": 1}));
    assert_eq!(films.post("rollback", &json!({})).expect(200)["active_version"], 2);
    assert_eq!(predict(&films, "1")["scores"], trained["scores"]);
    assert_eq!(films.user("during", 0)["observations"], fed + 1);

    node.stop();
    let node = Node::serve(dir.path());
    let films = node.model("films");
    assert_eq!(versions(&films), (vec![2, 1], 2));
    assert_eq!(predict(&films, "1")["scores"], trained["scores"]);
    assert_eq!(films.user("during", 0)["observations"], fed + 1);
    assert_eq!(films.post("rollback", &json!({})).expect(200)["active_version"], 1);
    let exhausted = films.post("rollback", &json!({}));
    assert_eq!(exhausted.status, 409, "{}", exhausted.text);
    assert_eq!(node.client().get(&format!("/v1/jobs/{job}")).expect(200)["state"], "succeeded");
}

#[test]
fn features_given_to_a_trained_item_take_effect_with_the_next_version() {
    let dataset = tempfile::tempdir().unwrap();
    write_dataset(dataset.path());
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    let _created = client.post("/v1/models", &json!({"name": "films", "dim": 8})).expect(201);
    let films = client.model("films");
    import(&client, "films", dataset.path());
    assert_eq!(ended(&client, &start_retraining(&films), || {})["state"], "succeeded");
    let trained = predict(&films, "1");

    let given = [0.5, -0.5, 0.25, 0.0, 1.5, -1.0, 0.75, 1.0];
    assert_eq!(films.put("items/5", &json!({"features": given})).expect(200)["effective"], "next_version");
    assert_eq!(predict(&films, "1")["scores"], trained["scores"], "a version's features do not change");
    assert_eq!(ended(&client, &start_retraining(&films), || {})["state"], "succeeded");
    let item = films.get("items/5").expect(200);
    assert_eq!((&item["trained"], &item["features"]), (&json!(true), &json!(given)));
}

#[test]
fn retraining_without_data_fails_with_a_reason_and_serving_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    let _created = client.post("/v1/models", &json!({"name": "films", "dim": 8})).expect(201);
    let films = client.model("films");
    let failed = ended(&client, &start_retraining(&films), || {});
    assert_eq!(failed["state"], "failed", "{failed}");
    assert!(failed["error"].as_str().unwrap().contains("no observations"), "{failed}");
    assert_eq!(versions(&films), (vec![1], 1));
    films.observe(&json!({"user": "u", "item": "1", "label": 4}));
    assert_eq!(predict(&films, "u")["user_epoch"], 1);
    // One observation is too little to learn features from; the model keeps serving, whether or not
    // the job succeeds.
    let poor = ended(&client, &start_retraining(&films), || {});
    assert!(poor["state"] == "succeeded" || poor["error"].as_str().is_some_and(|why| !why.is_empty()), "{poor}");
    assert!(scores(&predict(&films, "u")).iter().all(|score| score.is_finite()));
}

#[test]
fn a_node_killed_during_a_training_restarts_with_its_previous_version() {
    let dataset = tempfile::tempdir().unwrap();
    write_dataset(dataset.path());
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let client = node.client();
    let _created = client.post("/v1/models", &json!({"name": "films", "dim": 8})).expect(201);
    import(&client, "films", dataset.path());
    let job = start_retraining(&client.model("films"));
    node.kill_hard();

    let node = NodeProcess::serve(dir.path());
    let (client, films) = (node.client(), node.model("films"));
    let (numbers, active) = versions(&films);
    assert!(numbers == [1] && active == 1, "the training cannot have ended: {numbers:?}");
    let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
    assert_eq!(state["state"], "failed", "{state}");
    assert_eq!(films.get("").expect(200)["observations"], RATINGS);
    let done = ended(&client, &start_retraining(&films), || {});
    assert_eq!(done["state"], "succeeded", "{done}");
    assert_eq!(versions(&films).1, done["version"].as_u64().unwrap());
}

#[test]
fn a_training_works_in_a_relative_data_directory() {
    let dataset = tempfile::tempdir().unwrap();
    write_dataset(dataset.path());
    let dir = tempfile::tempdir().unwrap();
    let node = ProcessOptions::default().current_dir(dir.path()).serve(Path::new("data"));
    let client = node.client();
    let _created = client.post("/v1/models", &json!({"name": "films", "dim": 8})).expect(201);
    import(&client, "films", dataset.path());
    let films = client.model("films");
    let done = ended(&client, &start_retraining(&films), || {});
    assert_eq!(done["state"], "succeeded", "{done}");
    assert_eq!(versions(&films).1, 2);
}
