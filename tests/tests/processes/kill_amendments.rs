//! SIGKILL while clients observe, correct, retract, describe and erase users, and models are deleted and created
//! again: the remaining state is bit-identical to that of a store that received only the
//! acknowledged events.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::{self, Sender};
use std::thread;

use celeris_tests::fixtures::{any_item, any_label, create_model};
use celeris_tests::{Client, ModelClient, Node, NodeProcess};
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Acknowledgements after which the node is killed, in turn.
const KILLS_AFTER: [Range<usize>; 3] = [10..60, 60..200, 200..400];

/// Number of kills, unless [`ROUNDS_VARIABLE`] is set.
const ROUNDS: usize = 3;

/// For long manual runs, as for `kill_nine`.
const ROUNDS_VARIABLE: &str = "CELERIS_KILL_ROUNDS";

/// Rounds per data directory and reference store.
const ROUNDS_A_DIRECTORY: usize = 10;

/// Each client writes to its own users, one event after another, so that at most one event per user
/// is unacknowledged.
const CLIENTS: usize = 6;
const USERS_A_CLIENT: usize = 3;

/// Number of initial observations of one user: more than a snapshot covers.
const LONG: usize = 4_100;
const LONG_USER: &str = "user-0-0";

/// An event of a user.
#[derive(Debug, Clone)]
enum Change {
    Observe(Value),
    /// Id of the observation, and its new label.
    Correct(String, f32),
    Retract(String),
    /// Attributes of the user, which are no event.
    Describe(Value),
    Erase,
}

impl Change {
    /// Sends the request; fails if no response arrives.
    fn send(&self, model: &ModelClient, user: &str) -> Result<Value, ureq::Error> {
        let node = model.node();
        let observation = |id: &str| model.path(&format!("observations/{id}"));
        let reply = match self {
            Self::Observe(body) => node.try_json("POST", &model.path("observe"), body),
            Self::Correct(id, label) => node.try_json("PUT", &observation(id), &json!({"label": label})),
            Self::Retract(id) => node.try_send("DELETE", &observation(id), "", ""),
            Self::Describe(attributes) => {
                node.try_json("PUT", &model.path(&format!("users/{user}")), &json!({"attributes": attributes}))
            }
            Self::Erase => node.try_send("DELETE", &model.path(&format!("users/{user}")), "", ""),
        };
        Ok(reply?.expect(200))
    }
}

/// The expected state of a user after the acknowledged events.
#[derive(Debug, Clone, Default)]
struct User {
    epoch: u64,
    /// Ids of the observations that are not retracted or erased.
    live: Vec<String>,
}

impl User {
    fn take(&mut self, change: &Change) {
        self.epoch += u64::from(!matches!(change, Change::Describe(_)));
        match change {
            Change::Observe(body) => self.live.push(body["observation_id"].as_str().unwrap().to_owned()),
            Change::Correct(..) | Change::Describe(_) => {}
            Change::Retract(id) => self.live.retain(|live| live != id),
            Change::Erase => self.live.clear(),
        }
    }

    fn next(&self, name: &str, id: &str, random: &mut ChaCha8Rng) -> Change {
        let live = self.live.choose(random).cloned();
        // Noise makes labels unique, so that no correction repeats the current label.
        let label = any_label(random) + random.random_range(0.0..0.1);
        match (random.random_range(0..20), live) {
            (0..5, Some(live)) => Change::Correct(live, label),
            (5..9, Some(live)) => Change::Retract(live),
            (9, Some(_)) if name != LONG_USER => Change::Erase,
            (10..12, _) => Change::Describe(json!({"age": random.random_range(0..100)})),
            (12, _) => Change::Describe(json!({})),
            _ => Change::Observe(json!({
                "user": name, "item": any_item(random), "label": label, "observation_id": id,
                "timestamp": 1_700_000_000_000_i64 + random.random_range(0..1_000_000),
            })),
        }
    }
}

enum News {
    Acknowledged(String, Change),
    /// No response arrived.
    Unknown(String, Change),
}

/// The data directory of a node that is killed, and a reference node that receives the acknowledged
/// events.
struct Harness {
    dir: tempfile::TempDir,
    users: BTreeMap<String, User>,
    reference: Node,
    _reference_dir: tempfile::TempDir,
}

