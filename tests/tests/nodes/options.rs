//! Options of a model for its feedback: the loss and the half-life.

use std::collections::HashMap;

use celeris_tests::fixtures::{DIM, ITEMS, features, weights};
use celeris_tests::{ModelClient, Node};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

const DAY_MS: i64 = 86_400_000;

/// The first timestamps of the tests.
const START_MS: i64 = 1_000_000_000_000;

/// Features by item.
type Items = HashMap<String, Vec<f32>>;

/// Creates a model with these options, and items with given features.
fn create(node: &Node, options: &Value, seed: u64) -> (ModelClient, Items) {
    let mut body = json!({"dim": DIM});
    body.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    let created = node.client().post("/v1/models", &body).expect(201);
    for (option, value) in options.as_object().unwrap() {
        assert_eq!(created[option], *value, "{created}");
    }
    let model = node.client().model(options["name"].as_str().unwrap());
    assert_eq!(model.get("").expect(200)["half_life"], created["half_life"]);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut items = Items::new();
    for item in 0..ITEMS {
        let row = features(&mut random);
        let put = model.put(&format!("items/item-{item}"), &json!({"features": row})).expect(200);
        assert_eq!(put["effective"], "now");
        items.insert(format!("item-{item}"), row);
    }
    (model, items)
}

/// Solves `A w = b` by Gaussian elimination, for `A` positive definite.
fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for i in 0..n {
        for j in i + 1..n {
            let factor = a[j][i] / a[i][i];
            let pivot = a[i].clone();
            for (entry, above) in a[j].iter_mut().zip(pivot).skip(i) {
                *entry -= factor * above;
            }
            b[j] -= factor * b[i];
        }
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| a[i][k] * b[k]).sum();
        b[i] = (b[i] - known) / a[i][i];
    }
    b
}

/// The ridge solution of examples `(features, weight, target)` from the prior of an untrained
/// model, zero weights with the identity as their precision.
fn ridge(examples: impl Iterator<Item = (Vec<f32>, f64, f64)>) -> Vec<f64> {
    let mut a: Vec<Vec<f64>> = (0..DIM).map(|i| (0..DIM).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    let mut b = vec![0.0; DIM];
    for (row, weight, target) in examples {
        for i in 0..DIM {
            b[i] += weight * f64::from(row[i]) * target;
            for j in 0..DIM {
                a[i][j] += weight * f64::from(row[i]) * f64::from(row[j]);
            }
        }
    }
    solve(a, b)
}

/// States are rounded to `f32`, and between solves every update rounds again.
fn assert_close(state: &Value, exact: &[f64]) {
    let weights: Vec<f64> = serde_json::from_value(state["weights"].clone()).unwrap();
    for (ours, exact) in weights.iter().zip(exact) {
        assert!((ours - exact).abs() <= 1e-4, "{weights:?} against {exact}");
    }
}

fn event(state: &Value, items: &Items) -> Vec<(Vec<f32>, f64, f64, i64)> {
    // Corrections and retractions are events without a prediction.
    let history = state["history"].as_array().unwrap().iter().filter(|event| event["predicted"].is_f64());
    assert_eq!(history.clone().count() as u64, state["observations"].as_u64().unwrap());
    let of = |event: &Value| {
        let number = |field: &str| event[field].as_f64().unwrap();
        let row = items[event["item"].as_str().unwrap()].clone();
        (row, number("weight"), number("label"), event["timestamp"].as_i64().unwrap())
    };
    history.map(of).collect()
}

#[test]
fn a_half_life_discounts_old_observations() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    // A model with a half-life of two days, and one without a half-life on the same stream.
    let (fading, items) = create(&node, &json!({"name": "fading", "stream": "films", "half_life": 172_800.0}), 1);
    let (lasting, _) = create(&node, &json!({"name": "lasting", "stream": "films"}), 1);
    let mut random = ChaCha8Rng::seed_from_u64(2);
    for day in 0..45 {
        // The taste reverses after thirty days, and a few observations arrive three days late.
        let item = format!("item-{}", random.random_range(0..ITEMS));
        let taste = if day < 30 { 1.0 } else { -1.0 };
        let label = taste * items[&item][0] * 3.0;
        let time = day * DAY_MS - if day % 7 == 0 { 3 * DAY_MS } else { 0 };
        let weight = f32::from(random.random_range(1_u8..=3));
        let body = json!({"user": "ada", "item": item, "label": label, "weight": weight, "timestamp": START_MS + time});
        fading.observe(&body);
    }
    let state = fading.user("ada", 100);
    let events = event(&state, &items);
    let latest = events.iter().map(|(.., time)| *time).max().unwrap();
    let faded = events.iter().map(|(row, weight, label, time)| {
        (row.clone(), weight * 0.5_f64.powf((latest - time) as f64 / DAY_MS as f64 / 2.0), *label)
    });
    assert_close(&state, &ridge(faded));
    let kept = events.iter().map(|(row, weight, label, _)| (row.clone(), *weight, *label));
    assert_close(&lasting.user("ada", 100), &ridge(kept));

    let before = [weights(&fading, "ada"), weights(&lasting, "ada")];
    node.stop();
    let node = Node::serve(dir.path());
    assert_eq!(node.model("fading").get("").expect(200)["half_life"], 172_800.0);
    assert_eq!([weights(&node.model("fading"), "ada"), weights(&node.model("lasting"), "ada")], before);
}

