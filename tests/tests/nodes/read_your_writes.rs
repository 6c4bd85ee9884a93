//! Reads reflect the client's own writes, concurrent writes are ordered, and unknown users and
//! items are reported.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;
use std::thread;

use celeris_tests::fixtures::{DIM, any_item, any_label, config_file, create_model, features};
use celeris_tests::{ModelClient, Node, Reply, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Number of concurrent clients.
const CROWD: usize = 8;

/// Scores are sums of a few `f32` products; the order of the summation is unspecified.
const SCORE_TOLERANCE: f64 = 1e-5;

fn node(seed: u64) -> (tempfile::TempDir, Node, ModelClient) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", seed);
    (dir, node, films)
}

/// Calls `act` with the number of the client on [`CROWD`] concurrent clients, and returns all
/// responses.
fn at_once(films: &ModelClient, act: impl Fn(&ModelClient, usize) -> Vec<Reply> + Sync) -> Vec<Reply> {
    let start = Barrier::new(CROWD);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CROWD)
            .map(|client| {
                let (start, act) = (&start, &act);
                scope.spawn(move || {
                    start.wait();
                    act(films, client)
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

fn score(films: &ModelClient, user: &str, item: &str) -> Value {
    films.post("predict", &json!({"user": user, "item": item})).expect(200)
}

#[test]
fn responses_reflect_the_requested_epoch() {
    let (_dir, _node, films) = node(11);
    let request = |min_epoch: Value| json!({"user": "u", "items": ["item-1", "item-2"], "min_epoch": min_epoch});
    let before = films.post("predict", &request(Value::Null)).expect(200);
    assert_eq!((&before["cold"], &before["user_epoch"]), (&json!(true), &json!(0)));

    let mut epoch = json!(0);
    for label in [5, 5, 4] {
        epoch = films.observe(&json!({"user": "u", "item": "item-1", "label": label}))["user_epoch"].clone();
        let after = films.post("predict", &request(epoch.clone())).expect(200);
        assert_eq!((&after["cold"], &after["user_epoch"]), (&json!(false), &epoch));
    }
    let after = films.post("predict", &request(epoch.clone())).expect(200);
    let of_first = |answer: &Value| answer["scores"][0]["score"].as_f64().unwrap();
    assert!(of_first(&after) > of_first(&before) + 1.0, "three high ratings raise the score: {before} {after}");
    let ranked = json!({"user": "u", "items": ["item-1", "item-2"], "k": 2, "policy": "greedy", "min_epoch": epoch});
    assert_eq!(films.post("topk", &ranked).expect(200)["user_epoch"], epoch);

    let unreachable = films.post("predict", &request(json!(1_000_000)));
    assert_eq!(unreachable.status, 409, "{}", unreachable.text);
    assert!(unreachable.json()["detail"].as_str().unwrap().contains("min_epoch"), "{}", unreachable.text);
}

#[test]
fn a_request_ends_at_the_nodes_time_limit() {
    let dir = tempfile::tempdir().unwrap();
    let config = config_file(dir.path(), "[limits]\nrequest_timeout = \"100ms\"\n");
    let node = Node::configured(&dir.path().join("data"), &config);
    let films = create_model(&node.client(), "films", 15);
    // Without the limit, the request would wait a second for the epoch and then fail with 409.
    let late = films.post("predict", &json!({"user": "u", "item": "item-1", "min_epoch": 1}));
    assert_eq!(late.status, 504, "{}", late.text);
    assert!(late.json()["detail"].as_str().unwrap().contains("time limit"), "{}", late.text);
    score(&films, "u", "item-1");
}

#[test]
fn a_read_waits_for_a_concurrent_write() {
    let (_dir, _node, films) = node(12);
    // The read may arrive before or after the write; it is repeated if its bounded wait ended too
    // soon.
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            eventually("the epoch", || {
                let read = films.post("predict", &json!({"user": "u", "item": "item-1", "min_epoch": 1}));
                (read.status == 200).then(|| read.json()["user_epoch"].clone())
            })
        });
        films.observe(&json!({"user": "u", "item": "item-1", "label": 4}));
        assert_eq!(reader.join().unwrap(), 1);
    });
}

#[test]
fn concurrent_observers_of_one_user_take_every_epoch_once() {
    const EACH: usize = 25;
    let (_dir, _node, films) = node(13);
    let replies = at_once(&films, |films, client| {
        let mut random = ChaCha8Rng::seed_from_u64(client as u64);
        let mut observe = || {
            let observation = json!({"user": "u", "item": any_item(&mut random), "label": any_label(&mut random)});
            let reply = films.try_observe(&observation).unwrap();
            let epoch = reply.json()["user_epoch"].clone();
            let read = films.post("predict", &json!({"user": "u", "item": "item-0", "min_epoch": epoch})).expect(200);
            assert!(read["user_epoch"].as_u64() >= epoch.as_u64(), "{read}");
            reply
        };
        (0..EACH).map(|_| observe()).collect()
    });
    let epochs: BTreeSet<u64> = replies.iter().map(|reply| reply.json()["user_epoch"].as_u64().unwrap()).collect();
    assert_eq!(epochs, (1..=(CROWD * EACH) as u64).collect());
    assert_eq!(films.user("u", 0)["observations"], CROWD * EACH);
}

