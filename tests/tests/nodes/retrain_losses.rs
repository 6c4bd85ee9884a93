//! A model's loss is passed to its trainer, and the trainer's metrics are returned by the API.

use celeris_tests::{Node, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

#[test]
fn every_loss_trains_with_its_own_metric() {
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

/// A model of clicks that shares its stream with one of stars: gate, quality and the list of models
/// all count a label of 5 as a click, and none of them reports a loss below 0.
#[test]
fn labels_outside_the_range_of_a_loss_are_clamped_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    for (name, stream, loss) in
        [("stars", "stars", "squared"), ("likes", "stars", "logistic"), ("clicks", "clicks", "logistic")]
    {
        let model = json!({"name": name, "stream": stream, "dim": 5, "loss": loss});
        let _created = client.post("/v1/models", &model).expect(201);
    }
    let mut random = ChaCha8Rng::seed_from_u64(13);
    let events: Vec<(u32, u32, f32)> = (0..1200)
        .map(|_| {
            let (user, item) = (random.random_range(0..40), random.random_range(0..20));
            let likes = random.random_range(0..10) < if (user + item) % 3 == 0 { 8 } else { 2 };
            let (more, less) = (random.random_range(1_u8..=5), random.random_range(0_u8..=3));
            (user, item, if likes { f32::from(more) } else { -f32::from(less) })
        })
        .collect();
    let lines = |label: fn(f32) -> f32| -> String {
        let line = |(user, item, stars): &(u32, u32, f32)| {
            let observation =
                json!({"user": user, "item": item, "label": label(*stars), "timestamp": 1_700_000_000_000_i64});
            format!("{observation}\n")
        };
        events.iter().map(line).collect()
    };
    for (model, body) in [("stars", lines(|stars| stars)), ("clicks", lines(|stars| stars.clamp(0.0, 1.0)))] {
        assert_eq!(client.model(model).observe_lines(&body).unwrap().map(Result::unwrap).count(), events.len());
    }
    let [likes, clicks] = ["likes", "clicks"].map(|name| {
        let model = client.model(name);
        let quality = eventually("all losses", || {
            let quality = model.get("quality").expect(200);
            (quality["observations"] == events.len()).then_some(quality)
        });
        let job = model.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
        let done = eventually("the end of the retraining", || {
            let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
            (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
        });
        let holdout = &done["gate"]["holdout"];
        assert!(
            holdout["candidate"].as_f64().unwrap() >= 0.0 && holdout["incumbent"].as_f64().unwrap() >= 0.0,
            "{done}"
        );
        let windows = quality["windows"].as_array().unwrap();
        let losses = windows.iter().chain([&quality["baseline"]]).map(|loss| loss["value"].as_f64());
        let losses: Vec<f64> = losses.flatten().collect();
        assert!(!losses.is_empty() && losses.iter().all(|loss| *loss >= 0.0), "{quality}");
        let recent = model.get("").expect(200)["recent_loss"].clone();
        assert_eq!(recent["metric"], quality["metric"], "{name}");
        let thousand = windows.iter().find(|window| window["observations"] == 1000).unwrap();
        assert_eq!(recent["value"], thousand["value"], "{name}: {recent} and {quality}");
        (holdout.clone(), done["metrics"]["validation_log_loss"].clone())
    });
    assert_eq!(likes, clicks, "the labels differ only outside the range of the loss");
}

/// Live observations of implicit feedback are all of taken items, which a version that predicts 1
/// for everything fits best.
#[test]
fn more_plays_neither_roll_a_trained_version_back_nor_bring_popularity_back() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::as_shipped(dir.path());
    let client = node.client();
    let settings = json!({"name": "plays", "dim": 4, "loss": "implicit", "triggers": {"popularity": {}}});
    client.post("/v1/models", &settings).expect(201);
    let plays = client.model("plays");
    // Users play the items of their own parity.
    let play = |n: usize| {
        let user = n % 40;
        json!({"user": format!("u{user}"), "item": format!("i{}", 2 * (n * 7 % 20) + user % 2), "label": 1})
    };
    let send = |range: std::ops::Range<usize>| {
        let lines: Vec<String> = range.map(|n| play(n).to_string()).collect();
        assert_eq!(plays.observe_lines(&lines.join("\n")).unwrap().count(), lines.len());
    };
    send(0..600);
    let active = || plays.get("").expect(200)["active_version"].clone();
    eventually("a training that no trigger interrupts", || {
        let reply = plays.post("retrain", &json!({"engine": "als"}));
        (reply.status == 202).then_some(())
    });
    let trained = eventually("the trained version", || {
        let versions = plays.get("versions").expect(200)["versions"].clone();
        let newest = versions.as_array().unwrap().iter().find(|version| version["active"] == true).cloned()?;
        (newest["algorithm"] != "popularity" && newest["algorithm"] != "untrained").then(|| newest["version"].clone())
    });
    for n in 600..760 {
        plays.observe(&play(n));
    }
    eventually("the loss of all plays", || {
        (plays.get("quality").expect(200)["observations"].as_u64() >= Some(160)).then_some(())
    });
    assert_eq!(plays.get("").expect(200)["guarding"], serde_json::Value::Null);
    assert_eq!(active(), trained);
    let previous = plays.post("rollback", &json!({})).expect(200);
    send(760..1000);
    eventually("the loss of the new plays", || {
        (plays.get("quality").expect(200)["observations"].as_u64() >= Some(240)).then_some(())
    });
    let events = plays.get("events?limit=1000").expect(200)["events"].clone();
    let after = events.as_array().unwrap().iter().take_while(|event| event["kind"] != "rolled_back");
    assert_eq!(after.count(), 0, "nothing follows the rollback to {previous}: {events}");
}
