//! Rankings: reproducible by their seed, with correct propensities, and each with a decision id.

use std::collections::BTreeSet;

use celeris_tests::fixtures::{ITEMS, all_items, any_item, any_label, create_model};
use celeris_tests::{ModelClient, Node};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Propensities are `f32`.
const PROPENSITY_TOLERANCE: f64 = 1e-6;

/// A model with a user who has rated some items.
fn node() -> (tempfile::TempDir, Node, ModelClient) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 21);
    let mut random = ChaCha8Rng::seed_from_u64(22);
    for _ in 0..5 {
        films.observe(&json!({"user": "u", "item": any_item(&mut random), "label": any_label(&mut random)}));
    }
    (dir, node, films)
}

fn topk(films: &ModelClient, k: usize, policy: &Value, seed: impl Into<Option<u64>>) -> Value {
    let seed: Option<u64> = seed.into();
    let mut request = json!({"user": "u", "items": all_items(), "k": k});
    if !policy.is_null() {
        request["policy"] = policy.clone();
    }
    if let Some(seed) = seed {
        request["seed"] = seed.into();
    }
    films.post("topk", &request).expect(200)
}

fn column(ranking: &Value, field: &str) -> Vec<f64> {
    ranking["items"].as_array().unwrap().iter().map(|slot| slot[field].as_f64().unwrap()).collect()
}

fn items(ranking: &Value) -> Vec<&str> {
    ranking["items"].as_array().unwrap().iter().map(|slot| slot["item"].as_str().unwrap()).collect()
}

#[test]
fn a_seed_reproduces_a_ranking_and_every_ranking_is_its_own_decision() {
    let (_dir, _node, films) = node();
    let mut decisions = BTreeSet::new();
    for policy in [json!("thompson"), json!({"name": "epsilon_greedy", "epsilon": 0.9}), json!("lin_ucb"), Value::Null]
    {
        let first = topk(&films, 10, &policy, 7);
        let again = topk(&films, 10, &policy, 7);
        assert_eq!(first["items"], again["items"], "{policy}");
        assert_eq!(first["seed"], 7);
        // The response contains the seed that the server drew, which reproduces the ranking as
        // well.
        let unseeded = topk(&films, 10, &policy, None);
        let repeated = topk(&films, 10, &policy, unseeded["seed"].as_u64());
        assert_eq!(unseeded["items"], repeated["items"], "{policy}");
        for ranking in [first, again, unseeded, repeated] {
            assert_eq!(ranking["logged"], true);
            assert_eq!(items(&ranking).into_iter().collect::<BTreeSet<_>>().len(), 10, "no item is shown twice");
            assert!(decisions.insert(ranking["decision_id"].as_str().unwrap().to_owned()), "{ranking}");
        }
    }
    let orders: BTreeSet<String> =
        (0..10).map(|seed| topk(&films, 10, &json!("thompson"), seed)["items"].to_string()).collect();
    assert!(orders.len() > 5, "a sampling policy explores: {} orders of 10", orders.len());
}

#[test]
fn greedy_is_deterministic_best_first_with_propensity_one() {
    let (_dir, _node, films) = node();
    let ranking = topk(&films, ITEMS, &json!("greedy"), None);
    assert_eq!(ranking["policy"], json!({"name": "greedy"}));
    assert_eq!(ranking["pool"], false);
    assert!(column(&ranking, "propensity").iter().all(|propensity| *propensity == 1.0), "{ranking}");
    let scores = column(&ranking, "score");
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    let predicted = films.post("predict", &json!({"user": "u", "items": items(&ranking)})).expect(200);
    let predicted: Vec<f64> =
        predicted["scores"].as_array().unwrap().iter().map(|s| s["score"].as_f64().unwrap()).collect();
    assert_eq!(scores, predicted, "a ranking and a prediction agree bit for bit");
    for seed in 0..5 {
        assert_eq!(topk(&films, ITEMS, &json!("greedy"), seed)["items"], ranking["items"]);
    }
    let more =
        films.post("topk", &json!({"user": "u", "items": ["item-1", "item-1", "item-2"], "k": 9, "policy": "greedy"}));
    assert_eq!(items(&more.expect(200)).len(), 2, "a repeated item counts once, and k may exceed what there is");
}