#[test]
fn an_observation_id_is_stored_once_under_concurrent_requests() {
    let (_dir, _node, films) = node(14);
    let observation = |label: usize| json!({"user": "u", "item": "item-1", "label": label, "observation_id": "same"});
    let replies = at_once(&films, |films, _| vec![films.try_observe(&observation(4)).unwrap()]);
    let replies: Vec<Value> = replies.into_iter().map(|reply| reply.expect(200)).collect();
    let first = |reply: &&Value| reply["duplicate"] == false;
    assert_eq!(replies.iter().filter(first).count(), 1, "{replies:?}");
    assert!(replies.iter().all(|reply| reply["user_epoch"] == 1), "{replies:?}");
    assert!(replies.iter().all(|reply| reply["sequence"] == replies[0]["sequence"]), "{replies:?}");

    let other = films.try_observe(&observation(1)).unwrap();
    assert_eq!(other.status, 409, "{}", other.text);
    assert!(other.json()["detail"].as_str().unwrap().contains("same"), "{}", other.text);
    assert_eq!(films.user("u", 10)["history"].as_array().unwrap().len(), 1);

    // If every client sends a different body, one body is stored and the others are refused.
    let contested =
        |label: usize| json!({"user": "v", "item": "item-1", "label": label, "observation_id": "contested"});
    let replies = at_once(&films, |films, client| vec![films.try_observe(&contested(client)).unwrap()]);
    let taken = replies.iter().filter(|reply| reply.status == 200).count();
    let refused = replies.iter().filter(|reply| reply.status == 409).count();
    assert_eq!((taken, refused), (1, CROWD - 1));
    assert_eq!(films.user("v", 10)["history"].as_array().unwrap().len(), 1);
}

/// Users of a stream are processed in parallel, but the observations of each user in order.
#[test]
fn a_stream_is_answered_line_by_line_and_the_observations_of_each_user_stay_in_order() {
    let (_dir, _node, films) = node(19);
    let mut random = ChaCha8Rng::seed_from_u64(20);
    let mut lines = String::new();
    // For each line the observation id and the epoch, or `None` if it is not an observation.
    let mut expected = Vec::new();
    let mut labels: BTreeMap<String, Vec<f32>> = BTreeMap::new();
    for line in 0..4000 {
        if random.random_bool(0.02) {
            lines += "{\"user\": \"u\", \"surprise\": 1}\n";
            expected.push(None);
            continue;
        }
        let user = format!("user-{}", random.random_range(0..23));
        let (item, label) = (any_item(&mut random), any_label(&mut random));
        let id = format!("id-{line}");
        lines += &json!({"user": user, "item": item, "label": label, "observation_id": id}).to_string();
        lines += "\n";
        let labels = labels.entry(user).or_default();
        labels.push(label);
        expected.push(Some((id, labels.len())));
    }
    let answers: Vec<Value> = films.observe_lines(&lines).unwrap().map(Result::unwrap).collect();
    assert_eq!(answers.len(), expected.len());
    for (number, (answer, expected)) in (1..).zip(answers.iter().zip(&expected)) {
        match expected {
            Some((id, epoch)) => {
                assert_eq!((&answer["observation_id"], &answer["user_epoch"]), (&json!(id), &json!(epoch)), "{answer}");
                assert_eq!(answer["duplicate"], false);
            }
            None => {
                assert_eq!((&answer["line"], &answer["error"]["status"]), (&json!(number), &json!(422)), "{answer}");
            }
        }
    }
    for (user, labels) in labels {
        let history = films.user(&user, labels.len())["history"].clone();
        let mut learnt: Vec<f64> =
            history.as_array().unwrap().iter().map(|event| event["label"].as_f64().unwrap()).collect();
        learnt.reverse();
        assert_eq!(learnt, labels.iter().map(|label| f64::from(*label)).collect::<Vec<_>>(), "{user}");
    }
}

