//! The routes that carry the load are found without the router, which answers the same by the same name.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use celeris_tests::Node;
use celeris_tests::scene::create_model;
use serde_json::{Value, json};

#[test]
fn whoever_escapes_a_models_name_is_answered_alike() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    let films = create_model(&client, "films", 6);
    films.observe(&json!({"user": "u", "item": "item-0", "label": 4.5, "observation_id": "first"}));
    let items = json!(["item-0", "item-1", "item-2"]);
    let asked = [
        ("predict", json!({"user": "u", "items": items}), 200),
        ("topk", json!({"user": "u", "items": items, "k": 2, "seed": 7}), 200),
        ("recommend", json!({"user": "u", "k": 2, "seed": 7}), 200),
        ("observe", json!({"user": "u", "item": "item-0", "label": 4.5, "observation_id": "first"}), 200),
        ("predict", json!({"user": "u"}), 422),
        ("topk", json!({"user": "u", "items": items, "k": 0}), 422),
        ("recommend", json!({"user": "u", "k": 0}), 422),
        ("observe", json!({"user": "u", "item": "item-0", "label": 1, "observation_id": "first"}), 409),
    ];
    for (call, body, status) in &asked {
        let answer = |model: &str, status| -> Value {
            let mut answer = client.post(&format!("/v1/models/{model}/{call}"), body).expect(status);
            // Each ranking has a name of its own.
            answer.as_object_mut().unwrap().remove("decision_id");
            answer
        };
        assert_eq!(answer("films", *status), answer("fi%6Cms", *status), "{call}");
        if *status == 200 {
            assert_eq!(answer("songs", 404), answer("so%6Egs", 404), "{call}");
        }
        assert_eq!(client.get(&format!("/v1/models/films/{call}")).status, 405, "{call}");
    }
    let metrics = client.get("/metrics").text;
    for (call, _, status) in &asked {
        // The scene has observed once.
        let count = if (*call, *status) == ("observe", 200) { 3 } else { 2 };
        let labels = format!(r#"method="POST",route="/v1/models/{{model}}/{call}",status="{status}""#);
        let line = format!("celeris_http_request_seconds_count{{{labels}}} {count}");
        assert!(metrics.lines().any(|counted| counted == line), "no {line} in\n{metrics}");
    }
}
