//! Selections among models: which model answers, how weights are learnt, and states that equal the
//! log bit for bit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use celeris_tests::fixtures::{DIM, ITEMS, all_items, any_item, any_label, create_model, features};
use celeris_tests::{Client, ModelClient, Node};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

const ARMS: [&str; 3] = ["films", "second", "third"];

/// Three models on one stream, with different features of the items.
fn create_arms(client: &Client) {
    create_model(client, ARMS[0], 1);
    for (seed, name) in (2..).zip(&ARMS[1..]) {
        client.post("/v1/models", &json!({"name": name, "dim": DIM, "stream": ARMS[0]})).expect(201);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for item in 0..ITEMS {
            let given = json!({"features": features(&mut random)});
            client.model(name).put(&format!("items/item-{item}"), &given).expect(200);
        }
    }
}

/// Creates a selection among the three models with these other settings.
fn create(client: &Client, name: &str, settings: &Value) -> ModelClient {
    let mut body = json!({"name": name, "kind": "selection", "arms": ARMS, "label_range": [0.5, 5.0]});
    body.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let created = client.post("/v1/models", &body).expect(201);
    assert_eq!((&created["kind"], &created["stream"]), (&json!("selection"), &json!("films")));
    client.model(name)
}

fn node() -> (tempfile::TempDir, Node) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    create_arms(&node.client());
    (dir, node)
}

fn hash(selection: &ModelClient, query: &str) -> String {
    selection.get(&format!("selection{query}")).expect(200)["state_hash"].as_str().unwrap().to_owned()
}

#[test]
fn a_policy_that_combined_arms_cannot_use_is_refused_at_creation() {
    let (_dir, node) = node();
    let body = |policy: &str| {
        json!({"name": policy, "kind": "selection", "arms": ARMS, "label_range": [0.5, 5.0], "strategy": "exp4",
            "policy": policy})
    };
    let refused = node.client().post("/v1/models", &body("thompson"));
    assert_eq!(refused.status, 422, "{}", refused.text);
    assert!(refused.text.contains("policy") && refused.text.contains("posterior"), "{}", refused.text);
    node.client().post("/v1/models", &body("lin_ucb")).expect(201);
}

fn weights(selection: &ModelClient, query: &str) -> BTreeMap<String, f64> {
    let report = selection.get(&format!("selection{query}")).expect(200);
    let arms = report["arms"].as_array().unwrap();
    arms.iter().map(|arm| (arm["arm"].as_str().unwrap().to_owned(), arm["weight"].as_f64().unwrap())).collect()
}

/// Ranks, and sends a reward with this label for the first slot. Returns the arm and the
/// observation.
fn rank_and_reward(
    selection: &ModelClient,
    user: &str,
    segment: Option<&str>,
    label: impl Fn(&str) -> f32,
) -> Rewarded {
    let mut ask = json!({"user": user, "items": all_items(), "k": 1});
    if let Some(segment) = segment {
        ask["segment"] = segment.into();
    }
    let ranking = selection.post("topk", &ask).expect(200);
    let arm = ranking["arm"].as_str().unwrap_or("all").to_owned();
    let (item, label) = (&ranking["items"][0]["item"], label(&arm));
    let observed = selection.observe(&json!({
        "user": user, "item": item, "label": label, "decision_id": ranking["decision_id"],
    }));
    assert_eq!(observed["joined"], "slot", "{observed}");
    let id = observed["observation_id"].as_str().unwrap().to_owned();
    Rewarded { user: user.to_owned(), arm, id, label }
}

#[derive(Debug, Clone)]
struct Rewarded {
    user: String,
    arm: String,
    id: String,
    label: f32,
}

/// Checks the report of a state without a half-life against the rewards that were sent and not
/// retracted.
fn assert_sums(selection: &ModelClient, sent: &[Rewarded]) {
    let report = selection.get("selection").expect(200);
    for arm in report["arms"].as_array().unwrap() {
        let of_arm = sent.iter().filter(|rewarded| rewarded.arm == arm["arm"].as_str().unwrap());
        let losses: Vec<f64> = of_arm.map(|rewarded| 1.0 - (f64::from(rewarded.label) - 0.5) / 4.5).collect();
        assert_eq!(arm["outcomes"].as_u64().unwrap(), losses.len() as u64, "{report}");
        let mean = losses.iter().sum::<f64>() / losses.len() as f64;
        // Sums are in units of 2^-30.
        assert!((arm["mean_loss"].as_f64().unwrap() - mean).abs() < 1e-8, "{report}");
    }
}