#[test]
fn a_logistic_model_learns_click_probabilities() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let (model, items) = create(&node, &json!({"name": "clicks", "loss": "logistic"}), 3);
    let (plain, _) = create(&node, &json!({"name": "plain"}), 3);
    let mut random = ChaCha8Rng::seed_from_u64(4);
    let truth: Vec<f64> = (0..DIM).map(|_| random.random_range(-2.0..2.0)).collect();
    let chance = |item: &str| {
        let score: f64 = items[item].iter().zip(&truth).map(|(x, w)| f64::from(*x) * w).sum();
        1.0 / (1.0 + (-score).exp())
    };
    let mut lines = String::new();
    for _ in 0..1500 {
        let item = format!("item-{}", random.random_range(0..ITEMS));
        let label = u8::from(random.random::<f64>() < chance(&item));
        lines.push_str(&format!("{}\n", json!({"user": "ada", "item": item, "label": label})));
    }
    assert!(model.observe_lines(&lines).unwrap().all(|answer| answer.unwrap()["user_epoch"].is_u64()));

    let ids: Vec<&String> = items.keys().collect();
    let answer = model.post("predict", &json!({"user": "ada", "items": ids})).expect(200);
    let mut error = 0.0;
    for score in answer["scores"].as_array().unwrap() {
        let probability = score["probability"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&probability), "{score}");
        let spread = score["label_std"].as_f64().unwrap();
        assert!((spread - (probability * (1.0 - probability)).sqrt()).abs() <= 1e-5, "{score}");
        error += (probability - chance(score["item"].as_str().unwrap())).abs() / ITEMS as f64;
    }
    // Eight weights from 1,500 clicks leave a standard error of about 0.03 on a probability.
    assert!(error <= 0.04, "probabilities are {error} off on average");
    let ranking = model.post("topk", &json!({"user": "ada", "items": ids, "k": 3, "policy": "greedy"})).expect(200);
    let shown: Vec<f64> =
        ranking["items"].as_array().unwrap().iter().map(|slot| slot["probability"].as_f64().unwrap()).collect();
    assert!(shown.is_sorted_by(|a, b| a >= b) && shown.len() == 3, "{ranking}");
    // The prediction stored with an observation is a probability too, so that losses have one
    // scale.
    for event in model.user("ada", 100)["history"].as_array().unwrap() {
        assert!((0.0..=1.0).contains(&event["predicted"].as_f64().unwrap()), "{event}");
    }
    let scores = plain.post("predict", &json!({"user": "ada", "item": "item-0"})).expect(200)["scores"].clone();
    assert!(scores[0].get("probability").is_none(), "ratings have no probability: {scores}");

    let before = weights(&model, "ada");
    node.stop();
    assert_eq!(weights(&Node::serve(dir.path()).model("clicks"), "ada"), before);
}

