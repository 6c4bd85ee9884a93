//! Recommendations for anonymous users and for groups, compared with those of named users and with
//! exhaustive scores.

use std::collections::{BTreeMap, BTreeSet};

use celeris_tests::fixtures::{ITEMS, any_item, any_label, create_model, features};
use celeris_tests::{ModelClient, Node};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// The mean of scores rounds differently from the score of the mean weights.
const ROUNDING: f64 = 1e-4;

/// A node with a model and users whose observations are drawn from the seed.
fn node(seed: u64, users: &[&str]) -> (tempfile::TempDir, Node, ModelClient) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", seed);
    for (index, user) in users.iter().enumerate() {
        for entry in past(seed + index as u64) {
            let mut observation = entry.clone();
            observation["user"] = json!(user);
            films.observe(&observation);
        }
    }
    (dir, node, films)
}

/// Random observations without a user.
fn past(seed: u64) -> Vec<Value> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let entry = |n: i64| {
        json!({"item": any_item(&mut random), "label": any_label(&mut random), "weight": 1.5,
            "timestamp": 1_700_000_000_000_i64 + n, "feedback": if n < 4 { "view" } else { "rating" }})
    };
    (0..8).map(entry).collect()
}

fn recommend(films: &ModelClient, request: &Value) -> Value {
    films.post("recommend", request).expect(200)
}

fn items(reply: &Value) -> Vec<String> {
    let slots = reply["items"].as_array().unwrap().iter();
    slots.map(|slot| slot["item"].as_str().unwrap().to_owned()).collect()
}

/// Every item's score and `std_error` for a user.
fn scores(films: &ModelClient, user: &str) -> BTreeMap<String, (f64, f64)> {
    let all: Vec<String> = (0..ITEMS).map(|item| format!("item-{item}")).collect();
    let reply = films.post("predict", &json!({"user": user, "items": all})).expect(200);
    let scores = reply["scores"].as_array().unwrap().iter();
    let number = |score: &Value, field: &str| score[field].as_f64().unwrap();
    scores
        .map(|score| (score["item"].as_str().unwrap().to_owned(), (number(score, "score"), number(score, "std_error"))))
        .collect()
}

#[test]
fn a_history_in_the_request_ranks_like_a_user_with_that_history_and_leaves_no_state() {
    let (_dir, node, films) = node(1, &["u"]);
    for exclude_seen in [json!(true), json!(false), json!({"feedback": ["view"]})] {
        for policy in ["greedy", "lin_ucb", "thompson", "epsilon_greedy"] {
            let request = |audience: (&str, Value)| {
                let mut request = json!({"k": 8, "policy": policy, "seed": 5, "exclude_seen": exclude_seen});
                request[audience.0] = audience.1;
                request
            };
            let known = recommend(&films, &request(("user", json!("u"))));
            let anonymous = recommend(&films, &request(("history", json!(past(1)))));
            let scored_slots = |reply: &Value| -> Vec<Value> {
                let slots = reply["items"].as_array().unwrap().iter();
                slots.map(|slot| json!([slot["item"], slot["score"], slot["std_error"], slot["label_std"]])).collect()
            };
            assert_eq!(scored_slots(&anonymous), scored_slots(&known), "{policy}, exclude_seen {exclude_seen}");
            assert_eq!((&known["logged"], &anonymous["logged"]), (&json!(true), &json!(false)));
            assert_eq!((&anonymous["user"], &anonymous["cold"]), (&Value::Null, &json!(false)));
        }
    }
    let nobody = recommend(&films, &json!({"history": [], "k": 3, "policy": "greedy"}));
    let newcomer = recommend(&films, &json!({"user": "someone-new", "k": 3, "policy": "greedy"}));
    assert_eq!((items(&nobody), &nobody["cold"]), (items(&newcomer), &json!(true)));

    // Anonymous requests leave no state of a user, and their decisions are not stored.
    assert_eq!(films.user("nobody", 10)["observations"], 0);
    let decision = recommend(&films, &json!({"history": past(1), "k": 3}))["decision_id"].clone();
    let found = node.client().get(&films.path(&format!("decisions/{}", decision.as_str().unwrap())));
    assert_eq!(found.status, 404, "{}", found.text);
}

