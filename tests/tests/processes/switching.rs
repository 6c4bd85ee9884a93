//! Versions are switched and rolled back under a constant load: no request fails, no observation is
//! lost or counted twice, and caches stay warm.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use celeris_tests::fixtures::{DATASET_ITEMS, DIM, features, write_dataset};
use celeris_tests::{Client, ModelClient, NodeProcess, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Items added after the training, with given features, which are looked up through the feature
/// cache.
const LATER: usize = 400;

const USERS: usize = 40;

/// Threads per kind of request.
const THREADS: usize = 2;

/// Requests per measurement of the hit ratio: fewer lookups than warm a cold cache.
const WINDOW: usize = 60;

/// Maximum drop of the hit ratio after a switch.
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

/// Shared state of the threads of the load.
#[derive(Default)]
struct Progress {
    requests: AtomicUsize,
    stop: AtomicBool,
}

/// Number of acknowledged observations of one thread, by user.
type Acknowledged = BTreeMap<String, u64>;

#[derive(Clone, Copy)]
enum Kind {
    Predict,
    Topk,
    Observe,
}

fn load(films: &ModelClient, kind: Kind, thread: usize, progress: &Progress) -> Acknowledged {
    let mut random = ChaCha8Rng::seed_from_u64(100 * thread as u64 + kind as u64);
    let mut acknowledged = Acknowledged::new();
    for count in 0.. {
        if progress.stop.load(Ordering::Relaxed) {
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
        progress.requests.fetch_add(1, Ordering::Relaxed);
    }
    acknowledged
}

fn start_load(films: &ModelClient, progress: &Arc<Progress>) -> Vec<JoinHandle<Acknowledged>> {
    let kinds = [Kind::Predict, Kind::Topk, Kind::Observe];
    let threads = (0..THREADS).flat_map(|thread| kinds.map(|kind| (thread, kind)));
    let start = |(thread, kind)| {
        let (films, progress) = (films.clone(), Arc::clone(progress));
        thread::spawn(move || load(&films, kind, thread, &progress))
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

/// The hit ratio since the counts `since`, measured after [`WINDOW`] more requests.
fn hit_ratio(client: &Client, progress: &Progress, since: (f64, f64)) -> f64 {
    let from = progress.requests.load(Ordering::Relaxed);
    eventually("requests of the load", || (progress.requests.load(Ordering::Relaxed) >= from + WINDOW).then_some(()));
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

/// Version, number of observations and hash of every user's state.
fn states(films: &ModelClient) -> BTreeMap<String, (Value, Value, Value)> {
    let state = |user: usize| {
        let state = films.user(&user.to_string(), 0);
        (user.to_string(), (state["version"].clone(), state["observations"].clone(), state["state_hash"].clone()))
    };
    (1..=USERS).map(state).collect()
}

#[test]
fn ten_switches_and_five_rollbacks_under_load_lose_nothing_and_keep_caches_warm() {
    let dir = tempfile::tempdir().unwrap();
    let ratings = write_dataset(dir.path()).ratings;
    let data = dir.path().join("data");
    let node = NodeProcess::serve(&data);
    let client = node.client();
    let settings = json!({"name": "films", "dim": DIM, "gate": {"force": true}, "guard": {"observations": 0}});
    let _created = client.post("/v1/models", &settings).expect(201);
    let films = client.model("films");
    let mut observed = Acknowledged::new();
    // The second training has more ratings than the first.
    for part in ratings.chunks(ratings.len() / 2) {
        let mut lines = String::new();
        for rating in part {
            lines.push_str(&format!("{}\n", json!({"user": rating.user, "item": rating.item, "label": rating.label})));
            *observed.entry(rating.user.to_string()).or_default() += 1;
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

    let progress = Arc::new(Progress::default());
    let threads = start_load(&films, &progress);
    let steady = hit_ratio(&client, &progress, looked_up(&client));
    assert!(steady > 0.9, "the load finds the features of {LATER} items in memory: {steady}");
    let mut ratios = Vec::new();
    for _ in 0..5 {
        for (call, serves) in [("versions/2/activate", 2), ("versions/3/activate", 3), ("rollback", 2)] {
            let since = looked_up(&client);
            assert_eq!(films.post(call, &json!({})).expect(200)["active_version"], serves);
            let answer = films.post("predict", &json!({"user": "1", "item": "1"})).expect(200);
            assert_eq!(answer["version"], serves, "every request after a switch is answered by its version");
            ratios.push(hit_ratio(&client, &progress, since));
        }
        films.post("versions/3/activate", &json!({})).expect(200);
    }
    progress.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        for (user, count) in thread.join().unwrap() {
            *observed.entry(user).or_default() += count;
        }
    }
    let worst = ratios.iter().copied().fold(1.0, f64::min);
    assert!(worst >= steady - RATIO_LOST_MAX, "the hit ratio was {steady}, and after switches {ratios:?}");

    let live = states(&films);
    for (user, (version, observations, _)) in &live {
        assert_eq!((version, observations), (&json!(3), &json!(observed[user])), "user {user}");
    }
    node.kill_hard();
    let node = NodeProcess::serve(&data);
    let films = node.model("films");
    assert_eq!(states(&films), live, "the states equal those rebuilt from the log");
    // The same holds under the other version.
    films.post("versions/2/activate", &json!({})).expect(200);
    let other = states(&films);
    assert!(other.iter().all(|(user, state)| state.2 != live[user].2));
    node.kill_hard();
    assert_eq!(states(&NodeProcess::serve(&data).model("films")), other);
}