#[test]
fn models_of_one_stream_learn_from_the_same_observations() {
    let (_dir, node, films) = node(15);
    let created = node.client().post("/v1/models", &json!({"name": "second", "stream": "films", "dim": 4})).expect(201);
    assert_eq!(created["stream"], "films");
    let second = node.model("second");
    let first = films.observe(&json!({"user": "u", "item": "item-1", "label": 5, "observation_id": "one"}));
    let again = second.observe(&json!({"user": "u", "item": "item-1", "label": 5, "observation_id": "one"}));
    assert_eq!((&again["duplicate"], &again["sequence"]), (&json!(true), &first["sequence"]));
    assert_eq!(second.user("u", 1)["user_epoch"], 1);
    assert_eq!(score(&second, "u", "item-1")["cold"], false);
}

#[test]
fn unknown_users_and_items_are_answered_and_reported() {
    let (_dir, _node, films) = node(16);
    films.observe(&json!({"user": "u", "item": "item-1", "label": 5}));
    let newcomer = films.post("predict", &json!({"user": "newcomer", "items": ["item-1", "never-seen"]})).expect(200);
    assert_eq!((&newcomer["cold"], &newcomer["user_epoch"]), (&json!(true), &json!(0)));
    assert_eq!(newcomer["scores"][0]["known"], true);
    assert_eq!(newcomer["scores"][1]["known"], false);
    assert_eq!(films.user("newcomer", 10)["history"], json!([]));

    let unknown = score(&films, "u", "never-seen");
    assert_eq!((&unknown["cold"], &unknown["scores"][0]["known"]), (&json!(false), &json!(false)));
    let unknown = &unknown["scores"][0];
    assert!(unknown["score"].as_f64().unwrap() > 0.5, "a generous user's score of an average film: {unknown}");
    // The user's one rating also informs the weight of the constant feature, so even an average
    // film is less uncertain.
    let newcomer = &newcomer["scores"][1];
    assert!(unknown["std_error"].as_f64() < newcomer["std_error"].as_f64(), "{unknown} {newcomer}");
    for answer in [unknown, newcomer] {
        assert!(answer["label_std"].as_f64() > answer["std_error"].as_f64(), "{answer}");
    }
}

#[test]
fn features_of_an_item_can_be_replaced_until_it_is_observed() {
    let (_dir, _node, films) = node(17);
    let mut random = ChaCha8Rng::seed_from_u64(18);
    for item in 0..DIM {
        films.observe(&json!({"user": "u", "item": format!("item-{item}"), "label": any_label(&mut random)}));
    }
    let weights: Vec<f64> =
        films.user("u", 0)["weights"].as_array().unwrap().iter().map(|weight| weight.as_f64().unwrap()).collect();
    // An untrained version has no offsets, so the score is the product of weights and features.
    let expected = |features: &[f32]| -> f64 { weights.iter().zip(features).map(|(w, x)| w * f64::from(*x)).sum() };
    let assert_scored_by = |features: &[f32]| {
        let found = score(&films, "u", "new")["scores"][0].clone();
        assert!((found["score"].as_f64().unwrap() - expected(features)).abs() < SCORE_TOLERANCE, "{found}");
        assert_eq!(found["known"], true);
    };
    let put =
        |features: &[f32]| films.put("items/new", &json!({"features": features})).expect(200)["effective"].clone();

    assert_eq!(score(&films, "u", "new")["scores"][0]["known"], false);
    let first = features(&mut random);
    assert_eq!(put(&first), "now");
    assert_scored_by(&first);
    // No user has learnt from them yet, so they may still change, also after a score was requested.
    let second = features(&mut random);
    assert_eq!(put(&second), "now");
    assert_scored_by(&second);

    films.observe(&json!({"user": "another-user", "item": "new", "label": 3}));
    assert_eq!(put(&first), "next_version");
    assert_scored_by(&second);
    let stored = films.get("items/new").expect(200);
    let vector = |field: &str| -> Vec<f32> { serde_json::from_value(stored[field].clone()).unwrap() };
    assert_eq!((vector("given_features"), vector("features")), (first, second));
    let titled = films.put("items/new", &json!({"attributes": {"title": "New"}})).expect(200);
    assert_eq!(titled["effective"], "now");
    assert_eq!(films.get("items/new").expect(200)["attributes"]["title"], "New");
}

#[test]
fn ids_may_be_any_text_and_integers_become_their_digits() {
    let (_dir, node, films) = node(19);
    films.observe(&json!({"user": 7, "item": 42, "label": 4}));
    assert_eq!(films.user("7", 1)["history"][0]["item"], "42");
    let user = "žluťoučký kůň/🐎 ?#%";
    films.observe(&json!({"user": user, "item": "a/b", "label": 4}));
    let encoded: String = user.bytes().map(|byte| format!("%{byte:02X}")).collect();
    assert_eq!(films.user(&encoded, 1)["user"], user);
    assert_eq!(films.put("items/a%2Fb", &json!({"attributes": {}})).expect(200)["item"], "a/b");
    let client = node.client();
    assert_eq!(client.get("/healthz").status, 200);
    assert_eq!(client.get("/readyz").status, 200);
}
