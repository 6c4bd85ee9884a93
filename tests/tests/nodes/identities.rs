//! A name is not an identity: a model created under the name of a deleted one inherits nothing from
//! it. A user's state always equals the log, also while the history is amended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use celeris_tests::fixtures::any_label;
use celeris_tests::{Client, ModelClient, Node, NodeProcess, ProcessOptions, Raw, data_dir};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

fn create(client: &Client, body: &Value) -> ModelClient {
    client.post("/v1/models", body).expect(201);
    client.model(body["name"].as_str().unwrap())
}

fn observe(model: &ModelClient, user: &str, item: &str, label: f32) -> Value {
    model.observe(&json!({"user": user, "item": item, "label": label}))
}

fn score(model: &ModelClient, user: &str, item: &str) -> f64 {
    model.post("predict", &json!({"user": user, "item": item})).expect(200)["scores"][0]["score"].as_f64().unwrap()
}

fn state(model: &ModelClient, user: &str) -> String {
    let state = model.user(user, 0);
    format!("{} {} {}", state["observations"], state["state_hash"], state["weights"])
}

/// A model with features, observations and a decision, which a later model of the same name must
/// not inherit.
fn used_model(client: &Client, dim: usize) -> (ModelClient, String) {
    let films = create(client, &json!({"name": "films", "stream": "feedback", "dim": dim}));
    let features: Vec<f32> = (1..dim).map(|n| n as f32).chain([1.0]).collect();
    films.put("items/late", &json!({"features": features})).expect(200);
    for _ in 0..5 {
        observe(&films, "ann", "late", 5.0);
    }
    let ranked = films.post("topk", &json!({"user": "ann", "items": ["late", "other"], "k": 1})).expect(200);
    (films, ranked["decision_id"].as_str().unwrap().to_owned())
}

/// Checks that a model created under a deleted model's name equals one created under a new name.
fn assert_inherits_nothing(client: &Client, decision: &str, settings: &Value) {
    let (mut again, mut twin) = (settings.clone(), settings.clone());
    (again["name"], again["stream"]) = ("films".into(), "feedback".into());
    (twin["name"], twin["stream"]) = ("twin".into(), "feedback".into());
    let (films, twin) = (create(client, &again), create(client, &twin));
    assert_ne!(films.get("").expect(200)["id"], twin.get("").expect(200)["id"]);
    for _ in 0..3 {
        for user in ["ann", "bob"] {
            let of =
                |model| (state(model, user), score(model, user, "late").to_bits(), score(model, user, "x").to_bits());
            assert_eq!(of(&films), of(&twin), "{user} with {settings}");
        }
        observe(&films, "ann", "late", 1.0);
        observe(&twin, "bob", "x", 0.0);
    }
    assert_eq!(films.get(&format!("decisions/{decision}")).status, 404);
    let event = films.get("events").expect(200);
    let kinds: Vec<&Value> = event["events"].as_array().unwrap().iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["created"]);
    for model in [films, twin] {
        assert_eq!(model.delete("").status, 204);
    }
}

#[test]
fn a_model_created_under_the_name_of_a_deleted_one_inherits_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    for settings in [json!({"dim": 8}), json!({"dim": 4, "loss": "logistic"}), json!({"dim": 4})] {
        let (films, decision) = used_model(&node.client(), 4);
        assert_eq!(films.delete("").status, 204);
        assert_inherits_nothing(&node.client(), &decision, &settings);
        // Erase all labels, so that the next model of the stream finds none outside the range of
        // its loss.
        for user in ["ann", "bob"] {
            let erased = create(&node.client(), &json!({"name": "eraser", "stream": "feedback", "dim": 1}));
            erased.delete(&format!("users/{user}")).expect(200);
            assert_eq!(erased.delete("").status, 204);
        }
    }
}

