//! A node that knows only what it was sent: items are found from their first observation on.

use std::collections::BTreeSet;

use celeris_tests::{ModelClient, Node, NodeProcess};
use serde_json::{Value, json};

fn create(node: &Node, body: &Value) -> ModelClient {
    node.client().post("/v1/models", body).expect(201);
    node.model(body["name"].as_str().unwrap())
}

fn films(node: &Node) -> ModelClient {
    create(node, &json!({"name": "films", "dim": 4}))
}

/// The items recommended to a user, in any order.
fn recommended(films: &ModelClient, user: &str) -> BTreeSet<String> {
    let request = json!({"user": user, "k": 100, "policy": "greedy"});
    let reply = films.post("recommend", &request).expect(200);
    reply["items"].as_array().unwrap().iter().map(|slot| slot["item"].as_str().unwrap().to_owned()).collect()
}

/// The items of a listing, with whether the active version was trained on them.
fn listed(films: &ModelClient, query: &str) -> Vec<(String, bool)> {
    let reply = films.get(&format!("items{query}")).expect(200);
    let items = reply["items"].as_array().unwrap().iter();
    items.map(|item| (item["item"].as_str().unwrap().to_owned(), item["trained"] == true)).collect()
}

fn set(items: &[&str]) -> BTreeSet<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

#[test]
fn an_item_is_recommended_and_listed_from_its_first_observation_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = films(&node);
    let others = create(&node, &json!({"name": "others", "stream": "films", "dim": 2}));
    assert_eq!(recommended(&films, "v"), set(&[]));
    for (at, item) in ["b", "a", "b", "long id"].iter().enumerate() {
        films.observe(&json!({"user": "u", "item": item, "label": 4}));
        assert_eq!(recommended(&films, "v"), set(&["b", "a", "b", "long id"][..=at]), "at once, for another user");
    }
    assert_eq!(recommended(&films, "u"), set(&[]), "the user has seen them");
    assert_eq!(recommended(&others, "v"), set(&["a", "b", "long id"]), "the catalog is the stream's");
    let later = create(&node, &json!({"name": "later", "stream": "films", "dim": 3}));
    assert_eq!(recommended(&later, "v"), set(&["a", "b", "long id"]), "for a model created afterwards, too");

    let all = [("a".to_owned(), false), ("b".to_owned(), false), ("long id".to_owned(), false)];
    assert_eq!(listed(&films, ""), all);
    assert_eq!(listed(&films, "?after=a&limit=1"), all[1..2]);
    assert_eq!(films.get("items").expect(200)["total"], 3);
    let item = films.get("items/a").expect(200);
    assert_eq!((&item["source"], &item["attributes"]), (&json!("stand_in"), &Value::Null));

    films.put("items/a", &json!({"attributes": {"genres": ["Drama"]}})).expect(200);
    let drama = json!({"user": "v", "k": 5, "filter": {"eq": {"field": "genres", "value": "Drama"}}});
    assert_eq!(films.post("recommend", &drama).expect(200)["items"][0]["item"], "a", "it can be described later");
}

#[test]
fn a_deleted_item_stays_deleted_when_it_is_observed() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = films(&node);
    for item in ["a", "b"] {
        films.observe(&json!({"user": "u", "item": item, "label": 4}));
    }
    assert_eq!(films.delete("items/a").status, 204);
    assert_eq!(films.delete("items/never").status, 404);
    films.observe(&json!({"user": "u", "item": "a", "label": 4}));
    assert_eq!((recommended(&films, "v"), films.get("items/a").status), (set(&["b"]), 404));
    node.stop();
    let node = Node::serve(dir.path());
    let films = node.model("films");
    assert_eq!(recommended(&films, "v"), set(&["b"]));
    films.put("items/a", &json!({"attributes": {}})).expect(200);
    assert_eq!(recommended(&films, "v"), set(&["a", "b"]), "a PUT brings it back");
}

#[test]
fn observed_items_stay_when_their_observations_go_and_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    node.client().post("/v1/models", &json!({"name": "films", "dim": 4})).expect(201);
    let films = node.model("films");
    for (user, item) in [("u", "retracted"), ("erased", "erased"), ("u", "kept")] {
        films.observe(&json!({"user": user, "item": item, "label": 4, "observation_id": item}));
    }
    films.delete("observations/retracted").expect(200);
    films.delete("users/erased").expect(200);
    let expected = set(&["retracted", "erased", "kept"]);
    assert_eq!(recommended(&films, "v"), expected);
    node.kill_hard();
    let node = NodeProcess::serve(dir.path());
    assert_eq!(recommended(&node.model("films"), "v"), expected);
}
