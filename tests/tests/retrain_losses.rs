//! A model's loss reaches its trainer, and what the trainer measures reaches whoever asks.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use celeris_tests::{Node, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

#[test]
fn every_loss_trains_with_its_own_measure() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    let cases = [
        ("stars", "squared", "als", "validation_rmse"),
        ("clicks", "logistic", "als on working responses", "validation_log_loss"),
        ("plays", "implicit", "implicit als", "validation_percentile_rank"),
    ];
    for (name, loss, algorithm, metric) in cases {
        let created = client.post("/v1/models", &json!({"name": name, "dim": 5, "loss": loss})).expect(201);
        assert_eq!(created["loss"], loss);
        let model = client.model(name);
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let body: String = (0..1500)
            .map(|_| {
                let (user, item) = (random.random_range(0..60), random.random_range(0..30));
                let label = u8::from(random.random_range(0..10) < if (user + item) % 3 == 0 { 8 } else { 2 });
                format!("{}\n", json!({"user": user, "item": item, "label": label}))
            })
            .collect();
        assert_eq!(model.observe_lines(&body).unwrap().map(Result::unwrap).count(), 1500);
        let job = model.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
        let done = eventually("the end of the retraining", || {
            let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
            (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
        });
        assert_eq!(done["state"], "succeeded", "{done}");
        assert!(done["metrics"][metric].is_f64(), "{name}: {done}");
        let versions = model.get("versions").expect(200);
        let newest = &versions["versions"][0];
        assert_eq!((&newest["algorithm"], &newest["active"]), (&json!(algorithm), &json!(true)), "{versions}");
        assert_eq!((&newest["erased_users"], &newest["warning"]), (&json!(0), &json!(null)), "{versions}");
    }
}
