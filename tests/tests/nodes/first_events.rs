//! A node that knows only what it was sent: items are found from their first observation on, and
//! ranked by offsets from the tenth on.

use std::collections::{BTreeMap, BTreeSet};

use celeris_datasets::Dataset;
use celeris_skip::{self as skip, Need};
use celeris_tests::{ModelClient, Node, NodeProcess, eventually};
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

fn create(node: &Node, body: &Value) -> ModelClient {
    node.client().post("/v1/models", body).expect(201);
    node.model(body["name"].as_str().unwrap())
}

fn films(node: &Node) -> ModelClient {
    create(node, &json!({"name": "films", "dim": 4}))
}

/// The items recommended to a user, in any order.
fn recommended(films: &ModelClient, user: &str) -> BTreeSet<String> {
    let request = json!({"user": user, "k": 100, "policy": "greedy"});
    let reply = films.post("recommend", &request).expect(200);
    reply["items"].as_array().unwrap().iter().map(|slot| slot["item"].as_str().unwrap().to_owned()).collect()
}

/// The items of a listing, with whether the active version was trained on them.
fn listed(films: &ModelClient, query: &str) -> Vec<(String, bool)> {
    let reply = films.get(&format!("items{query}")).expect(200);
    let items = reply["items"].as_array().unwrap().iter();
    items.map(|item| (item["item"].as_str().unwrap().to_owned(), item["trained"] == true)).collect()
}

fn set(items: &[&str]) -> BTreeSet<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

#[test]
fn an_item_is_recommended_and_listed_from_its_first_observation_on() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = films(&node);
    let others = create(&node, &json!({"name": "others", "stream": "films", "dim": 2}));
    assert_eq!(recommended(&films, "v"), set(&[]));
    for (at, item) in ["b", "a", "b", "long id"].iter().enumerate() {
        films.observe(&json!({"user": "u", "item": item, "label": 4}));
        assert_eq!(recommended(&films, "v"), set(&["b", "a", "b", "long id"][..=at]), "at once, for another user");
    }
    assert_eq!(recommended(&films, "u"), set(&[]), "the user has seen them");
    assert_eq!(recommended(&others, "v"), set(&["a", "b", "long id"]), "the catalog is the stream's");
    let later = create(&node, &json!({"name": "later", "stream": "films", "dim": 3}));
    assert_eq!(recommended(&later, "v"), set(&["a", "b", "long id"]), "for a model created afterwards, too");

    let all = [("a".to_owned(), false), ("b".to_owned(), false), ("long id".to_owned(), false)];
    assert_eq!(listed(&films, ""), all);
    assert_eq!(listed(&films, "?after=a&limit=1"), all[1..2]);
    assert_eq!(films.get("items").expect(200)["total"], 3);
    let item = films.get("items/a").expect(200);
    assert_eq!((&item["source"], &item["attributes"]), (&json!("stand_in"), &Value::Null));

    films.put("items/a", &json!({"attributes": {"genres": ["Drama"]}})).expect(200);
    let drama = json!({"user": "v", "k": 5, "filter": {"eq": {"field": "genres", "value": "Drama"}}});
    assert_eq!(films.post("recommend", &drama).expect(200)["items"][0]["item"], "a", "it can be described later");
}

#[test]
fn a_deleted_item_stays_deleted_when_it_is_observed() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = films(&node);
    for item in ["a", "b"] {
        films.observe(&json!({"user": "u", "item": item, "label": 4}));
    }
    assert_eq!(films.delete("items/a").status, 204);
    assert_eq!(films.delete("items/never").status, 404);
    films.observe(&json!({"user": "u", "item": "a", "label": 4}));
    assert_eq!((recommended(&films, "v"), films.get("items/a").status), (set(&["b"]), 404));
    node.stop();
    let node = Node::serve(dir.path());
    let films = node.model("films");
    assert_eq!(recommended(&films, "v"), set(&["b"]));
    films.put("items/a", &json!({"attributes": {}})).expect(200);
    assert_eq!(recommended(&films, "v"), set(&["a", "b"]), "a PUT brings it back");
}

