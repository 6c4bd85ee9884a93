//! Versions are switched and gone back to under a constant load: nobody notices, nothing is lost or counted twice, and
//! what was warm is warm.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use celeris_tests::scene::{DATASET_ITEMS, DIM, features, write_dataset};
use celeris_tests::{Client, ModelClient, Node, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Items that come after training, with features: their look-ups are what the feature cache is for.
const LATER: usize = 400;

const USERS: usize = 40;

/// Threads of each kind of request.
const THREADS: usize = 2;

/// Requests over which a hit ratio is taken: fewer look-ups than would find a cold cache warm again.
const WINDOW: usize = 60;

/// Points by which the hit ratio may be lower after a switch.
const RATIO_LOST_MAX: f64 = 0.05;

fn any_item(random: &mut ChaCha8Rng) -> String {
    if random.random_bool(0.5) {
        format!("later-{}", random.random_range(0..LATER))
    } else {
        random.random_range(1..=DATASET_ITEMS).to_string()
    }
}

fn any_user(random: &mut ChaCha8Rng) -> String {
    random.random_range(1..=USERS).to_string()
}

/// What the load has seen.
#[derive(Default)]
struct Seen {
    requests: AtomicUsize,
    stop: AtomicBool,
}

/// What one thread has been told, by user: how many observations of its own are acknowledged.
type Acknowledged = BTreeMap<String, u64>;

#[derive(Clone, Copy)]
enum Kind {
    Predict,
    Topk,
    Observe,
}

fn load(films: &ModelClient, kind: Kind, thread: usize, seen: &Seen) -> Acknowledged {
    let mut random = ChaCha8Rng::seed_from_u64(100 * thread as u64 + kind as u64);
    let mut acknowledged = Acknowledged::new();
    for count in 0.. {
        if seen.stop.load(Ordering::Relaxed) {
            break;
        }
        let user = any_user(&mut random);
        let items: Vec<String> = (0..10).map(|_| any_item(&mut random)).collect();
        match kind {
            Kind::Predict => {
                let answer = films.post("predict", &json!({"user": user, "items": items})).expect(200);
                assert!([2, 3].map(Value::from).contains(&answer["version"]), "{answer}");
                assert_eq!(answer["scores"].as_array().unwrap().len(), items.len());
            }
            Kind::Topk => {
                let answer = films.post("topk", &json!({"user": user, "items": items, "k": 3})).expect(200);
                assert!([2, 3].map(Value::from).contains(&answer["version"]), "{answer}");
            }
            Kind::Observe => {
                let observation = json!({
                    "user": user, "item": items[0], "label": f32::from(random.random_range(1_u8..=10)) / 2.0,
                    "observation_id": format!("{thread}-{count}"),
                });
                let reply = films.observe(&observation);
                assert_eq!(reply["duplicate"], false, "{reply}");
                *acknowledged.entry(user).or_default() += 1;
            }
        }
        seen.requests.fetch_add(1, Ordering::Relaxed);
    }
    acknowledged
}

fn start_load(films: &ModelClient, seen: &Arc<Seen>) -> Vec<JoinHandle<Acknowledged>> {
    let kinds = [Kind::Predict, Kind::Topk, Kind::Observe];
    let threads = (0..THREADS).flat_map(|thread| kinds.map(|kind| (thread, kind)));
    let start = |(thread, kind)| {
        let (films, seen) = (films.clone(), Arc::clone(seen));
        thread::spawn(move || load(&films, kind, thread, &seen))
    };
    threads.map(start).collect()
}

/// Hits and misses of the feature cache so far.
fn looked_up(client: &Client) -> (f64, f64) {
    let metrics = client.get("/metrics").text;
    let of = |name: &str| -> f64 {
        let name = format!("celeris_cache_{name}_total{{cache=\"features\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    };
    (of("hits"), of("misses"))
}

/// The hit ratio from a moment until [`WINDOW`] requests later.
fn hit_ratio(client: &Client, seen: &Seen, since: (f64, f64)) -> f64 {
    let from = seen.requests.load(Ordering::Relaxed);
    eventually("requests of the load", || (seen.requests.load(Ordering::Relaxed) >= from + WINDOW).then_some(()));
    let (hits, misses) = looked_up(client);
    (hits - since.0) / (hits - since.0 + misses - since.1)
}

fn retrain(client: &Client, films: &ModelClient) {
    let job = films.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    let done = eventually("the end of the retraining", || {
        let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
    });
    assert_eq!(done["state"], "succeeded", "{done}");
}

/// Everybody's hash of the state, with the version that it is of.
fn states(films: &ModelClient) -> BTreeMap<String, (Value, Value, Value)> {
    let state = |user: usize| {
        let state = films.user(&user.to_string(), 0);
        (user.to_string(), (state["version"].clone(), state["observations"].clone(), state["state_hash"].clone()))
    };
    (1..=USERS).map(state).collect()
}

#[test]
fn ten_switches_and_five_rollbacks_under_load_lose_nothing_and_find_warm_what_was_warm() {
    let dir = tempfile::tempdir().unwrap();
    let ratings = write_dataset(dir.path()).ratings;
    let data = dir.path().join("data");
    let node = Node::serve(&data);
    let client = node.client();
    let settings = json!({"name": "films", "dim": DIM, "gate": {"force": true}, "guard": {"observations": 0}});
    let _created = client.post("/v1/models", &settings).expect(201);
    let films = client.model("films");
    let mut taught = Acknowledged::new();
    // The second training knows more than the first.
    for part in ratings.chunks(ratings.len() / 2) {
        let mut lines = String::new();
        for rating in part {
            lines.push_str(&format!("{}\n", json!({"user": rating.user, "item": rating.item, "label": rating.label})));
            *taught.entry(rating.user.to_string()).or_default() += 1;
        }
        assert_eq!(films.observe_lines(&lines).unwrap().map(Result::unwrap).count(), part.len());
        retrain(&client, &films);
    }
    assert_eq!(films.get("").expect(200)["active_version"], 3);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    for item in 0..LATER {
        films.put(&format!("items/later-{item}"), &json!({"features": features(&mut random)})).expect(200);
    }
    let later: Vec<String> = (0..LATER).map(|item| format!("later-{item}")).collect();
    films.post("predict", &json!({"user": "1", "items": later})).expect(200);

    let seen = Arc::new(Seen::default());
    let threads = start_load(&films, &seen);
    let steady = hit_ratio(&client, &seen, looked_up(&client));
    assert!(steady > 0.9, "the load finds the features of {LATER} items in memory: {steady}");
    let mut ratios = Vec::new();
    for _ in 0..5 {
        for (call, serves) in [("versions/2/activate", 2), ("versions/3/activate", 3), ("rollback", 2)] {
            let since = looked_up(&client);
            assert_eq!(films.post(call, &json!({})).expect(200)["active_version"], serves);
            let answer = films.post("predict", &json!({"user": "1", "item": "1"})).expect(200);
            assert_eq!(answer["version"], serves, "every request after a switch is answered by its version");
            ratios.push(hit_ratio(&client, &seen, since));
        }
        films.post("versions/3/activate", &json!({})).expect(200);
    }
    seen.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        for (user, count) in thread.join().unwrap() {
            *taught.entry(user).or_default() += count;
        }
    }
    let worst = ratios.iter().copied().fold(1.0, f64::min);
    assert!(worst >= steady - RATIO_LOST_MAX, "the hit ratio was {steady}, and after switches {ratios:?}");

    let live = states(&films);
    for (user, (version, observations, _)) in &live {
        assert_eq!((version, observations), (&json!(3), &json!(taught[user])), "user {user}");
    }
    node.kill_hard();
    let node = Node::serve(&data);
    let films = node.model("films");
    assert_eq!(states(&films), live, "the states are those that the log amounts to");
    // What is evicted, rebuilt, prepared: under the other version too.
    films.post("versions/2/activate", &json!({})).expect(200);
    let other = states(&films);
    assert!(other.iter().all(|(user, state)| state.2 != live[user].2));
    node.kill_hard();
    assert_eq!(states(&Node::serve(&data).model("films")), other);
}