#[test]
fn propensities_are_the_probabilities_of_the_policy() {
    let (_dir, _node, films) = node();
    let best = items(&topk(&films, 1, &json!("greedy"), None))[0].to_owned();
    let (greedy, other) = (0.8 + 0.2 / ITEMS as f64, 0.2 / ITEMS as f64);
    let mut explored = 0;
    for seed in 0..60 {
        let ranking = topk(&films, 1, &json!({"name": "epsilon_greedy", "epsilon": 0.2}), seed);
        let expected = if items(&ranking)[0] == best { greedy } else { other };
        explored += usize::from(items(&ranking)[0] != best);
        assert!((column(&ranking, "propensity")[0] - expected).abs() < PROPENSITY_TOLERANCE, "{ranking}");
    }
    // 60 draws explore 11.5 times on average; fewer than 2 or more than 30 have a probability below
    // 1e-4.
    assert!((2..=30).contains(&explored), "{explored} of 60");

    for seed in 0..20 {
        let ranking = topk(&films, 10, &Value::Null, seed);
        let all_known = column(&ranking, "propensity").iter().all(|propensity| 0.0 < *propensity && *propensity <= 1.0);
        assert!(all_known, "the default policy has all its propensities: {ranking}");
    }
}

#[test]
fn a_model_ranks_by_its_own_policy_and_pool() {
    let (_dir, node, _films) = node();
    let client = node.client();
    let new = json!({"name": "all-pool", "dim": 4, "pool_share": 1, "policy": "greedy"});
    assert_eq!(client.post("/v1/models", &new).expect(201)["policy"], json!({"name": "greedy"}));
    let request = json!({"user": "u", "items": all_items(), "k": 3});
    let pooled = client.model("all-pool").post("topk", &request).expect(200);
    assert_eq!(pooled["pool"], true);
    // Sampled uniformly without replacement.
    for (slot, propensity) in column(&pooled, "propensity").into_iter().enumerate() {
        assert!((propensity - 1.0 / (ITEMS - slot) as f64).abs() < PROPENSITY_TOLERANCE, "{pooled}");
    }
    let named = json!({"user": "u", "items": all_items(), "k": 3, "policy": "greedy"});
    assert_eq!(client.model("all-pool").post("topk", &named).expect(200)["pool"], false, "a named policy is used");
}

#[test]
fn observations_refer_to_decisions() {
    let (_dir, _node, films) = node();
    let ranking = topk(&films, 3, &Value::Null, None);
    let outcome = json!({
        "user": "u", "item": items(&ranking)[0], "label": 5, "decision_id": ranking["decision_id"],
        "observation_id": "outcome", "feedback": "rating", "timestamp": "2024-02-29T12:00:00.5+01:00",
    });
    let first = films.observe(&outcome);
    assert_eq!(first["user_epoch"], 6);
    // The prediction stored with the observation equals the score of the shown slot.
    assert_eq!(first["predicted"], ranking["items"][0]["score"]);
    assert_eq!(films.observe(&outcome)["duplicate"], true);
    let mut without = outcome.clone();
    without.as_object_mut().unwrap().remove("decision_id");
    assert_eq!(films.try_observe(&without).unwrap().status, 409, "without its decision it is a different one");
    let event = films.user("u", 1)["history"][0].clone();
    assert_eq!((&event["feedback"], &event["timestamp"]), (&json!("rating"), &json!(1_709_204_400_500_i64)));
    // An observation is stored even if its decision has expired.
    let late = json!({"user": "u", "item": "item-1", "label": 2, "decision_id": "long-forgotten"});
    assert_eq!(films.observe(&late)["user_epoch"], 7);
}