/// After a kill, a correction, a retraction and an erasure, the states equal those computed from
/// the log.
#[test]
fn states_are_views_of_the_log_bit_for_bit() {
    let (dir, node) = node();
    let client = node.client();
    let every_arm = create(&client, "exp4", &json!({"strategy": "exp4", "half_life_records": 50}));
    let chosen = create(&client, "tsallis", &json!({"half_life_records": null}));
    let fading = create(&client, "exp3", &json!({"strategy": "exp3", "half_life_records": 40, "objective": "error"}));
    create(&client, "by-user", &json!({"strategy": "exp4", "scope": "user"}));
    let by_segment = create(&client, "by-segment", &json!({"scope": "segment", "segments": ["phone", "tablet"]}));
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut sent = Vec::new();
    for round in 0..160 {
        let user = format!("user-{}", random.random_range(0..30));
        let label = any_label(&mut random);
        sent.push(rank_and_reward(&chosen, &user, None, |_| label));
        rank_and_reward(&fading, &user, None, |_| label);
        rank_and_reward(&by_segment, &user, Some(["phone", "tablet"][round % 2]), |_| label);
        every_arm.observe(&json!({"user": user, "item": any_item(&mut random), "label": any_label(&mut random)}));
    }
    let hashes = |client: &Client| -> Vec<String> {
        let of = |name: &str, query: &str| hash(&client.model(name), query);
        let users = (0..30).map(|user| of("by-user", &format!("?user=user-{user}")));
        let others = [("exp4", ""), ("tsallis", ""), ("exp3", ""), ("by-segment", "?segment=phone")];
        others.into_iter().map(|(name, query)| of(name, query)).chain(users).collect()
    };
    assert_sums(&chosen, &sent);
    let live = hashes(&client);
    node.stop();
    let stored = fs::read_dir(dir.path().join("selections")).unwrap();
    assert_eq!(stored.count(), 4, "one state for each selection but that of single users");
    let node = Node::serve(dir.path());
    let client = node.client();
    assert_eq!(hashes(&client), live);

    let chosen = client.model("tsallis");
    sent[3].label = 5.0;
    chosen.put(&format!("observations/{}", sent[3].id), &json!({"label": 5.0})).expect(200);
    let forgotten = sent.remove(20);
    chosen.delete(&format!("observations/{}", forgotten.id)).expect(200);
    let erased = sent[50].user.clone();
    chosen.delete(&format!("users/{erased}")).expect(200);
    sent.retain(|rewarded| rewarded.user != erased);
    assert_sums(&chosen, &sent);
    let amended = hashes(&client);
    assert!(
        amended.iter().zip(&live).filter(|(amended, live)| amended != live).count() >= 5,
        "the history has changed"
    );
    // A selection created later reads the same log from its beginning.
    let again = create(&client, "again", &json!({"strategy": "exp4", "half_life_records": 50}));
    assert_eq!(hash(&again, ""), hash(&client.model("exp4"), ""));
    let again = create(&client, "again-by-user", &json!({"strategy": "exp4", "scope": "user"}));
    for user in (0..30).map(|user| format!("?user=user-{user}")) {
        assert_eq!(hash(&again, &user), hash(&client.model("by-user"), &user), "{user}");
    }
    node.stop();
    let node = Node::serve(dir.path());
    assert_eq!(hashes(&node.client()), amended);
    assert_ne!(hash(&node.model("by-segment"), "?segment=tablet"), hash(&node.model("by-segment"), "?segment=phone"));
}

/// One arm earns higher rewards: it is served most often, while the others keep a positive
/// probability.
#[test]
fn the_arm_with_higher_rewards_is_served_more_often() {
    let (_dir, node) = node();
    for strategy in ["tsallis_inf", "exp3"] {
        let selection = create(&node.client(), strategy, &json!({"strategy": strategy, "half_life_records": 1000}));
        for round in 0..300 {
            let user = format!("user-{}", round % 40);
            rank_and_reward(&selection, &user, None, |arm| if arm == "second" { 5.0 } else { 1.0 });
        }
        let weights = weights(&selection, "");
        assert!(weights["second"] > 0.5 && weights.values().all(|weight| *weight > 0.001), "{strategy}: {weights:?}");
        let curve = selection.get("selection").expect(200)["curve"].clone();
        let of_second = |point: &Value| point["weights"][1].as_f64().unwrap();
        let curve = curve.as_array().unwrap();
        assert!(of_second(&curve[0]) < 0.45 && of_second(curve.last().unwrap()) > 0.5, "{curve:?}");
    }
}