#[test]
fn implicit_feedback_is_a_preference_held_with_confidence() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let (model, items) = create(&node, &json!({"name": "plays", "loss": "implicit"}), 5);
    let mut random = ChaCha8Rng::seed_from_u64(6);
    for _ in 0..20 {
        let item = format!("item-{}", random.random_range(0..ITEMS));
        let plays = random.random_range(0_u8..6);
        model.observe(&json!({"user": "ada", "item": item, "label": plays, "weight": 0.5}));
    }
    let state = model.user("ada", 100);
    let events = event(&state, &items);
    assert!(events.iter().any(|(_, _, plays, _)| *plays == 0.0), "one of them has no plays");
    assert_close(&state, &preferred(&events, None));

    let before = weights(&model, "ada");
    node.stop();
    assert_eq!(weights(&Node::serve(dir.path()).model("plays"), "ada"), before);
}

#[test]
fn options_and_labels_out_of_range_are_refused_with_the_field() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    for (field, value) in
        [("half_life", json!(0)), ("half_life", json!(-3.5)), ("half_life", json!("a week")), ("loss", json!("hinge"))]
    {
        let refused = node.client().post("/v1/models", &json!({"name": "bad", field: value})).expect(422);
        assert!(refused["detail"].as_str().unwrap().contains(field), "{refused}");
    }
    let (clicks, _) = create(&node, &json!({"name": "clicks", "stream": "all", "loss": "logistic"}), 7);
    let (plays, _) = create(&node, &json!({"name": "plays", "stream": "all", "loss": "implicit"}), 7);
    let (stars, _) = create(&node, &json!({"name": "stars", "stream": "all"}), 7);
    let labelled = |label: f32| json!({"user": "ada", "item": "item-1", "label": label});
    for (model, bad, good) in [(&clicks, [-0.5, 1.5], [0.0, 1.0]), (&plays, [-0.5, -7.0], [0.0, 7.0])] {
        for label in bad {
            let refused = model.post("observe", &labelled(label)).expect(422);
            assert!(refused["detail"].as_str().unwrap().contains("label"), "{refused}");
        }
        for label in good {
            model.observe(&labelled(label));
        }
    }
    // Models on a shared stream clamp the labels of the others to their own range.
    stars.observe(&labelled(5.0));
    stars.observe(&labelled(-5.0));
    for model in [&clicks, &plays, &stars] {
        assert_eq!(model.user("ada", 0)["observations"], 6);
    }
}

/// The ridge solution for events `(features, weight, label, time)`, where events of equal features
/// belong to one pair: one preference of 1 per pair with the confidence `1 + sum weight * label`;
/// preferences of 0 come only from the prior.
fn preferred(events: &[(Vec<f32>, f64, f64, i64)], half_life_days: Option<f64>) -> Vec<f64> {
    let latest = events.iter().map(|(.., time)| *time).max().unwrap();
    let left =
        |time: i64| half_life_days.map_or(1.0, |days| 0.5_f64.powf((latest - time) as f64 / DAY_MS as f64 / days));
    let mut pairs: Vec<(Vec<f32>, f64, f64)> = Vec::new();
    for (row, weight, label, time) in events.iter().filter(|(.., label, _)| *label > 0.0) {
        let place = pairs.iter().position(|(of, ..)| of == row).unwrap_or_else(|| {
            pairs.push((row.clone(), 0.0, 0.0));
            pairs.len() - 1
        });
        pairs[place].1 += left(*time) * weight * label;
        pairs[place].2 = pairs[place].2.max(left(*time));
    }
    ridge(pairs.into_iter().map(|(row, excess, preference)| (row, excess, (excess + preference) / excess)))
}