#[test]
fn a_group_is_ranked_by_the_mean_or_the_minimum_of_its_scores() {
    let users = ["ada", "ben", "cleo"];
    let (_dir, _node, films) = node(20, &users);
    let all: Vec<BTreeMap<String, (f64, f64)>> = users.iter().map(|user| scores(&films, user)).collect();
    let aggregate_score = |by: &str, item: &str| {
        let scores = all.iter().map(|scores| scores[item].0);
        if by == "mean" { scores.sum::<f64>() / 3.0 } else { scores.fold(f64::INFINITY, f64::min) }
    };
    let seen: BTreeSet<String> =
        (20..23).flat_map(past).map(|entry| entry["item"].as_str().unwrap().to_owned()).collect();
    for by in ["mean", "least_misery"] {
        for (exclude_seen, k) in [(false, 5), (false, ITEMS), (true, 4)] {
            let request = json!({"users": users, "aggregate": by, "k": k, "exclude_seen": exclude_seen});
            let reply = recommend(&films, &request);
            let mut expected: Vec<&String> =
                all[0].keys().filter(|item| !exclude_seen || !seen.contains(*item)).collect();
            expected.sort_by(|a, b| aggregate_score(by, b).total_cmp(&aggregate_score(by, a)));
            expected.truncate(k);
            assert_eq!(items(&reply).iter().collect::<Vec<_>>(), expected, "{by}, exclude_seen {exclude_seen}");
            for slot in reply["items"].as_array().unwrap() {
                let item = slot["item"].as_str().unwrap();
                assert!((slot["score"].as_f64().unwrap() - aggregate_score(by, item)).abs() < ROUNDING, "{by}: {slot}");
                let std_error = if by == "mean" {
                    all.iter().map(|scores| scores[item].1.powi(2)).sum::<f64>().sqrt() / 3.0
                } else {
                    all.iter().map(|scores| scores[item]).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1
                };
                assert!((slot["std_error"].as_f64().unwrap() - std_error).abs() < ROUNDING, "{by}: {slot}");
            }
            assert_eq!((&reply["logged"], &reply["policy"]["name"]), (&json!(false), &json!("greedy")));
        }
    }
}

#[test]
fn the_pages_of_a_group_show_each_item_once() {
    let (_dir, _node, films) = node(30, &["ada", "ben"]);
    let mut request = json!({"users": ["ada", "ben"], "aggregate": "least_misery", "k": 7, "exclude_seen": false});
    let mut shown = Vec::new();
    loop {
        let reply = recommend(&films, &request);
        shown.extend(items(&reply));
        if reply["next"].is_null() {
            break;
        }
        request["page"] = reply["next"].clone();
    }
    assert_eq!(shown.len(), ITEMS);
    assert_eq!(shown.iter().collect::<BTreeSet<_>>().len(), ITEMS);
}

#[test]
fn least_misery_is_exact_where_tastes_are_opposite() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 40);
    // Far more items than the initial depth of the search, so that it must widen.
    let mut random = ChaCha8Rng::seed_from_u64(41);
    for item in ITEMS..400 {
        films.put(&format!("items/item-{item}"), &json!({"features": features(&mut random)})).expect(200);
    }
    for entry in past(42).iter().chain(&past(43)).chain(&past(44)) {
        for (user, sign) in [("ada", 1.0), ("ben", -1.0)] {
            let label = sign * (entry["label"].as_f64().unwrap() - 2.75);
            films.observe(&json!({"user": user, "item": entry["item"], "label": label}));
        }
    }
    let all: Vec<String> = (0..400).map(|item| format!("item-{item}")).collect();
    let scores = |user: &str| -> Vec<f64> {
        let reply = films.post("predict", &json!({"user": user, "items": all})).expect(200);
        reply["scores"].as_array().unwrap().iter().map(|score| score["score"].as_f64().unwrap()).collect()
    };
    let (ada, ben) = (scores("ada"), scores("ben"));
    let mut least: Vec<f64> = ada.iter().zip(&ben).map(|(a, b)| a.min(*b)).collect();
    least.sort_by(|a, b| b.total_cmp(a));
    let request = json!({"users": ["ada", "ben"], "aggregate": "least_misery", "k": 10, "exclude_seen": false});
    let reply = recommend(&films, &request);
    for (slot, expected) in reply["items"].as_array().unwrap().iter().zip(&least[..10]) {
        assert!((slot["score"].as_f64().unwrap() - expected).abs() < ROUNDING, "{slot} instead of {expected}");
    }
}

