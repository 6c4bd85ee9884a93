//! Clients that observe, correct, retract and read, and write down what they did and when.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use celeris_tests::{Client, DEADLINE};
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Clients; each works one request at a time.
const CLIENTS: u64 = 6;

/// Users; every client works for all of them.
const USERS: u32 = 24;

pub const ITEMS: u32 = 40;

pub const MODEL: &str = "films";

/// What was asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// An observation with this id and label.
    Observe { id: String, label: f32 },
    /// The observation with this id has this label.
    Correct { id: String, label: f32 },
    /// The observation with this id is retracted.
    Retract { id: String },
    /// The latest epoch.
    Read,
}

impl Ask {
    /// The observation that it is about.
    pub fn id(&self) -> Option<&String> {
        match self {
            Self::Observe { id, .. } | Self::Correct { id, .. } | Self::Retract { id } => Some(id),
            Self::Read => None,
        }
    }
}

/// What was answered in the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Answer {
    /// It took this epoch; or, of a read, the epoch that was read.
    Epoch(u64),
    /// It had been done already, at or before this epoch: an earlier request whose answer was lost.
    Before(u64),
    /// It had been done already, it is not known when.
    Done,
}

/// One operation: a request, repeated until its outcome was known.
#[derive(Debug, Clone)]
pub struct Operation {
    pub user: String,
    pub ask: Ask,
    pub answer: Answer,
    /// Between its first request and its last answer.
    pub invoked: Instant,
    pub returned: Instant,
}

/// The addresses of the nodes, by number; empty while a node does not run.
pub type Addresses = Arc<Mutex<Vec<Option<Client>>>>;

/// Clients at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    errors: Arc<Mutex<Vec<String>>>,
    clients: Vec<JoinHandle<Vec<Operation>>>,
}

impl Load {
    /// Starts the clients. The model exists.
    pub fn start(addresses: &Addresses, seed: u64) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let errors = Arc::<Mutex<Vec<String>>>::default();
        let start = |client| {
            let worker = Worker {
                client,
                addresses: Arc::clone(addresses),
                rng: ChaCha8Rng::seed_from_u64(seed ^ (client + 1)),
                stop: Arc::clone(&stop),
                answered: Arc::clone(&answered),
                errors: Arc::clone(&errors),
                known: Vec::new(),
            };
            thread::spawn(move || worker.run())
        };
        let clients = (0..CLIENTS).map(start).collect();
        Self { stop, answered, errors, clients }
    }

    /// The answers 500 so far.
    pub fn errors(&self) -> Vec<String> {
        self.errors.lock().expect("no thread panics with the errors").clone()
    }

    /// The number of operations that were answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Lets the operations under way end, and returns all.
    pub fn stop(self) -> Vec<Operation> {
        self.stop.store(true, Ordering::Relaxed);
        let operations = self.clients.into_iter().map(|client| client.join().expect("a client ends with its answers"));
        operations.flatten().collect()
    }
}

struct Worker {
    client: u64,
    addresses: Addresses,
    rng: ChaCha8Rng,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    errors: Arc<Mutex<Vec<String>>>,
    /// Users and ids of observations of this client that were not retracted.
    known: Vec<(String, String)>,
}

impl Worker {
    fn run(mut self) -> Vec<Operation> {
        let mut operations = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let number = operations.len();
            let (user, ask) = self.next(number);
            let invoked = Instant::now();
            let answer = self.ask_until_known(&user, &ask);
            self.answered.fetch_add(1, Ordering::Relaxed);
            operations.push(Operation { user, ask, answer, invoked, returned: Instant::now() });
        }
        operations
    }

    fn next(&mut self, number: usize) -> (String, Ask) {
        let pick = self.rng.random_range(0..20);
        if pick < 4 && !self.known.is_empty() {
            let index = self.rng.random_range(0..self.known.len());
            if pick < 2 {
                let (user, id) = self.known[index].clone();
                return (user, Ask::Correct { id, label: self.rng.random_range(1..6) as f32 });
            }
            let (user, id) = self.known.swap_remove(index);
            return (user, Ask::Retract { id });
        }
        let user = format!("user-{}", self.rng.random_range(0..USERS));
        if pick < 8 {
            return (user, Ask::Read);
        }
        let id = format!("{}-{number}", self.client);
        self.known.push((user.clone(), id.clone()));
        (user, Ask::Observe { id, label: self.rng.random_range(1..6) as f32 })
    }

    /// Sends the request to any node until one says what became of it.
    fn ask_until_known(&mut self, user: &str, ask: &Ask) -> Answer {
        let item = format!("item-{}", self.rng.random_range(0..ITEMS));
        let started = Instant::now();
        let mut last = String::new();
        while started.elapsed() < DEADLINE {
            let nodes: Vec<Client> = {
                let addresses = self.addresses.lock().expect("no thread panics with the addresses");
                addresses.iter().flatten().cloned().collect()
            };
            let Some(node) = nodes.choose(&mut self.rng) else {
                thread::sleep(Duration::from_millis(50));
                continue;
            };
            match attempt(node, user, ask, &item) {
                Ok(answer) => return answer,
                Err(problem) => {
                    if problem.starts_with("500") {
                        self.errors.lock().expect("no thread panics with the errors").push(problem.clone());
                    }
                    last = problem;
                    thread::sleep(Duration::from_millis(20));
                }
            }
        }
        panic!("no answer to {ask:?} of {user} within {} seconds; the last was {last}", DEADLINE.as_secs());
    }
}

/// Sends a request once; an error if its outcome is not known.
fn attempt(node: &Client, user: &str, ask: &Ask, item: &str) -> Result<Answer, String> {
    let path = |call: &str| format!("/v1/models/{MODEL}/{call}");
    let reply = match ask {
        Ask::Observe { id, label } => {
            let body = json!({"user": user, "item": item, "label": label, "observation_id": id});
            node.try_json("POST", &path("observe"), &body)
        }
        Ask::Correct { id, label } => {
            node.try_json("PUT", &path(&format!("observations/{id}?user={user}")), &json!({ "label": label }))
        }
        Ask::Retract { id } => node.try_send("DELETE", &path(&format!("observations/{id}?user={user}")), "", ""),
        Ask::Read => {
            let body = json!({"user": user, "items": [item], "consistency": "latest"});
            node.try_json("POST", &path("predict"), &body)
        }
    };
    let reply = reply.map_err(|error| error.to_string())?;
    match (reply.status, ask) {
        (200, _) => {
            let body: Value = reply.json();
            let epoch = body["user_epoch"].as_u64().ok_or_else(|| reply.text.clone())?;
            Ok(if body["duplicate"] == true { Answer::Before(epoch) } else { Answer::Epoch(epoch) })
        }
        // A repetition of a retraction whose answer was lost.
        (410, Ask::Retract { .. }) => Ok(Answer::Done),
        // The cluster has no owner, or no quorum, or the answer of another node was lost, or a node has failed.
        (500 | 502..=504, _) => Err(format!("{}: {}", reply.status, reply.text)),
        (status, _) => panic!("{ask:?} of {user}: {status}: {}", reply.text),
    }
}