#[test]
fn a_deletion_interrupted_by_a_kill_leaves_nothing_to_a_later_model() {
    let dir = tempfile::tempdir().unwrap();
    let node = ProcessOptions::default().pause_at("deletion").serve(dir.path());
    let (films, decision) = used_model(&node.client(), 4);
    let deleting = films.clone();
    // The node is killed before it responds.
    let failed = thread::spawn(move || deleting.node().try_send("DELETE", &deleting.path(""), "", "").is_err());
    node.await_stderr("reached deletion");
    node.kill_hard();
    assert!(failed.join().unwrap());
    let left = data_dir::versions_of(dir.path(), "films");
    assert!(left.is_dir());

    let node = NodeProcess::serve(dir.path());
    assert!(!left.exists(), "the next start removes the folder");
    assert_eq!(node.client().get("/v1/models").expect(200)["models"], json!([]));
    assert_inherits_nothing(&node.client(), &decision, &json!({"dim": 4}));
}

#[test]
fn a_restart_does_not_change_a_score_after_features_were_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create(&node.client(), &json!({"name": "films", "dim": 3}));
    for _ in 0..4 {
        observe(&films, "ann", "late", 5.0);
    }
    // The model is created after the observations, so its state of the user is built from the log.
    let second = create(&node.client(), &json!({"name": "second", "stream": "films", "dim": 3}));
    second.put("items/late", &json!({"features": [1.0, 0.5, 1.0]})).expect(200);
    let before = (state(&second, "ann"), score(&second, "ann", "late").to_bits());
    let put = second.put("items/late", &json!({"features": [-2.0, 2.0, 1.0]})).expect(200);
    assert_eq!(put["effective"], "next_version", "a state depends on the old features");
    node.stop();
    let node = Node::serve(dir.path());
    let second = node.model("second");
    assert_eq!((state(&second, "ann"), score(&second, "ann", "late").to_bits()), before);
}

/// Sets a stop flag on drop, also during a panic.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Corrections and retractions of a user with a long history while other threads read that user.
#[test]
fn an_acknowledged_amendment_holds_under_concurrent_reads() {
    const LONG: usize = 4_200;
    const AMENDED: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let films = create(&node.client(), &json!({"name": "films", "dim": 4}));
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let line = |n: usize| {
        let label = any_label(&mut random);
        json!({"user": "ann", "item": format!("i{}", n % 9), "label": label, "observation_id": format!("o{n}")})
    };
    let body: String = (0..LONG).map(line).map(|line| format!("{line}\n")).collect();
    assert_eq!(films.observe_lines(&body).unwrap().map(Result::unwrap).count(), LONG);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _done = SetWhenDropped(&done);
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    score(&films, "ann", "i1");
                }
            });
        }
        for n in 0..AMENDED {
            let path = format!("observations/o{}", n * 7);
            if n % 4 == 3 {
                films.delete(&path).expect(200);
            } else {
                films.put(&path, &json!({"label": 1_000.0 + n as f32})).expect(200);
            }
        }
    });
    // A model created now is built from the log alone.
    let twin = create(&node.client(), &json!({"name": "twin", "stream": "films", "dim": 4}));
    assert_eq!(state(&films, "ann"), state(&twin, "ann"));
    let before = state(&films, "ann");
    node.kill_hard();
    let node = NodeProcess::serve(dir.path());
    assert_eq!(state(&node.model("films"), "ann"), before);
}

#[test]
fn a_stream_does_not_continue_into_another_model_of_the_same_name() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    let films = create(&client, &json!({"name": "films", "dim": 4}));
    let mut raw = Raw::connect(&client);
    let mut send = |user: &str| {
        let line = format!("{}\n", json!({"user": user, "item": "a", "label": 3}));
        let chunk = format!("{:x}\r\n{line}\r\n", line.len());
        if user == "first" {
            let head = "POST /v1/models/films/observations HTTP/1.1\r\nhost: localhost\r\n\
                        content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
            raw.send(&format!("{head}{chunk}")).unwrap();
            assert_eq!(raw.head().unwrap().status, 200);
        } else {
            raw.send(&chunk).unwrap();
        }
        let mut answer = Vec::new();
        raw.chunk(&mut answer).unwrap();
        serde_json::from_slice::<Value>(&answer).unwrap()
    };
    assert_eq!(send("first")["user_epoch"], 1);
    assert_eq!(films.delete("").status, 204);
    let films = create(&client, &json!({"name": "films", "dim": 4, "stream": "other"}));
    let refused = send("second");
    assert_eq!((&refused["line"], &refused["error"]["status"]), (&json!(2), &json!(404)), "{refused}");
    assert_eq!(films.user("second", 0)["observations"], 0);
}