#[test]
fn observed_items_stay_when_their_observations_go_and_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    node.client().post("/v1/models", &json!({"name": "films", "dim": 4})).expect(201);
    let films = node.model("films");
    for (user, item) in [("u", "retracted"), ("erased", "erased"), ("u", "kept")] {
        films.observe(&json!({"user": user, "item": item, "label": 4, "observation_id": item}));
    }
    films.delete("observations/retracted").expect(200);
    films.delete("users/erased").expect(200);
    let expected = set(&["retracted", "erased", "kept"]);
    assert_eq!(recommended(&films, "v"), expected);
    node.kill_hard();
    let node = NodeProcess::serve(dir.path());
    assert_eq!(recommended(&node.model("films"), "v"), expected);
}

fn observe_all(films: &ModelClient, observations: impl IntoIterator<Item = Value>) {
    let lines: String = observations.into_iter().map(|observation| format!("{observation}\n")).collect();
    for line in films.observe_lines(&lines).unwrap() {
        let line = line.unwrap();
        assert_eq!(line.get("error"), None, "{line}");
    }
}

/// Waits until a version of this algorithm serves, and returns it.
fn served_by(films: &ModelClient, algorithm: &str) -> Value {
    eventually(algorithm, || {
        let active = films.get("").expect(200)["active_version"].clone();
        let versions = films.get("versions").expect(200)["versions"].as_array().unwrap().clone();
        versions.into_iter().find(|version| version["version"] == active && version["algorithm"] == algorithm)
    })
}

#[test]
fn a_model_with_parts_ranks_by_offsets_until_they_are_trained() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::as_shipped(dir.path());
    let nodes = json!({
        "genre": {"op": "one_hot", "input": "item.genre", "fit": {"min_count": 1}},
        "device": {"op": "one_hot", "input": "context.device", "categories": ["phone", "screen"]},
        "both": {"op": "cross", "inputs": ["genre", "device"], "hash_bits": 6},
        "liking": {"op": "linear", "input": "both", "fit": "label"}});
    node.client().post("/v1/pipelines", &json!({"name": "taste", "output": "liking", "nodes": nodes})).expect(201);
    let parts = json!([{"part": "factors", "from": "table"}, {"part": "liking", "pipeline": "taste"}]);
    let films = create(&node, &json!({"name": "films", "dim": 4, "features": parts}));
    for item in ["good", "bad"] {
        films.put(&format!("items/{item}"), &json!({"attributes": {"genre": item}})).expect(200);
    }
    for user in 0..12 {
        for (item, label) in [("good", 5), ("bad", 2)] {
            let context = json!({"device": "phone"});
            films.observe(&json!({"user": format!("u{user}"), "item": item, "label": label, "context": context}));
        }
    }
    served_by(&films, "popularity");
    let reply = films.post("recommend", &json!({"user": "newcomer", "k": 1, "policy": "greedy"})).expect(200);
    assert_eq!(reply["items"][0]["item"], "good", "{reply}");
    let jobs = node.client().get("/v1/jobs").expect(200)["jobs"].as_array().unwrap().clone();
    assert!(jobs.iter().all(|job| job["state"] != "failed"), "{jobs:?}");
}

#[test]
fn a_new_model_ranks_by_offsets_at_ten_observations_and_is_trained_at_a_thousand() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::as_shipped(dir.path());
    let films = create(&node, &json!({"name": "films", "dim": 4}));
    let settings = films.get("").expect(200)["triggers"].clone();
    assert_eq!(settings["volume"], json!({"observations": 1000, "growth": 0.5}));
    assert_eq!(settings["popularity"], json!({"observations": 10, "growth": 0.1, "until": 800}));

    // Twelve users, who all rate `good` with 5 and one of the others with 1 to 4.
    for user in 0..12 {
        films.observe(&json!({"user": format!("u{user}"), "item": "good", "label": 5}));
        films.observe(&json!({"user": format!("u{user}"), "item": format!("i{user}"), "label": 1 + user % 4}));
    }
    let version = served_by(&films, "popularity");
    assert_eq!(version["gate"]["verdict"], "not_judged", "{version}");
    let reply = films.post("recommend", &json!({"user": "newcomer", "k": 3, "policy": "greedy"})).expect(200);
    assert_eq!(reply["items"][0]["item"], "good", "{reply}");
    let score = reply["items"][0]["score"].as_f64().unwrap();
    assert!((3.5..=5.5).contains(&score), "the labels of the item are 5, and of all 3.75: {reply}");
    // A user's own observations count from there.
    let of = |user: &str| films.post("predict", &json!({"user": user, "item": "new"})).expect(200);
    let score = |reply: Value| reply["scores"][0]["score"].as_f64().unwrap();
    for item in ["i0", "i1", "i2", "i3"] {
        films.observe(&json!({"user": "low", "item": item, "label": 1}));
    }
    assert!(score(of("low")) < score(of("newcomer")) - 0.2, "{} and {}", of("low"), of("newcomer"));

    let more = (0..1000)
        .map(|n| json!({"user": format!("u{}", n % 40), "item": format!("i{}", n * 7 % 31), "label": 1 + n % 5}));
    observe_all(&films, more);
    let trained = served_by(&films, "als");
    assert_eq!(trained["parent"].as_u64().map(|parent| parent > 1), Some(true), "{trained}");
    let jobs = films.get("events?limit=1000").expect(200)["events"].as_array().unwrap().clone();
    let triggers: BTreeSet<&str> = jobs.iter().filter_map(|event| event["details"]["trigger"].as_str()).collect();
    assert_eq!(triggers, ["popularity", "volume"].into());
}

