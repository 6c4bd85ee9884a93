//! Items added after a training get features from their attributes, over HTTP and across a restart.

use celeris_tests::fixtures::write_dataset;
use celeris_tests::{Client, ModelClient, Node, binary, eventually};
use serde_json::{Value, json};

fn retrain(client: &Client, model: &ModelClient) {
    let job = model.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    let ended = eventually("the end of the retraining", || {
        let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
    });
    assert_eq!(ended["state"], "succeeded", "{ended}");
}

/// A trained model of described items, and the genres of one of them.
fn trained(client: &Client) -> (ModelClient, Value) {
    let dataset = tempfile::tempdir().unwrap();
    write_dataset(dataset.path());
    client.post("/v1/models", &json!({"name": "films", "dim": 8})).expect(201);
    let folder = dataset.path().to_str().unwrap();
    let imported = binary::run(["import", "--url", client.url(), "--model", "films", "--dataset", folder]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    let films = client.model("films");
    retrain(client, &films);
    let described = films.get("items/1").expect(200);
    assert_eq!((&described["source"], &described["trained"]), (&json!("trained"), &json!(true)));
    (films, described["attributes"]["genres"].clone())
}

fn std_error(model: &ModelClient, item: &str) -> f64 {
    let reply = model.post("predict", &json!({"user": "ann", "item": item})).expect(200);
    reply["scores"][0]["std_error"].as_f64().unwrap()
}

#[test]
fn a_new_item_gets_uncertain_features_from_its_attributes_which_freeze_once_observed() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let (films, genres) = trained(&node.client());
    let version = films.get("versions").expect(200)["versions"][0].clone();
    assert!(
        version["metrics"]["cold_map_items"].as_f64().unwrap() >= 70.0,
        "nearly all items are described: {version}"
    );
    films.put("items/new", &json!({"attributes": {"title": "The new one", "genres": genres}})).expect(200);
    let new = films.get("items/new").expect(200);
    assert_eq!((&new["source"], &new["trained"]), (&json!("attributes"), &json!(false)), "{new}");
    // The same features, given by a client.
    films.put("items/given", &json!({"features": new["features"]})).expect(200);
    assert_eq!(films.get("items/given").expect(200)["source"], "given");
    let [from_attributes, given] = ["new", "given"].map(|item| std_error(&films, item));
    assert!(from_attributes > given, "{from_attributes} {given}");

    films.put("items/new", &json!({"attributes": {"title": "Another", "genres": []}})).expect(200);
    let other = films.get("items/new").expect(200);
    assert_ne!(other["features"], new["features"], "attributes count at once");
    films.observe(&json!({"user": "ann", "item": "new", "label": 4}));
    films.put("items/new", &json!({"attributes": {"title": "The new one", "genres": genres}})).expect(200);
    let frozen = films.get("items/new").expect(200);
    assert_eq!((&frozen["features"], &frozen["source"]), (&other["features"], &json!("attributes")));
    assert_eq!(frozen["attributes"]["title"], "The new one");
    let before = std_error(&films, "new");
    node.stop();

    let node = Node::serve(dir.path());
    let films = node.model("films");
    assert_eq!(films.get("items/new").expect(200), frozen);
    assert!((std_error(&films, "new") - before).abs() < 1e-6);
    // The next training includes the item, and a refresh reuses the ridge of the map.
    retrain(&node.client(), &films);
    assert_eq!(films.get("items/new").expect(200)["source"], "trained");
    let ridges: Vec<Value> = films.get("versions").expect(200)["versions"].as_array().unwrap()[..2]
        .iter()
        .map(|version| version["metrics"]["cold_map_ridge"].clone())
        .collect();
    assert!(ridges[0].is_number() && ridges[0] == ridges[1], "{ridges:?}");
}

#[test]
fn without_attributes_there_is_no_map_and_new_items_get_stand_in_features() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    client.post("/v1/models", &json!({"name": "bare", "dim": 4})).expect(201);
    let bare = client.model("bare");
    for at in 0..300 {
        let (user, item) = (format!("u{}", at % 20), format!("i{}", at % 31));
        bare.observe(&json!({"user": user, "item": item, "label": (at * 7 % 5) + 1}));
    }
    retrain(&client, &bare);
    let version = bare.get("versions").expect(200)["versions"][0].clone();
    assert!(version["metrics"].get("cold_map_items").is_none(), "{version}");
    bare.put("items/new", &json!({"attributes": {"genres": ["Drama"]}})).expect(200);
    assert_eq!(bare.get("items/new").expect(200)["source"], "stand_in");
}
