//! Explanations: the contributions of observations sum to the score, and follow amendments of the
//! history.

use celeris_tests::fixtures::{DIM, ITEMS, any_item, any_label, create_model, features};
use celeris_tests::{ModelClient, Node};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// States are held in `f32`; terms are of the size of labels.
const ROUNDING: f64 = 1e-4;

fn node(seed: u64) -> (tempfile::TempDir, Node, ModelClient) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", seed);
    (dir, node, films)
}

fn why(model: &ModelClient, user: &str, item: &str, limit: usize) -> Value {
    model.get(&format!("users/{user}/why/{item}?limit={limit}")).expect(200)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn reasons(why: &Value) -> &Vec<Value> {
    why["because"].as_array().unwrap()
}

/// Checks that the terms of the score sum to it.
#[track_caller]
fn assert_sums(why: &Value) {
    let named: f64 = reasons(why).iter().map(|reason| number(&reason["contribution"])).sum();
    let sum = number(&why["prior"]) + named + number(&why["others"]);
    assert!((sum - number(&why["score"])).abs() < ROUNDING, "the terms sum to {sum}: {why}");
}

/// Gives the user `count` observations with ids `o-0`, `o-1`, ….
fn observe_many(model: &ModelClient, user: &str, count: usize, mut label: impl FnMut(&mut ChaCha8Rng) -> f32) {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for n in 0..count {
        let (item, label) = (any_item(&mut random), label(&mut random));
        let (id, timestamp) = (format!("o-{user}-{n}"), 1_700_000_000_000_i64 + 60_000 * n as i64);
        let observation = json!({"user": user, "item": item, "label": label, "observation_id": id,
            "timestamp": timestamp, "weight": 1.5});
        model.observe(&observation);
    }
}

#[test]
fn the_reasons_of_a_score_sum_to_it_and_the_largest_come_first() {
    let (_dir, _node, films) = node(1);
    observe_many(&films, "u", 40, any_label);
    let predicted = films.post("predict", &json!({"user": "u", "item": "item-3"})).expect(200);
    let some = why(&films, "u", "item-3", 5);
    assert_eq!(some["score"], predicted["scores"][0]["score"]);
    assert_eq!(some["std_error"], predicted["scores"][0]["std_error"]);
    assert_eq!((&some["user_epoch"], &some["observations"], &some["known"]), (&json!(40), &json!(40), &json!(true)));
    assert_eq!(reasons(&some).len(), 5);
    assert_sums(&some);
    let distances: Vec<f64> = reasons(&some).iter().map(|reason| number(&reason["contribution"]).abs()).collect();
    assert!(distances.is_sorted_by(|a, b| a >= b) && distances[4] > ROUNDING, "{distances:?}");

    // All reasons, each with its observation.
    let all = why(&films, "u", "item-3", 1000);
    assert_eq!((reasons(&all).len(), &all["others"]), (40, &json!(0.0)));
    assert_sums(&all);
    assert_eq!(reasons(&all)[..5], reasons(&some)[..], "a lower limit returns the first of them");
    let history = films.user("u", 100);
    for reason in reasons(&all) {
        let events = history["history"].as_array().unwrap().iter();
        let observed = events.clone().find(|event| event["observation_id"] == reason["observation_id"]).unwrap();
        for field in ["item", "label", "weight", "timestamp"] {
            assert_eq!(reason[field], observed[field], "{reason} is not {observed}");
        }
    }
}

#[test]
fn a_user_without_observations_has_the_score_of_the_prior() {
    let (_dir, _node, films) = node(2);
    let nothing = why(&films, "nobody", "item-3", 5);
    assert_eq!((reasons(&nothing).len(), &nothing["observations"], &nothing["user_epoch"]), (0, &json!(0), &json!(0)));
    assert_sums(&nothing);
    let unknown = why(&films, "nobody", "no-such-item", 5);
    assert_eq!(unknown["known"], false);
}

#[test]
fn reasons_sum_to_the_scores_of_every_kind_of_model_and_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let kinds = [
        ("clicks", json!({"loss": "logistic"})),
        ("takes", json!({"loss": "implicit"})),
        ("fading", json!({"half_life": 600.0})),
        ("fading-clicks", json!({"loss": "logistic", "half_life": 600.0})),
    ];
    let mut explained = Vec::new();
    for (name, settings) in &kinds {
        let mut settings = settings.clone();
        settings["name"] = json!(name);
        settings["dim"] = json!(DIM);
        node.client().post("/v1/models", &settings).expect(201);
        let model = node.model(name);
        let mut random = ChaCha8Rng::seed_from_u64(3);
        for item in 0..ITEMS {
            let described = json!({"features": features(&mut random)});
            model.put(&format!("items/item-{item}"), &described).expect(200);
        }
        let mut random = ChaCha8Rng::seed_from_u64(4);
        observe_many(&model, "u", 45, |_| f32::from(any_label(&mut random) > 2.5));
        let all = why(&model, "u", "item-5", 1000);
        assert_eq!(reasons(&all).len(), 45, "{name}");
        assert_sums(&all);
        assert_sums(&why(&model, "u", "item-5", 3));
        explained.push(all);
    }
    let fading = reasons(&explained[2]);
    let contribution = |n: usize| {
        let id = format!("o-u-{n}");
        number(&fading.iter().find(|reason| reason["observation_id"] == id.as_str()).unwrap()["contribution"])
    };
    assert!(contribution(0).abs() < 0.1 * contribution(44).abs() + 0.1, "what is 44 minutes older has faded");
    node.stop();
    let node = Node::serve(dir.path());
    for ((name, _), before) in kinds.iter().zip(&explained) {
        assert_eq!(why(&node.model(name), "u", "item-5", 1000), *before, "{name}");
    }
}