impl Harness {
    fn start() -> Self {
        let (dir, reference_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let node = NodeProcess::serve(dir.path());
        let reference = Node::serve(reference_dir.path());
        let mut random = ChaCha8Rng::seed_from_u64(17);
        let observation = |n: usize| {
            json!({"user": LONG_USER, "item": any_item(&mut random), "label": any_label(&mut random),
                   "observation_id": format!("long-{n}"), "timestamp": 1_700_000_000_000_i64 + n as i64})
        };
        let long: Vec<Value> = (0..LONG).map(observation).collect();
        let body: String = long.iter().map(|observation| format!("{observation}\n")).collect();
        for client in [node.client(), reference.client()] {
            let films = create_model(&client, "films", 1);
            let taken = films.observe_lines(&body).unwrap().map(Result::unwrap).count();
            assert_eq!(taken, LONG);
        }
        node.kill_hard();
        let names =
            (0..CLIENTS).flat_map(|client| (0..USERS_A_CLIENT).map(move |user| format!("user-{client}-{user}")));
        let mut users: BTreeMap<String, User> = names.map(|name| (name, User::default())).collect();
        let live = (0..LONG).map(|n| format!("long-{n}")).collect();
        users.insert(LONG_USER.to_owned(), User { epoch: LONG as u64, live });
        Self { dir, users, reference, _reference_dir: reference_dir }
    }

    /// Lets clients write until the node has acknowledged `kill_after` events, and kills it.
    /// Returns the changes without a response, by user.
    fn write_until_killed(&mut self, round: usize, kill_after: usize) -> BTreeMap<String, Change> {
        let node = NodeProcess::serve(self.dir.path());
        let (sender, news) = mpsc::channel();
        let mut threads = Vec::new();
        for client in 0..CLIENTS {
            let of_client = |name: &String| name.starts_with(&format!("user-{client}-"));
            let own = self.users.iter().filter(|(name, _)| of_client(name));
            let own: BTreeMap<String, User> = own.map(|(name, user)| (name.clone(), user.clone())).collect();
            let (films, sender) = (node.model("films"), sender.clone());
            threads.push(thread::spawn(move || write_until_refused(&films, round * CLIENTS + client, own, &sender)));
        }
        drop(sender);
        let client = node.client();
        let recreating = thread::spawn(move || recreate_until_refused(&client, round as u64));
        let mut node = Some(node);
        let (mut acknowledged, mut unknown) = (0, BTreeMap::new());
        let films = self.reference.model("films");
        for news in news {
            match news {
                News::Acknowledged(name, change) => {
                    acknowledged += 1;
                    change.send(&films, &name).unwrap();
                    self.users.get_mut(&name).unwrap().take(&change);
                }
                News::Unknown(name, change) => drop(unknown.insert(name, change)),
            }
            if acknowledged >= kill_after
                && let Some(node) = node.take()
            {
                node.kill_hard();
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        recreating.join().unwrap();
        assert!(node.is_none(), "the clients gave up after {acknowledged} acknowledgements");
        unknown
    }

    /// Compares every user's state with that of the reference node.
    fn check(&mut self, round: usize, unknown: &BTreeMap<String, Change>) {
        let node = NodeProcess::serve(self.dir.path());
        let (films, reference) = (node.model("films"), self.reference.model("films"));
        for (name, change) in unknown {
            let user = self.users.get_mut(name).unwrap();
            if let Change::Describe(attributes) = change {
                let known = films.user(name, 0)["attributes"].clone();
                if known == *attributes || known.is_null() && *attributes == json!({}) {
                    change.send(&reference, name).unwrap();
                }
                continue;
            }
            let epoch = films.user(name, 0)["user_epoch"].as_u64().unwrap();
            assert!(epoch == user.epoch || epoch == user.epoch + 1, "epoch {epoch} of {name}: {change:?}");
            if epoch > user.epoch {
                change.send(&reference, name).unwrap();
                user.take(change);
            }
        }
        let second = node.client().get("/v1/models/second");
        let models = if second.status == 200 {
            let client = self.reference.client();
            // A model created now learns from the whole log.
            if client.get("/v1/models/second").status == 200 {
                assert_eq!(self.reference.model("second").delete("").status, 204);
            }
            let body = json!({"name": "second", "stream": "films", "dim": second.json()["dim"]});
            client.post("/v1/models", &body).expect(201);
            vec!["films", "second"]
        } else {
            vec!["films"]
        };
        for model in models {
            let (killed, reference) = (node.model(model), self.reference.model(model));
            for name in self.users.keys() {
                let [killed, reference] = [&killed, &reference].map(|model| model.user(name, 0));
                for field in ["user_epoch", "observations", "attributes", "state_hash", "weights"] {
                    assert_eq!(killed[field], reference[field], "{field} of {name} under {model} in round {round}");
                }
            }
        }
        node.kill_hard();
    }
}

fn write_until_refused(films: &ModelClient, seed: usize, mut own: BTreeMap<String, User>, news: &Sender<News>) {
    let mut random = ChaCha8Rng::seed_from_u64(seed as u64);
    let names: Vec<String> = own.keys().cloned().collect();
    for count in 0.. {
        let name = names.choose(&mut random).unwrap();
        let user = own.get_mut(name).unwrap();
        let change = user.next(name, &format!("{seed}-{count}"), &mut random);
        // A read may build a state at any time; its result is not checked here.
        let read = json!({"user": name, "item": any_item(&mut random)});
        let _unless_killed = films.node().try_json("POST", &films.path("predict"), &read);
        if change.send(films, name).is_err() {
            news.send(News::Unknown(name.clone(), change)).unwrap();
            return;
        }
        user.take(&change);
        news.send(News::Acknowledged(name.clone(), change)).unwrap();
    }
}

/// Repeatedly deletes a model of the stream and creates it again with another dimension.
fn recreate_until_refused(client: &Client, seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let second = client.model("second");
    loop {
        let body = json!({"name": "second", "stream": "films", "dim": random.random_range(2..6)});
        let read = json!({"user": LONG_USER, "item": any_item(&mut random)});
        let calls = [
            ("POST", "/v1/models".to_owned(), body.to_string()),
            ("POST", second.path("predict"), read.to_string()),
            ("DELETE", second.path(""), String::new()),
        ];
        for (method, path, body) in calls {
            match client.try_send(method, &path, "application/json", &body) {
                // The model may already exist or be deleted, depending on where the last round
                // stopped.
                Ok(reply) => assert!(reply.status < 500, "{method} {path}: {} {}", reply.status, reply.text),
                Err(_killed) => return,
            }
        }
    }
}

#[test]
fn the_state_after_a_kill_equals_a_store_of_the_acknowledged_events() {
    let rounds = std::env::var(ROUNDS_VARIABLE).map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let mut random = ChaCha8Rng::seed_from_u64(19);
    for first in (0..rounds).step_by(ROUNDS_A_DIRECTORY) {
        let mut harness = Harness::start();
        for round in first..rounds.min(first + ROUNDS_A_DIRECTORY) {
            let kill_after = random.random_range(KILLS_AFTER[round % KILLS_AFTER.len()].clone());
            let unknown = harness.write_until_killed(round, kill_after);
            harness.check(round, &unknown);
        }
    }
}