#[test]
fn a_hundred_plays_of_an_item_are_one_preference() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let (plays, items) = create(&node, &json!({"name": "plays", "stream": "songs", "loss": "implicit"}), 5);
    let fading = json!({"name": "fading", "stream": "songs", "loss": "implicit", "half_life": 172_800.0});
    let (fading, _) = create(&node, &fading, 5);
    let play = |user: &str, n: i64, item: &str, weight: f64, label: f64| {
        plays.observe(&json!({"user": user, "item": item, "label": label, "weight": weight,
            "timestamp": START_MS + n * DAY_MS / 10, "observation_id": format!("{user}-{n}")}));
    };
    let score = |user: &str, item: &str| {
        let reply = plays.post("predict", &json!({"user": user, "item": item})).expect(200);
        reply["scores"][0]["score"].as_f64().unwrap()
    };
    let check = |node: &Node, user: &str| {
        for (name, days) in [("plays", None), ("fading", Some(2.0))] {
            let state = node.model(name).user(user, 200);
            assert_close(&state, &preferred(&event(&state, &items), days));
        }
    };
    for (user, weight) in [("ada", 1.0), ("ben", 0.1)] {
        for n in 0..100 {
            play(user, n, "item-1", weight, 1.0);
        }
        // A preference of 1 with a confidence of 101 or of 11; an untrained prior holds no
        // preferences of 0.
        let (score, excess) = (score(user, "item-1"), 100.0 * weight);
        assert!(score <= (1.0 + excess) / excess, "{score} of {user}");
        check(&node, user);
    }
    for n in 100..140 {
        play("ada", n, &format!("item-{}", n % 3 + 1), 0.7, f64::from(u8::from(n % 4 > 0)) * 2.0);
    }
    check(&node, "ada");
    // A request with the same history gets the same scores.
    let history: Vec<Value> = plays.user("ada", 200)["history"].as_array().unwrap().iter().rev().map(|event| {
        json!({"item": event["item"], "label": event["label"], "weight": event["weight"], "timestamp": event["timestamp"]})
    }).collect();
    for model in [&plays, &fading] {
        let recommended = |audience: (&str, Value)| {
            let mut request = json!({"k": 5, "policy": "greedy", "exclude_seen": false});
            request[audience.0] = audience.1;
            let reply = model.post("recommend", &request).expect(200);
            let slots = reply["items"].as_array().unwrap().iter();
            slots.map(|slot| json!([slot["item"], slot["score"], slot["std_error"]])).collect::<Vec<Value>>()
        };
        assert_eq!(recommended(("history", json!(history))), recommended(("user", json!("ada"))));
        // The contributions of the explanation sum to the score.
        let why = model.get("users/ada/why/item-1?limit=1000").expect(200);
        let terms: f64 =
            why["because"].as_array().unwrap().iter().map(|term| term["contribution"].as_f64().unwrap()).sum();
        assert!((terms + why["prior"].as_f64().unwrap() - why["score"].as_f64().unwrap()).abs() < 1e-4, "{why}");
    }
    // After a retraction of its first play, the pair begins with the second; a play that is
    // corrected to 0 does not count.
    plays.delete("observations/ada-0").expect(200);
    check(&node, "ada");
    plays.put("observations/ada-1", &json!({"label": 0.0})).expect(200);
    check(&node, "ada");
    let before = ["plays", "fading"].map(|name| weights(&node.model(name), "ada"));
    node.stop();
    let node = Node::serve(dir.path());
    assert_eq!(["plays", "fading"].map(|name| weights(&node.model(name), "ada")), before);
    check(&node, "ada");
}
