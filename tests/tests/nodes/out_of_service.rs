//! Models that are out of service: erasures reach their data, models that they depend on cannot be
//! deleted, and they resume where they stopped.

use std::fs;
use std::path::{Path, PathBuf};

use celeris_tests::{Node, data_dir, eventually};
use serde_json::{Value, json};

/// A file that `model` needs to serve, and its contents.
fn needed(dir: &Path, model: &str) -> (PathBuf, Vec<u8>) {
    let file = data_dir::versions_of(dir, model).join("1/prior.parquet");
    let bytes = fs::read(&file).unwrap();
    (file, bytes)
}

/// A node after a restart without that file.
fn without(dir: &Path, node: Node, file: &Path) -> Node {
    node.stop();
    fs::remove_file(file).unwrap();
    Node::serve(dir)
}

fn with(dir: &Path, node: Node, (file, bytes): &(PathBuf, Vec<u8>)) -> Node {
    node.stop();
    fs::write(file, bytes).unwrap();
    Node::serve(dir)
}

fn rank(node: &Node, model: &str, user: &str) -> Value {
    node.model(model).post("topk", &json!({"user": user, "items": ["a", "b"], "k": 2})).expect(200)
}

#[test]
fn an_erasure_reaches_the_decisions_of_models_and_selections_that_are_out_of_service() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    for name in ["films", "books", "elsewhere"] {
        let stream = if name == "elsewhere" { name } else { "all" };
        node.client().post("/v1/models", &json!({"name": name, "dim": 4, "stream": stream})).expect(201);
    }
    let arms = json!(["films", "books"]);
    let mix = json!({"name": "mix", "kind": "selection", "arms": arms, "label_range": [0, 5], "scope": "global"});
    node.client().post("/v1/models", &mix).expect(201);
    let decided: Vec<(&str, String)> = ["films", "mix", "elsewhere"]
        .into_iter()
        .map(|name| (name, rank(&node, name, "ann")["decision_id"].as_str().unwrap().to_owned()))
        .collect();
    for name in ["films", "elsewhere"] {
        node.model(name).put("items/a", &json!({"features": [1, 2, 3, 1]})).expect(200);
    }
    let films = needed(dir.path(), "films");
    let elsewhere = needed(dir.path(), "elsewhere");
    let node = without(dir.path(), node, &films.0);
    let node = without(dir.path(), node, &elsewhere.0);
    assert_eq!(node.model("films").get("").status, 503);
    let receipt = node.model("books").delete("users/ann").expect(200);
    assert_eq!(receipt["decisions"], 2, "{receipt}");
    assert_eq!(node.model("books").delete("items/a").status, 204);

    let node = with(dir.path(), node, &films);
    let node = with(dir.path(), node, &elsewhere);
    let found: Vec<(&str, u16)> =
        decided.iter().map(|(name, id)| (*name, node.model(name).get(&format!("decisions/{id}")).status)).collect();
    assert_eq!(found, [("films", 404), ("mix", 404), ("elsewhere", 200)], "a user of another stream is another user");
    let features = |name: &str| node.model(name).get("items/a").json()["given_features"].clone();
    assert_eq!((features("films"), features("elsewhere")), (json!(null), json!([1.0, 2.0, 3.0, 1.0])));
}

#[test]
fn an_arm_of_a_selection_that_is_out_of_service_cannot_be_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    for name in ["a", "b"] {
        node.client().post("/v1/models", &json!({"name": name, "dim": 4, "stream": "all"})).expect(201);
    }
    let mix = json!({"name": "mix", "kind": "selection", "arms": ["a", "b"], "label_range": [0, 5]});
    node.client().post("/v1/models", &mix).expect(201);
    let b = needed(dir.path(), "b");
    let node = without(dir.path(), node, &b.0);
    assert_eq!(node.model("mix").get("").status, 503);
    for arm in ["a", "b"] {
        let refused = node.model(arm).delete("");
        assert_eq!(refused.status, 409, "{}", refused.text);
        assert!(refused.text.contains("mix"), "{}", refused.text);
    }
    let node = with(dir.path(), node, &b);
    rank(&node, "mix", "ann");
}

#[test]
fn default_rewards_that_became_due_are_given_once_the_model_serves_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let reward = json!({"label": 1, "after_seconds": 1, "slots": 2});
    for name in ["films", "books"] {
        let body = json!({"name": name, "dim": 4, "default_reward": reward});
        node.client().post("/v1/models", &body).expect(201);
    }
    let films = needed(dir.path(), "films");
    rank(&node, "films", "ann");
    // The node stops before the reward is due, or right after it was given; in the latter case
    // nothing can be lost.
    let node = without(dir.path(), node, &films.0);
    // Once a later reward of another model was given, all models have been checked.
    rank(&node, "books", "bob");
    let observations = |node: &Node, model: &str, user: &str| node.model(model).user(user, 0)["observations"].clone();
    eventually("another model's default rewards", || (observations(&node, "books", "bob") == 2).then_some(()));
    let node = with(dir.path(), node, &films);
    eventually("the default rewards", || (observations(&node, "films", "ann") == 2).then_some(()));
}
