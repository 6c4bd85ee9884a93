//! What is corrected, forgotten or erased leaves users as if the past had been so from the start, bit for bit.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use celeris_tests::scene::{DIM, ITEMS, any_item, any_label, create_model, features, weights, write_dataset};
use celeris_tests::{ModelClient, Node, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// What one user did, in order: item and label.
type Past = Vec<(String, f32)>;

fn any_past(events: usize, random: &mut ChaCha8Rng) -> Past {
    (0..events).map(|_| (any_item(random), any_label(random))).collect()
}

fn id(user: &str, event: usize) -> String {
    format!("{user}-{event}")
}

fn teach(model: &ModelClient, user: &str, past: &Past) {
    for (event, (item, label)) in past.iter().enumerate() {
        let observation = json!({"user": user, "item": item, "label": label, "observation_id": id(user, event)});
        model.observe(&observation);
    }
}

/// Creates a second model on the stream of the first, with other features.
fn second_model(node: &Node) -> ModelClient {
    let client = node.client();
    client.post("/v1/models", &json!({"name": "others", "stream": "films", "dim": DIM})).expect(201);
    let model = client.model("others");
    let mut random = ChaCha8Rng::seed_from_u64(77);
    for item in 0..ITEMS {
        model.put(&format!("items/item-{item}"), &json!({"features": features(&mut random)})).expect(200);
    }
    model
}

/// A user amended at random has the weights of one whom the amended past was taught from the start: under both models
/// of the stream, live, after SIGKILL, and once more after learning on.
#[test]
fn amended_states_equal_those_of_the_amended_past() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 4);
    second_model(&node);
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut users: Vec<(String, Past)> = Vec::new();
    for events in [1, 2, 5, 9, 33, 70] {
        let user = format!("amended-{events}");
        let mut past: Vec<Option<(String, f32)>> = any_past(events, &mut random).into_iter().map(Some).collect();
        let told: Past = past.iter().flatten().cloned().collect();
        teach(&films, &user, &told);
        for (event, remembered) in past.iter_mut().enumerate() {
            let path = format!("observations/{}", id(&user, event));
            if random.random_bool(0.3) {
                let label = any_label(&mut random);
                let before = remembered.as_ref().unwrap().1;
                let reply = films.put(&path, &json!({"label": label})).expect(200);
                assert_eq!(reply["duplicate"], (label - before).abs() < f32::EPSILON, "{reply}");
                remembered.as_mut().unwrap().1 = label;
            }
            if random.random_bool(0.3) {
                films.delete(&path).expect(200);
                *remembered = None;
            }
        }
        users.push((user, past.into_iter().flatten().collect()));
    }
    for (user, past) in &users {
        teach(&films, &format!("taught-{user}"), past);
    }
    let compare = |node: &Node, moment: &str| {
        for (user, past) in &users {
            for model in ["films", "others"].map(|name| node.model(name)) {
                let taught = weights(&model, &format!("taught-{user}"));
                assert_eq!(weights(&model, user), taught, "{user} under {} {moment}", model.name());
                assert_eq!(model.user(user, 0)["observations"], past.len(), "{user} {moment}");
            }
        }
    };
    compare(&node, "live");
    node.kill_hard();
    let node = Node::serve(dir.path());
    compare(&node, "rebuilt");
    for (user, _) in &users {
        for user in [user.clone(), format!("taught-{user}")] {
            node.model("films").observe(&json!({"user": user, "item": "item-3", "label": 2.5}));
        }
    }
    for (user, _) in &users {
        for model in ["films", "others"].map(|name| node.model(name)) {
            assert_eq!(weights(&model, user), weights(&model, &format!("taught-{user}")), "{user} learns on");
        }
    }
}

#[test]
fn ids_of_what_is_forgotten_stay_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 4);
    let first = json!({"user": "u", "item": "item-1", "label": 4, "observation_id": "first"});
    films.observe(&first);
    let second = films.observe(&json!({"user": "u", "item": "item-2", "label": 2}));
    let made = second["observation_id"].as_str().unwrap().to_owned();

    // A client that repeats itself after a correction is told that all is well; one that says something else is not.
    films.put("observations/first", &json!({"label": 3})).expect(200);
    assert_eq!(films.observe(&first)["duplicate"], true);
    let other = json!({"user": "u", "item": "item-1", "label": 1, "observation_id": "first"});
    films.post("observe", &other).expect(409);

    for id in ["first", made.as_str()] {
        let forgotten = films.delete(&format!("observations/{id}")).expect(200);
        assert_eq!(forgotten["observation_id"], id);
    }
    let check = |films: &ModelClient| {
        films.post("observe", &first).expect(410);
        for id in ["first", made.as_str()] {
            films.delete(&format!("observations/{id}")).expect(410);
            films.put(&format!("observations/{id}"), &json!({"label": 3})).expect(410);
        }
        films.delete("observations/never").expect(404);
        films.put("observations/never", &json!({"label": 3})).expect(404);
        let user = films.user("u", 100);
        assert_eq!((&user["cold"], &user["user_epoch"]), (&json!(true), &json!(5)), "{user}");
    };
    check(&films);
    for bad in [json!({}), json!({"label": "x"}), json!({"label": 1e7}), json!({"label": 1, "weight": 2})] {
        let problem = films.put("observations/first", &bad).expect(422);
        assert!(problem["detail"].as_str().unwrap().contains("label") || bad.get("weight").is_some(), "{problem}");
    }
    node.kill_hard();
    node = Node::serve(dir.path());
    check(&node.model("films"));
}