#[test]
fn similar_items_are_ordered_by_cosine_similarity() {
    let (_dir, node, films) = node(50, &[]);
    let vector = |item: &str| -> Vec<f64> {
        let features = films.get(&format!("items/{item}")).expect(200)["features"].clone();
        features.as_array().unwrap().iter().map(|entry| entry.as_f64().unwrap()).collect()
    };
    let cosine = |a: &[f64], b: &[f64]| {
        let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).take(a.len() - 1).map(|(a, b)| a * b).sum() };
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    };
    let of = vector("item-3");
    let similar = |query: &str| films.get(&format!("items/item-3/similar?{query}")).expect(200);
    let mut expected: Vec<(String, f64)> = (0..ITEMS)
        .map(|item| format!("item-{item}"))
        .filter(|item| item != "item-3")
        .map(|item| (item.clone(), cosine(&of, &vector(&item))))
        .collect();
    expected.sort_by(|a, b| b.1.total_cmp(&a.1));
    let reply = similar("k=100");
    assert_eq!(items(&reply), expected.iter().map(|(item, _)| item.clone()).collect::<Vec<_>>());
    for (slot, (_, cosine)) in reply["items"].as_array().unwrap().iter().zip(&expected) {
        assert!((slot["similarity"].as_f64().unwrap() - cosine).abs() < 1e-5, "{slot} instead of {cosine}");
    }
    assert_eq!(items(&similar("k=3")), items(&reply)[..3]);

    // An identical item is found immediately, a filter restricts the result, and a deleted item is
    // not returned.
    let twin = json!({"features": of, "attributes": {"title": "A twin", "genre": "new"}});
    films.put("items/twin", &twin).expect(200);
    assert_eq!(items(&similar("k=1")), ["twin"]);
    let filter = "%7B%22eq%22:%7B%22field%22:%22genre%22,%22value%22:%22new%22%7D%7D";
    assert_eq!(items(&similar(&format!("filter={filter}"))), ["twin"]);
    let deleted = films.delete("items/twin");
    assert_eq!(deleted.status, 204, "{}", deleted.text);
    assert_eq!(items(&similar("k=2")), items(&reply)[..2]);
    assert_eq!(films.get("items/twin/similar").status, 404);

    // An item without features has no similar items and is similar to none.
    films.put("items/blank", &json!({"attributes": {}})).expect(200);
    assert_eq!(items(&films.get("items/blank/similar").expect(200)), Vec::<String>::new());
    assert!(!items(&similar("k=1000")).contains(&"blank".to_owned()));
    for (query, status, names) in [("k=0", 422, "k:"), ("k=1001", 422, "k:"), ("filter=%7B", 422, "filter")] {
        let refused = films.get(&format!("items/item-3/similar?{query}"));
        assert_eq!(refused.status, status, "{}", refused.text);
        assert!(refused.json()["detail"].as_str().unwrap().contains(names), "{}", refused.text);
    }
    assert_eq!(node.model("films").get("items/no-such-item/similar").status, 404);
}

#[test]
fn invalid_audiences_are_refused_with_the_field() {
    let (_dir, _node, films) = node(60, &["ada"]);
    let seventeen: Vec<String> = (0..17).map(|user| format!("u-{user}")).collect();
    let entry = json!({"item": "item-1", "label": 4});
    let cases = [
        (json!({"k": 3}), "user"),
        (json!({"k": 3, "user": "ada", "history": []}), "history"),
        (json!({"k": 3, "user": "ada", "users": ["ada", "ben"]}), "users"),
        (json!({"k": 3, "users": ["ada"]}), "users"),
        (json!({"k": 3, "users": ["ada", "ada"]}), "users"),
        (json!({"k": 3, "users": seventeen}), "users"),
        (json!({"k": 3, "user": "ada", "aggregate": "mean"}), "aggregate"),
        (json!({"k": 3, "users": ["ada", "ben"], "aggregate": "median"}), "aggregate"),
        (json!({"k": 3, "users": ["ada", "ben"], "policy": "thompson"}), "policy"),
        (json!({"k": 3, "users": ["ada", "ben"], "min_epoch": 1}), "min_epoch"),
        (json!({"k": 3, "history": [], "min_epoch": 1}), "min_epoch"),
        (json!({"k": 3, "history": vec![&entry; 1001]}), "history"),
        (json!({"k": 3, "history": [entry, {"item": "item-1", "label": 1e9}]}), "history: [1]"),
        (json!({"k": 3, "history": [{"item": "item-1", "label": 1, "weight": 0}]}), "history: [0]"),
        (json!({"k": 3, "history": [{"item": "item-1"}]}), "history[0]"),
        (json!({"k": 3, "history": [{"item": "item-1", "label": 1, "stars": 3}]}), "stars"),
    ];
    for (request, names) in cases {
        let refused = films.post("recommend", &request);
        assert_eq!(refused.status, 422, "{request}: {}", refused.text);
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(names), "{request}: {detail}");
    }
}