#[test]
fn replies_say_which_arm_answered() {
    let (_dir, node) = node();
    let chosen = create(&node.client(), "best", &json!({}));
    let scores = |model: &ModelClient, user: &str| -> Value {
        model.post("predict", &json!({"user": user, "items": ["item-1", "item-2"]})).expect(200)
    };
    for user in (0..20).map(|user| format!("user-{user}")) {
        chosen.observe(&json!({"user": user, "item": "item-1", "label": 4}));
        let first = scores(&chosen, &user);
        assert_eq!(first, scores(&chosen, &user), "it is the same arm until the user's next event");
        let arm = first["arm"].as_str().unwrap();
        assert_eq!(first["scores"], scores(&node.model(arm), &user)["scores"]);
        let propensity = first["arm_propensity"].as_f64().unwrap();
        assert!((propensity - 1.0 / 3.0).abs() < 1e-6, "no reward has joined a decision: {first}");
    }
    let ranking = chosen.post("topk", &json!({"user": "u", "items": all_items(), "k": 3})).expect(200);
    let decision = chosen.get(&format!("decisions/{}", ranking["decision_id"].as_str().unwrap())).expect(200);
    assert_eq!((&decision["selection"]["arm"], &decision["model"]), (&ranking["arm"], &json!("best")));
}

#[test]
fn arms_that_answer_together_are_combined_by_their_weights() {
    let (_dir, node) = node();
    let settings = json!({"strategy": {"name": "exp4", "tolerance": 0.05}, "policy": "greedy"});
    let selection = create(&node.client(), "together", &settings);
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for _ in 0..60 {
        selection.observe(&json!({"user": "u", "item": any_item(&mut random), "label": any_label(&mut random)}));
    }
    let ask = json!({"user": "u", "items": all_items()});
    let together = selection.post("predict", &ask).expect(200);
    let arms = together["arms"].as_array().unwrap();
    let weights: Vec<f64> = arms.iter().map(|arm| arm["weight"].as_f64().unwrap()).collect();
    assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9 && weights[0] != weights[1], "{weights:?}");
    let alone: Vec<Value> = ARMS.iter().map(|arm| node.model(arm).post("predict", &ask).expect(200)).collect();
    let mut best = (f64::MIN, Value::Null);
    for (index, score) in together["scores"].as_array().unwrap().iter().enumerate() {
        let scores: Vec<f64> = alone.iter().map(|answer| answer["scores"][index]["score"].as_f64().unwrap()).collect();
        let mean: f64 = scores.iter().zip(&weights).map(|(score, weight)| score * weight).sum();
        // Scores are `f32`.
        assert!((score["score"].as_f64().unwrap() - mean).abs() < 1e-5);
        // A twentieth of the range of 4.5 labels.
        let agree = scores.iter().filter(|score| (**score - mean).abs() <= 0.05 * 4.5).count();
        assert!((score["confidence"].as_f64().unwrap() - agree as f64 / 3.0).abs() < 1e-6, "{score} {scores:?}");
        if mean > best.0 {
            best = (mean, score["item"].clone());
        }
    }
    let ranking = selection.post("topk", &json!({"user": "u", "items": all_items(), "k": 3})).expect(200);
    assert_eq!(ranking["items"][0]["item"], best.1);
    assert_eq!(ranking["arms"].as_array().unwrap().len(), 3);
    let refused = selection.post("topk", &json!({"user": "u", "items": all_items(), "k": 3, "policy": "thompson"}));
    assert!(refused.expect(422)["detail"].as_str().unwrap().contains("posterior"));
}

/// Users keep their arm, and the losses of the arms are compared with a confidence interval.
#[test]
fn an_a_b_split_keeps_its_users_and_reports_the_difference_of_the_arms() {
    let (_dir, node) = node();
    let settings = json!({"arms": ["films", "second"], "strategy": {"name": "ab", "shares": [0.7, 0.3]}});
    let split = create(&node.client(), "split", &settings);
    let mut arms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for round in 0..600 {
        let user = format!("user-{}", round % 200);
        let rewarded =
            rank_and_reward(
                &split,
                &user,
                None,
                |arm| if arm == "second" { 4.0 } else { 3.5 - (round % 3) as f32 / 2.0 },
            );
        arms.entry(user).or_default().insert(rewarded.arm);
    }
    assert!(arms.values().all(|arms| arms.len() == 1), "every user keeps one arm");
    let second = arms.values().filter(|arms| arms.contains("second")).count();
    // 200 draws of probability 0.3: four standard deviations are 26.
    assert!((34..=86).contains(&second), "{second} of 200 users");
    let report = split.get("selection").expect(200);
    let difference = &report["arms"][1]["difference"];
    // Mean rewards of 4 and 3 differ by a loss of 1 / 4.5.
    assert!((difference["value"].as_f64().unwrap() + 1.0 / 4.5).abs() < 0.01, "{report}");
    assert!(difference["high"].as_f64().unwrap() < 0.0, "the interval excludes 0: {report}");
    assert!(report["arms"][0]["difference"].is_null());
}