#[test]
fn models_that_name_their_triggers_get_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::as_shipped(dir.path());
    let none = create(&node, &json!({"name": "none", "dim": 4, "triggers": {}})).get("").expect(200);
    assert_eq!((&none["triggers"]["volume"], &none["triggers"]["popularity"]), (&Value::Null, &Value::Null));
    let named = json!({"name": "named", "dim": 4, "triggers": {"volume": {"observations": 5}}});
    let named = create(&node, &named).get("").expect(200);
    assert_eq!(named["triggers"]["volume"], json!({"observations": 5, "growth": 0.0}));
    assert_eq!(named["triggers"]["popularity"], Value::Null);
}

/// Length of the lists, and the rating from which on an item counts as liked.
const K: usize = 20;
const LIKED: f32 = 4.0;

#[test]
fn after_five_hundred_ratings_lists_are_better_than_by_numbers_of_ratings_and_never_empty() {
    let Some(folder) = skip::unless_downloaded(Need::MovieLens, "ml-latest-small") else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = Node::as_shipped(dir.path());
    let mut ratings = Dataset::load(&folder).unwrap().ratings;
    let (mut ours, mut by_number) = (0.0, 0.0);
    for seed in 0..3 {
        ratings.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let (known, held_out) = ratings.split_at(500);
        let films = create(&node, &json!({"name": format!("films-{seed}"), "triggers": {}}));
        observe_all(&films, known.iter().map(|one| json!({"user": one.user, "item": one.item, "label": one.label})));
        films.patch("", &json!({"triggers": {"popularity": {}}})).expect(200);
        served_by(&films, "popularity");

        let (mut numbers, mut seen, mut liked) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for one in known {
            *numbers.entry(one.item.as_str()).or_insert(0) += 1;
            seen.entry(one.user.as_str()).or_insert_with(BTreeSet::new).insert(one.item.as_str());
        }
        for one in held_out.iter().filter(|one| one.label >= LIKED) {
            liked.entry(one.user.as_str()).or_insert_with(BTreeSet::new).insert(one.item.as_str());
        }
        let mut popular: Vec<&str> = numbers.keys().copied().collect();
        // Equal numbers in random order: ids begin with the well-known films.
        popular.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        popular.sort_by_key(|item| std::cmp::Reverse(numbers[item]));
        let share = |list: &[String], liked: &BTreeSet<&str>| {
            list.iter().filter(|item| liked.contains(item.as_str())).count() as f64 / liked.len().min(K) as f64
        };
        let (nothing, users) = (BTreeSet::new(), liked.len() as f64);
        for (user, liked) in &liked {
            let request = json!({"user": user, "k": K, "policy": "greedy"});
            let reply = films.post("recommend", &request).expect(200);
            let list: Vec<String> = reply["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|slot| slot["item"].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(list.len(), K, "{reply}");
            let seen = seen.get(user).unwrap_or(&nothing);
            let most: Vec<String> =
                popular.iter().filter(|item| !seen.contains(*item)).take(K).map(|item| (*item).to_owned()).collect();
            ours += share(&list, liked) / users;
            by_number += share(&most, liked) / users;
        }
    }
    eprintln!("recall at {K}: {:.4} of the node, {:.4} by numbers of ratings", ours / 3.0, by_number / 3.0);
    assert!(ours > by_number, "{ours} and {by_number}");
}
