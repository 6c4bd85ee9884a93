//! Contexts in a cluster: the coordinator numbers their fields, for the users of all nodes.

use celeris_tests::{Cluster, eventually};
use serde_json::{Value, json};

use crate::load::MODEL;

#[test]
fn fields_of_contexts_are_the_same_on_every_node() {
    let Some(mut cluster) = Cluster::start(3, 1) else { return };
    cluster.client(0).post("/v1/models", &json!({"name": MODEL, "dim": 8})).expect(201);
    for node in 0..3 {
        let serves = || (cluster.client(node).get(&format!("/v1/models/{MODEL}")).status == 200).then_some(());
        eventually("the node has the model", serves);
    }
    // Users of all nodes, each with fields that are new, by single requests and by lines.
    let observation = |user: usize| {
        let field = format!("field-{}", user % 12);
        json!({"user": format!("user-{user}"), "item": "item-1", "label": 1, "context": {"hour": user, field: "x"}})
    };
    for user in 0..12 {
        cluster.model(user % 3, MODEL).post("observe", &observation(user)).expect(200);
    }
    let lines: Vec<String> = (12..36).map(|user| observation(user).to_string()).collect();
    let mut answers = cluster.model(1, MODEL).observe_lines(&lines.join("\n")).unwrap();
    assert!(answers.all(|answer| answer.is_ok()));
    // A reward inherits fields that no observation has had.
    let body = json!({"user": "user-1", "items": ["item-1", "item-2"], "k": 1, "context": {"page": "home"}});
    let ranked = cluster.model(2, MODEL).post("topk", &body).expect(200);
    let reward =
        json!({"user": "user-1", "item": ranked["items"][0]["item"], "label": 5, "decision_id": ranked["decision_id"]});
    cluster.model(2, MODEL).post("observe", &reward).expect(200);
    let fields =
        |cluster: &Cluster, node: usize| cluster.model(node, MODEL).get("").expect(200)["context_fields"].clone();
    let expected = fields(&cluster, 0);
    assert_eq!(expected.as_array().map(Vec::len), Some(14), "{expected}");
    for node in 1..3 {
        eventually("the node has the fields", || (fields(&cluster, node) == expected).then_some(()));
        let other = json!({"user": format!("user-{node}"), "item": "item-1", "label": 1, "context": {"hour": "late"}});
        assert_eq!(cluster.model(node, MODEL).post("observe", &other).status, 422);
    }
    let history = |cluster: &Cluster, user: usize| -> Vec<Value> {
        let view = cluster.model(0, MODEL).user(&format!("user-{user}"), 10);
        view["history"].as_array().expect("a list").iter().map(|event| event["context"].clone()).collect()
    };
    let before: Vec<Vec<Value>> = (0..36).map(|user| history(&cluster, user)).collect();
    assert_eq!(before[1], [json!({"page": "home"}), observation(1)["context"].clone()]);
    // Another node takes the users over, and has the contexts in its copy.
    cluster.kill(1);
    cluster.await_owners();
    (0..36).for_each(|user| assert_eq!(history(&cluster, user), before[user]));
    assert_eq!(fields(&cluster, 0), expected);
}

/// A linear model of the combinations of an attribute and a field.
fn taste() -> Value {
    json!({"name": "taste", "output": "liking", "nodes": {
        "genre": {"op": "one_hot", "input": "item.genre", "categories": ["news", "film"]},
        "device": {"op": "one_hot", "input": "context.device", "categories": ["phone", "screen"]},
        "both": {"op": "cross", "inputs": ["genre", "device"], "hash_bits": 8},
        "liking": {"op": "linear", "input": "both", "fit": "label"}}})
}

#[test]
fn computed_parts_are_the_same_on_every_node() {
    let Some(mut cluster) = Cluster::start(3, 1) else { return };
    let client = cluster.client(0);
    client.post("/v1/pipelines", &taste()).expect(201);
    let parts = json!([{"part": "liking", "pipeline": "taste"}]);
    client.post("/v1/models", &json!({"name": MODEL, "dim": 4, "loss": "logistic", "features": parts})).expect(201);
    let (devices, genres) = (["phone", "screen"], ["news", "film"]);
    for item in 0..10 {
        let described = json!({"attributes": {"genre": genres[item % 2]}});
        cluster.model(0, MODEL).put(&format!("items/{item}"), &described).expect(200);
    }
    let observation = |place: usize| {
        let (item, device) = (place / 2 % 10, place % 2);
        json!({"user": format!("user-{}", place % 24), "item": item.to_string(), "label": u8::from(item % 2 == device),
            "context": {"device": devices[device]}})
    };
    let lines: Vec<String> = (0..600).map(|place| observation(place).to_string()).collect();
    assert!(cluster.model(1, MODEL).observe_lines(&lines.join("\n")).unwrap().all(|answer| answer.is_ok()));
    let job = cluster.model(0, MODEL).post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    eventually("the training", || {
        let job = cluster.client(0).get(&format!("/v1/jobs/{job}")).expect(200);
        (job["state"] == "succeeded").then_some(())
    });
    for node in 0..3 {
        let serves = || (cluster.model(node, MODEL).get("").expect(200)["active_version"] == 2).then_some(());
        eventually("the node serves the version", serves);
    }
    let scores = |cluster: &Cluster, node: usize| -> Vec<Value> {
        let score = |place: usize| {
            let body = json!({"user": format!("user-{}", place % 24), "items": ["0", "1", "new"],
                "context": {"device": devices[place % 2]}});
            let mut reply = cluster.model(node, MODEL).post("predict", &body).expect(200);
            reply.as_object_mut().expect("an object").remove("stale_ms");
            reply
        };
        (0..48).map(score).collect()
    };
    let before = scores(&cluster, 0);
    let score = |reply: &Value, item: usize| reply["scores"][item]["score"].as_f64().expect("a number");
    assert!(score(&before[0], 0) > score(&before[0], 1) + 1.0, "{}", before[0]);
    assert!(score(&before[1], 1) > score(&before[1], 0) + 1.0, "{}", before[1]);
    assert_eq!(scores(&cluster, 1), before);
    assert_eq!(scores(&cluster, 2), before);
    // Another node takes the users over, and computes from its copy of the version and of the log.
    cluster.kill(1);
    cluster.await_owners();
    assert_eq!(scores(&cluster, 2), before);
}
