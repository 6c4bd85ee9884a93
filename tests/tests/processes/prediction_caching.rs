//! Predictions are cached for requests of at most `memory.prediction_items` items.

use celeris_tests::fixtures::{config_file, create_model};
use celeris_tests::{Client, ProcessOptions};
use serde_json::json;

/// A counter of the prediction cache.
fn count(client: &Client, name: &str) -> u64 {
    let metrics = client.get("/metrics").text;
    let name = format!("celeris_cache_{name}_total{{cache=\"predictions\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

#[test]
fn only_small_requests_are_answered_from_the_prediction_cache() {
    let dir = tempfile::tempdir().unwrap();
    for (prediction_items, small) in [(2, true), (0, false)] {
        let config = config_file(dir.path(), format!("[memory]\nprediction_items = {prediction_items}\n"));
        let node = ProcessOptions::default().config(config).serve(&dir.path().join(format!("data-{prediction_items}")));
        let client = node.client();
        let films = create_model(&client, "films", 1);
        films.observe(&json!({"user": "ann", "item": "item-0", "label": 4}));
        let predict = |items: &[&str]| films.post("predict", &json!({"user": "ann", "items": items})).expect(200);

        let computed = predict(&["item-0", "item-1"]);
        let looked_up = predict(&["item-0", "item-1"]);
        assert_eq!(looked_up, computed);
        assert_eq!(count(&client, "hits"), if small { 2 } else { 0 });
        assert_eq!(count(&client, "misses"), if small { 2 } else { 0 });
        assert_eq!(count(&client, "saved_nanoseconds") > 0, small);

        let before = count(&client, "hits");
        for _ in 0..2 {
            predict(&["item-0", "item-1", "item-2"]);
        }
        assert_eq!(count(&client, "hits"), before, "three items are computed");
    }
}
