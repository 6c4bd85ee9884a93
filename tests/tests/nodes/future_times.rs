//! No route accepts an event in the future: under a half-life, all earlier events would lose their
//! weight.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use celeris_tests::fixtures::{config_file, create_model};
use celeris_tests::{ModelClient, Node, binary};
use serde_json::{Value, json};

fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

const HOUR_MS: i64 = 3_600_000;

fn score(model: &ModelClient) -> f64 {
    let answer = model.post("predict", &json!({"user": "u", "item": "item-0"})).expect(200);
    answer["scores"][0]["score"].as_f64().unwrap()
}

#[track_caller]
fn assert_names_timestamp(problem: &Value) {
    assert_eq!(problem["status"], 422, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("timestamp"), "{problem}");
}

#[test]
fn no_route_accepts_an_event_in_the_future() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    create_model(&client, "films", 51);
    client.post("/v1/models", &json!({"name": "fading", "stream": "films", "dim": 8, "half_life": 86_400})).expect(201);
    let fading = client.model("fading");
    for label in [4, 5, 5] {
        fading.observe(&json!({"user": "u", "item": "item-0", "label": label, "timestamp": now_ms()}));
    }
    let before = score(&fading);
    let decision = fading.post("topk", &json!({"user": "u", "items": ["item-0"], "k": 1})).expect(200);
    for later in [json!(now_ms() + HOUR_MS), json!(i64::MAX), json!("2200-01-01T00:00:00Z")] {
        let event = json!({"user": "u", "item": "item-0", "label": 1, "timestamp": later});
        assert_names_timestamp(&fading.post("observe", &event).expect(422));
        let mut line = fading.observe_lines(&event.to_string()).unwrap();
        assert_names_timestamp(&line.next().unwrap().unwrap()["error"]);
        let mut reward = event.clone();
        reward["decision_id"] = decision["decision_id"].clone();
        assert_names_timestamp(&fading.post("observe", &reward).expect(422));
        let past = json!([{"item": "item-0", "label": 1, "timestamp": later}]);
        assert_names_timestamp(&fading.post("recommend", &json!({"history": past, "k": 1})).expect(422));
    }
    assert_eq!(score(&fading), before);
    assert_eq!(fading.user("u", 0)["user_epoch"], 3);

    let dataset = dir.path().join("ratings.csv");
    std::fs::write(&dataset, format!("userId,movieId,rating,timestamp\n1,10,4.0,{}\n", now_ms() / 1000 + 3600))
        .unwrap();
    let arguments = ["import", "--url", client.url(), "--model", "films", "--dataset", dataset.to_str().unwrap()];
    let refused = binary::run(arguments);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("timestamp") && refused.stderr.contains("ratings.csv:2: "), "{refused:?}");
    let data = dir.path().join("demo");
    let refused = binary::run([
        "demo",
        "--exit-when-ready",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        data.to_str().unwrap(),
        "--dataset",
        dataset.to_str().unwrap(),
    ]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("timestamp") && refused.stderr.contains("rating 1"), "{refused:?}");
}

#[test]
fn clocks_may_differ_by_the_configured_skew() {
    let dir = tempfile::tempdir().unwrap();
    let config = config_file(dir.path(), "[limits]\nclock_skew = \"2h\"\n");
    let node = Node::configured(&dir.path().join("data"), &config);
    let films = create_model(&node.client(), "films", 52);
    let at = |ahead: Duration| {
        let ahead = i64::try_from(ahead.as_millis()).unwrap();
        json!({"user": "u", "item": "item-0", "label": 1, "timestamp": now_ms() + ahead})
    };
    films.observe(&at(Duration::from_secs(3600)));
    assert_names_timestamp(&films.post("observe", &at(Duration::from_secs(4 * 3600))).expect(422));
}