#[test]
fn invalid_selections_are_refused_with_the_reason() {
    let (_dir, node) = node();
    let client = node.client();
    let other = client.post("/v1/models", &json!({"name": "elsewhere", "dim": 4}));
    other.expect(201);
    client.post("/v1/models", &json!({"name": "clicks", "dim": 4, "stream": "films", "loss": "logistic"})).expect(201);
    create(&client, "best", &json!({}));
    let cases = [
        (json!({"arms": ["films", "nobody"]}), 422, "nobody"),
        (json!({"arms": ["films", "best"]}), 422, "selection itself"),
        (json!({"arms": ["films", "elsewhere"]}), 422, "one stream"),
        (json!({"arms": ["films", "clicks"]}), 422, "one loss"),
        (json!({"arms": ["films"]}), 422, "2 to 8"),
        (json!({"arms": ["films", "films"]}), 422, "different"),
        (json!({"strategy": "exp5"}), 422, "exp5"),
        (json!({"strategy": {"name": "ab", "shares": [0.5, 0.5]}}), 422, "strategy.shares"),
        (json!({"strategy": "ab", "half_life_records": 100}), 422, "half_life_records"),
        (json!({"strategy": "exp4", "objective": "reward"}), 422, "objective"),
        (json!({"policy": "greedy"}), 422, "policy"),
        (json!({"scope": "segment"}), 422, "segments"),
        (json!({"segments": ["phone"]}), 422, "segments"),
        (json!({"half_life_records": 3}), 422, "half_life_records"),
        (json!({"label_range": [5, 1]}), 422, "label_range"),
        (json!({"label_range": null}), 422, "label_range is needed"),
        (json!({"dim": 8}), 422, "dim"),
        (json!({"name": "films"}), 409, "exists"),
        (json!({"name": "best"}), 409, "exists"),
    ];
    for (settings, status, says) in cases {
        let mut body = json!({"name": "new", "kind": "selection", "arms": ARMS, "label_range": [1, 5]});
        body.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let refused = client.post("/v1/models", &body).expect(status);
        assert!(refused["detail"].as_str().unwrap().contains(says), "{settings}: {refused}");
    }
    let best = client.model("best");
    for call in ["retrain", "rollback", "versions/1/activate"] {
        // Without a body, which the node would not read before it refuses.
        let refused = client.try_send("POST", &best.path(call), "application/json", "").unwrap().expect(409);
        assert!(refused["detail"].as_str().unwrap().contains("films, second, third"), "{call}: {refused}");
    }
    for call in ["versions", "quality", "users/u", "events"] {
        best.get(call).expect(409);
    }
    best.put("items/item-1", &json!({"features": vec![1.0; DIM]})).expect(409);
    best.put("items/item-1", &json!({"attributes": {"title": "Heat"}})).expect(200);
    assert!(!best.get("items?limit=5").expect(200)["items"].as_array().unwrap().is_empty());
    let out_of_place = json!({"user": "u", "item": "item-1", "segment": "phone"});
    best.post("predict", &out_of_place).expect(422);
    client.model("films").post("predict", &out_of_place).expect(422);
    client.model("films").get("selection").expect(404);
    let arm = client.model("second").delete("").expect(409);
    assert!(arm["detail"].as_str().unwrap().contains("best"), "{arm}");
    assert_eq!(best.delete("").status, 204);
    assert_eq!(client.model("second").delete("").status, 204);
    best.post("predict", &json!({"user": "u", "item": "item-1"})).expect(404);
}

#[test]
fn each_segment_has_its_own_state() {
    let (_dir, node) = node();
    let settings = json!({"scope": "segment", "segments": ["phone", "tablet"], "half_life_records": 2000});
    let selection = create(&node.client(), "by-segment", &settings);
    for round in 0..300 {
        let (segment, liked) = [("phone", "second"), ("tablet", "third")][round % 2];
        let user = format!("user-{}", round % 20);
        rank_and_reward(&selection, &user, Some(segment), |arm| if arm == liked { 5.0 } else { 1.0 });
    }
    assert!(weights(&selection, "?segment=phone")["second"] > 0.5);
    assert!(weights(&selection, "?segment=tablet")["third"] > 0.5);
    let ask = |segment: Value| selection.post("predict", &json!({"user": "u", "item": "item-1", "segment": segment}));
    ask(json!("phone")).expect(200);
    for refused in [ask(json!("car")), ask(Value::Null), selection.get("selection")] {
        assert!(refused.expect(422)["detail"].as_str().unwrap().contains("phone, tablet"));
    }
}