/// Trains a version on a user's ratings, then erases the user: the receipt and every list of versions name it, going
/// back to it warns, and the user comes back as a stranger.
#[test]
fn an_erased_user_is_a_stranger_and_the_receipt_says_who_still_knows() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = write_dataset(dir.path());
    let data_dir = dir.path().join("data");
    let node = Node::demo(&data_dir, Some(dir.path()));
    let films = node.model("demo");
    let rating = dataset.ratings.first().unwrap();
    let user = rating.user.as_str();
    let stranger = films.user("nobody", 0);
    let known = films.user(user, 10_000);
    let events = known["history"].as_array().unwrap().len();
    assert!(events > 0 && known["cold"] == false, "{known}");
    films.post("topk", &json!({"user": user, "items": ["1", "2", "3"], "k": 2})).expect(200);

    let receipt = films.delete(&format!("users/{user}")).expect(200);
    assert_eq!(receipt["observations"], events, "{receipt}");
    assert_eq!(receipt["user_epoch"], events + 1, "{receipt}");
    assert_eq!(receipt["decisions"], 1, "{receipt}");
    let knowing: Vec<&Value> = receipt["versions"].as_array().unwrap().iter().collect();
    assert_eq!(knowing.len(), 1, "only the trained version knows: {receipt}");
    let trained = knowing[0]["version"].as_u64().unwrap();
    assert_eq!(knowing[0]["active"], true, "{receipt}");
    assert!(receipt["segments_rewritten_by"].as_i64() > receipt["erased"].as_i64(), "{receipt}");

    let check = |films: &ModelClient| {
        let erased = films.user(user, 10_000);
        assert_eq!(erased["weights"], stranger["weights"]);
        assert_eq!((&erased["cold"], &erased["history"]), (&json!(true), &json!([])));
        assert_eq!(erased["user_epoch"], events + 1, "epochs are never used twice");
    };
    check(&films);
    node.kill_hard();
    let node = Node::demo(&data_dir, Some(dir.path()));
    let films = node.model("demo");
    check(&films);

    // A training that goes on from a version that knows the user knows them too; one from nothing does not see them.
    // Neither need be better than the one that serves.
    films.patch("", &json!({"gate": {"force": true}})).expect(200);
    let retrain = |body: Value| {
        let job = films.post("retrain", &body).expect(202)["job"].as_str().unwrap().to_owned();
        let done = eventually("the retraining ends", || {
            let job = node.client().get(&format!("/v1/jobs/{job}")).expect(200);
            (job["state"] != "queued" && job["state"] != "running").then_some(job)
        });
        assert_eq!(done["state"], "succeeded", "{done}");
        done["version"].as_u64().unwrap()
    };
    let warm = retrain(json!({}));
    let cold = retrain(json!({"cold": true}));
    let versions = films.get("versions").expect(200);
    for version in versions["versions"].as_array().unwrap() {
        let knows = version["version"] == trained || version["version"] == warm;
        assert_eq!(version["erased_users"], u64::from(knows), "{version}");
        assert_eq!(version["warning"].is_string(), knows, "{version}");
        let from = if version["version"] == warm { json!(trained) } else { Value::Null };
        assert_eq!(version["warm_from"], from, "{version}");
    }
    assert!(versions["versions"][0]["version"] == cold && versions["versions"][0]["active"] == true, "{versions}");
    films.post("rollback", &json!({})).expect(200);
    let back = films.post("rollback", &json!({})).expect(200);
    assert_eq!(back["active_version"], trained);
    assert!(back["warning"].as_str().unwrap().contains("erased"), "{back}");

    let again = films.observe(&json!({"user": user, "item": "1", "label": 5}));
    assert_eq!(again["user_epoch"], events + 2);
    assert_eq!(films.user(user, 10)["observations"], 1);
}