#[test]
fn corrections_retractions_and_erasures_change_the_reasons_at_once() {
    let (_dir, _node, films) = node(5);
    observe_many(&films, "u", 12, any_label);
    let find = |why: &Value, id: &str| reasons(why).iter().find(|reason| reason["observation_id"] == id).cloned();

    films.put("observations/o-u-4", &json!({"label": 0.5})).expect(200);
    let corrected = why(&films, "u", "item-1", 100);
    let reason = find(&corrected, "o-u-4").unwrap();
    assert_eq!((&reason["label"], reasons(&corrected).len()), (&json!(0.5), 12));
    assert_sums(&corrected);

    films.delete("observations/o-u-4").expect(200);
    let retracted = why(&films, "u", "item-1", 100);
    assert_eq!((find(&retracted, "o-u-4"), reasons(&retracted).len()), (None, 11));
    assert_sums(&retracted);

    films.delete("users/u").expect(200);
    let erased = why(&films, "u", "item-1", 100);
    assert_eq!(reasons(&erased).len(), 0);
    assert_sums(&erased);
    assert_eq!(erased["prior"], why(&films, "nobody", "item-1", 100)["prior"]);
}

#[test]
fn invalid_explanation_requests_are_refused_with_the_reason() {
    let (_dir, node, films) = node(6);
    let detail = |call: &str, status: u16| {
        let reply = films.get(call);
        assert_eq!(reply.status, status, "{call}: {}", reply.text);
        reply.json()["detail"].as_str().unwrap().to_owned()
    };
    assert!(detail("users/u/why/item-1?limit=1001", 422).starts_with("limit: "));
    assert!(detail("users/u/why/item-1?depth=3", 422).contains("depth"));
    assert!(detail("users/u/why/item-1?min_epoch=5", 409).contains("min_epoch"));
    assert_eq!(node.model("nothing").get("users/u/why/item-1").status, 404);
    let selection = json!({"name": "best", "kind": "selection", "arms": ["films", "others"], "label_range": [1, 5]});
    node.client().post("/v1/models", &json!({"name": "others", "stream": "films", "dim": 4})).expect(201);
    node.client().post("/v1/models", &selection).expect(201);
    let refused = node.model("best").get("users/u/why/item-1");
    assert_eq!(refused.status, 409, "{}", refused.text);
    assert!(refused.json()["detail"].as_str().unwrap().contains("films"), "{}", refused.text);
}
