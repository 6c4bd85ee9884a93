//! Every policy over HTTP: its name, its parameters and its propensities.

use std::collections::HashMap;

use celeris_tests::fixtures::{ITEMS, any_item, any_label, create_model};
use celeris_tests::{ModelClient, Node};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// A model with a user who has rated some items.
fn node() -> (tempfile::TempDir, Node, ModelClient) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 31);
    let mut random = ChaCha8Rng::seed_from_u64(32);
    for _ in 0..5 {
        films.observe(&json!({"user": "u", "item": any_item(&mut random), "label": any_label(&mut random)}));
    }
    (dir, node, films)
}

fn topk(films: &ModelClient, items: usize, policy: &Value, seed: u64) -> Value {
    let items: Vec<String> = (0..items).map(|item| format!("item-{item}")).collect();
    films.post("topk", &json!({"user": "u", "items": items, "k": 3, "policy": policy, "seed": seed})).expect(200)
}

fn propensities(ranking: &Value) -> Vec<&Value> {
    ranking["items"].as_array().unwrap().iter().map(|slot| &slot["propensity"]).collect()
}

#[test]
fn every_policy_ranks_by_name_and_returns_its_parameters() {
    let (_dir, _node, films) = node();
    for policy in [
        json!({"name": "greedy"}),
        json!({"name": "epsilon_greedy", "epsilon": 0.05}),
        json!({"name": "softmax", "lambda": 1.0}),
        json!({"name": "squarecb", "gamma_scale": 10.0, "gamma_exponent": 0.5}),
        json!({"name": "lin_ucb", "alpha": 1.0}),
        json!({"name": "regcb", "mellowness": 0.1}),
        json!({"name": "thompson", "alpha": 1.0}),
    ] {
        let by_name = topk(&films, ITEMS, &policy["name"], 1);
        assert_eq!(by_name["policy"], policy, "a name selects the defaults, and the reply contains them");
        assert_eq!(by_name["items"], topk(&films, ITEMS, &policy, 1)["items"]);
        for propensity in propensities(&by_name) {
            match policy["name"].as_str().unwrap() {
                "greedy" | "lin_ucb" | "regcb" => assert_eq!(propensity, 1.0, "{by_name}"),
                "thompson" => assert!(propensity.is_null(), "computed after the reply: {by_name}"),
                _ => assert!((0.0..=1.0).contains(&propensity.as_f64().unwrap()), "{by_name}"),
            }
        }
    }
}

#[test]
fn first_slots_are_as_frequent_as_their_propensities() {
    let (_dir, _node, films) = node();
    for policy in [json!({"name": "softmax", "lambda": 2}), json!({"name": "squarecb", "gamma_scale": 2})] {
        let mut shown: HashMap<String, (f64, f64)> = HashMap::new();
        for seed in 0..300 {
            let ranking = topk(&films, 4, &policy, seed);
            let first = &ranking["items"][0];
            let (count, propensity) = shown.entry(first["item"].as_str().unwrap().to_owned()).or_default();
            (*count, *propensity) = (*count + 1.0, first["propensity"].as_f64().unwrap());
        }
        for (item, (count, propensity)) in shown {
            // Four standard deviations of a binomial share.
            let width = 4.0 * (propensity * (1.0 - propensity) / 300.0).sqrt();
            assert!((count / 300.0 - propensity).abs() <= width, "{item}: {count} of 300 at {propensity}");
        }
    }
}
