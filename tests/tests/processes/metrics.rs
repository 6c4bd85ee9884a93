//! The metrics of a node: what they count, and that the number of series is bounded by the number
//! of routes and models.

use celeris_tests::fixtures::create_model;
use celeris_tests::{NodeProcess, Raw, eventually};
use serde_json::json;

#[test]
fn records_of_the_log_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let films = create_model(&node.client(), "films", 80);
    for user in ["ann", "bob"] {
        films.observe(&json!({"user": user, "item": "item-1", "label": 4}));
    }
    let metrics = node.client().get("/metrics").text;
    assert!(metrics.lines().any(|line| line == "celeris_log_records_total 2"), "{metrics}");
}

#[test]
fn every_metric_has_its_meaning() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let films = create_model(&node.client(), "films", 79);
    films.observe(&json!({"user": "ann", "item": "item-1", "label": 4}));
    films.post("recommend", &json!({"user": "ann", "k": 3})).expect(200);
    // Losses are counted in the background.
    let metrics = eventually("the loss is measured", || {
        let metrics = node.client().get("/metrics").text;
        metrics.contains("celeris_model_loss").then_some(metrics)
    });
    let lines: Vec<&str> = metrics.lines().collect();
    for pair in lines.windows(2) {
        if let Some((name, _)) = pair[1].strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            assert!(pair[0].starts_with(&format!("# HELP {name} ")), "{name} is not in docs/reference/metrics.md");
        }
    }
    assert!(metrics.matches("# HELP ").count() > 30, "{metrics}");
    let without_markup = "# HELP celeris_rewards_total observations that name a decision (decisions.md)\n";
    assert!(metrics.contains(without_markup), "{metrics}");
}

#[test]
fn unknown_methods_share_one_series() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let client = node.client();
    create_model(&client, "films", 81);
    let mut raw = Raw::connect(&client);
    for number in 0..100 {
        for path in ["/v1/models", "/v1/nowhere", "/v1/models/films/observe", "/metrics", "/healthz"] {
            raw.send(&format!("INVENTED{number} {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")).unwrap();
            assert!(matches!(raw.reply().unwrap().status, 404 | 405), "{path}");
        }
        // So do unknown paths and names.
        for path in [format!("/invented-{number}"), format!("/v1/models/invented-{number}"), format!("/docs/{number}")]
        {
            assert_eq!(client.get(&path).status, 404, "{path}");
        }
    }
    let metrics = client.get("/metrics").text;
    assert!(!metrics.to_lowercase().contains("invented"), "{metrics}");
    assert!(metrics.contains(r#"method="other",route="/v1/models",status="405""#), "{metrics}");
    // The bound: known methods, times routes, times statuses, times the lines of a histogram.
    assert!(metrics.lines().count() < 1000, "{} lines", metrics.lines().count());
}

#[test]
fn series_of_a_deleted_model_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let client = node.client();
    create_model(&client, "kept", 82);
    for name in ["gone", "other"] {
        let model = create_model(&client, name, 83);
        model.observe(&json!({"user": "u", "item": "item-0", "label": 4}));
        model.post("recommend", &json!({"user": "u", "k": 3})).expect(200);
    }
    let selection = json!({"name": "best", "kind": "selection", "arms": ["kept", "kept-too"], "label_range": [1, 5]});
    client.post("/v1/models", &json!({"name": "kept-too", "stream": "kept", "dim": 8})).expect(201);
    client.post("/v1/models", &selection).expect(201);
    client.model("best").post("recommend", &json!({"user": "u", "k": 3})).expect(200);
    let recommended = |text: &str, model: &str, count: u64| {
        text.lines().any(|line| line == format!("celeris_recommendations_total{{model=\"{model}\"}} {count}"))
    };
    let before = client.get("/metrics").text;
    assert!(recommended(&before, "gone", 1) && recommended(&before, "other", 1), "{before}");
    assert!(before.contains(r#"stream="gone""#) && before.contains(r#"model="kept""#), "{before}");

    assert_eq!(client.model("gone").delete("").status, 204);
    let after = client.get("/metrics").text;
    assert!(!after.contains(r#"model="gone""#), "{after}");
    assert!(recommended(&after, "other", 1), "{after}");
    // A new model of the same name has its own series.
    create_model(&client, "gone", 84).post("recommend", &json!({"user": "u", "k": 3})).expect(200);
    let again = client.get("/metrics").text;
    assert!(recommended(&again, "gone", 1), "{again}");
    for families in [&before, &after, &again] {
        let mut types: Vec<&str> = families.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        let all = types.len();
        types.sort_unstable();
        types.dedup();
        assert_eq!(types.len(), all, "a metric family is listed twice");
    }
}
