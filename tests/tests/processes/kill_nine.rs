//! SIGKILL under a load of observations: nothing acknowledged is lost, and nothing is stored twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use celeris_tests::fixtures::{any_item, any_label, create_model};
use celeris_tests::{ModelClient, NodeProcess, binary, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Acknowledgements after which the node is killed, in turn.
const KILLS_AFTER: [Range<usize>; 3] = [20..120, 150..400, 300..600];

/// Number of kills, unless [`ROUNDS_VARIABLE`] is set.
const ROUNDS: usize = 3;

/// For long manual runs: `CELERIS_KILL_ROUNDS=200 cargo test --release --workspace --test processes
/// kill_nine -- --nocapture`.
const ROUNDS_VARIABLE: &str = "CELERIS_KILL_ROUNDS";

/// Rounds per data directory. Every round reads everything back, so long runs use several
/// directories.
const ROUNDS_A_DIRECTORY: usize = 10;

/// How a client sends its observations.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    /// One observation per request, with an id from the client.
    Named,
    /// One observation per request, with an id from the node.
    Unnamed,
    /// Many observations per request, with ids from the client.
    Lines,
}

const CLIENTS: [Style; 8] = [
    Style::Named,
    Style::Named,
    Style::Named,
    Style::Named,
    Style::Named,
    Style::Unnamed,
    Style::Unnamed,
    Style::Lines,
];

/// Observations in one request of JSON lines.
const LINES: usize = 60;

/// An observation and its response.
#[derive(Debug, Clone)]
struct Acknowledged {
    sent: Value,
    reply: Value,
}

/// Results of the requests of all clients.
#[derive(Default)]
struct Ledger {
    /// By observation id.
    acknowledged: BTreeMap<String, Acknowledged>,
    /// Sent without a response, by the id that the client chose.
    unanswered: BTreeMap<String, Value>,
    /// Number of observations sent without an id and without a response.
    unanswered_unnamed: usize,
}

enum News {
    Acknowledged(Acknowledged),
    Unanswered(Value),
}

#[test]
fn every_acknowledged_observation_survives_exactly_once() {
    let rounds = std::env::var(ROUNDS_VARIABLE).map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let mut random = ChaCha8Rng::seed_from_u64(9);
    let mut recoveries = Vec::new();
    for first in (0..rounds).step_by(ROUNDS_A_DIRECTORY) {
        kill_repeatedly(first..rounds.min(first + ROUNDS_A_DIRECTORY), &mut random, &mut recoveries);
    }
    recoveries.sort();
    eprintln!("killed {rounds} times; ready again within {:?} at most", recoveries.last().unwrap());
}

fn kill_repeatedly(rounds: Range<usize>, random: &mut ChaCha8Rng, recoveries: &mut Vec<Duration>) {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::default();
    {
        let node = NodeProcess::serve(dir.path());
        create_model(&node.client(), "films", 1);
        node.kill_hard();
    }
    for round in rounds {
        let node = NodeProcess::serve(dir.path());
        let kill_after = KILLS_AFTER[round % KILLS_AFTER.len()].clone();
        observe_until_killed(node, round, random.random_range(kill_after), &mut ledger);
        let killed = Instant::now();
        let node = NodeProcess::serve(dir.path());
        recoveries.push(killed.elapsed());
        let films = node.model("films");
        assert_there_once(&films, &ledger);
        send_again(&films, &mut ledger);
        assert_there_once(&films, &ledger);
        node.kill_hard();
    }
    let node = NodeProcess::serve(dir.path());
    assert_there_once(&node.model("films"), &ledger);
}

/// Observes from all clients until the node has acknowledged `kill_after` observations, kills it,
/// and updates `ledger`.
fn observe_until_killed(node: NodeProcess, round: usize, kill_after: usize, ledger: &mut Ledger) {
    let (sender, news) = mpsc::channel();
    let clients: Vec<_> = CLIENTS
        .into_iter()
        .enumerate()
        .map(|(client, style)| {
            let (films, sender) = (node.model("films"), sender.clone());
            thread::spawn(move || observe_until_refused(&films, round, client, style, &sender))
        })
        .collect();
    drop(sender);
    let mut node = Some(node);
    let mut acknowledged = 0;
    for news in news {
        match news {
            News::Acknowledged(one) => {
                acknowledged += 1;
                let id = one.reply["observation_id"].as_str().unwrap().to_owned();
                assert_eq!(one.reply["duplicate"], false, "{one:?}");
                assert!(ledger.acknowledged.insert(id, one).is_none(), "an id was given twice");
            }
            News::Unanswered(sent) => match sent["observation_id"].as_str() {
                Some(id) => drop(ledger.unanswered.insert(id.to_owned(), sent)),
                None => ledger.unanswered_unnamed += 1,
            },
        }
        if acknowledged >= kill_after
            && let Some(node) = node.take()
        {
            node.kill_hard();
        }
    }
    for client in clients {
        client.join().unwrap();
    }
    assert!(node.is_none(), "the clients gave up after {acknowledged} acknowledgements, before the node was killed");
}

fn observe_until_refused(films: &ModelClient, round: usize, client: usize, style: Style, news: &Sender<News>) {
    let mut random = ChaCha8Rng::seed_from_u64((round * CLIENTS.len() + client) as u64);
    for count in 0.. {
        let observations: Vec<Value> = (0..if style == Style::Lines { LINES } else { 1 })
            .map(|line| {
                // Clients write to a shared user, so that acknowledgements race, and to their own
                // users.
                let user = match random.random_range(0..4) {
                    0 => "everybody".to_owned(),
                    own => format!("user-{client}-{own}"),
                };
                let mut observation =
                    json!({"user": user, "item": any_item(&mut random), "label": any_label(&mut random)});
                if style != Style::Unnamed {
                    observation["observation_id"] = format!("{round}-{client}-{count}-{line}").into();
                }
                observation
            })
            .collect();
        let replies = match style {
            Style::Lines => replies_to_lines(films, &observations),
            Style::Named | Style::Unnamed => {
                films.try_observe(&observations[0]).map(|reply| reply.expect(200)).into_iter().collect()
            }
        };
        let answered = replies.len();
        for (sent, reply) in observations.iter().cloned().zip(replies) {
            news.send(News::Acknowledged(Acknowledged { sent, reply })).unwrap();
        }
        for sent in &observations[answered..] {
            news.send(News::Unanswered(sent.clone())).unwrap();
        }
        if answered < observations.len() {
            return;
        }
    }
}

fn replies_to_lines(films: &ModelClient, observations: &[Value]) -> Vec<Value> {
    let body: String = observations.iter().map(|observation| format!("{observation}\n")).collect();
    let Ok(lines) = films.observe_lines(&body) else { return Vec::new() };
    lines.map_while(Result::ok).collect()
}

/// Compares every user's history with the responses that clients received.
fn assert_there_once(films: &ModelClient, ledger: &Ledger) {
    let named = |one: &Acknowledged| one.sent["user"].as_str().unwrap().to_owned();
    let mut users: BTreeSet<String> = ledger.acknowledged.values().map(named).collect();
    users.extend(ledger.unanswered.values().map(|sent| sent["user"].as_str().unwrap().to_owned()));
    let mut there: HashMap<String, Value> = HashMap::new();
    let mut unnamed = 0;
    for user in users {
        let state = films.user(&user, 10_000);
        let history = state["history"].as_array().unwrap();
        let epochs: Vec<u64> = history.iter().map(|event| event["user_epoch"].as_u64().unwrap()).collect();
        let contiguous: Vec<u64> = (1..=epochs.len() as u64).rev().collect();
        assert_eq!(epochs, contiguous, "the epochs of {user}");
        assert_eq!(state["user_epoch"], epochs.len(), "{user}");
        assert_eq!(state["observations"], epochs.len(), "{user}");
        for event in history {
            let id = event["observation_id"].as_str().unwrap().to_owned();
            if !ledger.acknowledged.contains_key(&id) && !ledger.unanswered.contains_key(&id) {
                unnamed += 1;
            }
            let mut event = event.clone();
            event["user"] = user.clone().into();
            let other = there.insert(id.clone(), event);
            assert!(other.is_none(), "{id} is there twice");
        }
    }
    for (id, one) in &ledger.acknowledged {
        let event = there.get(id).unwrap_or_else(|| panic!("{id} was acknowledged and is lost"));
        for field in ["user", "item", "label"] {
            assert_eq!(event[field], one.sent[field], "{field} of {id}");
        }
        assert_eq!(event["user_epoch"], one.reply["user_epoch"], "{id}");
    }
    assert!(unnamed <= ledger.unanswered_unnamed, "{unnamed} observations are there that nobody sent");
}

/// Sends every observation with a client's id again: an acknowledged one is a duplicate with its
/// first result, and an unanswered one is stored afterwards, whether or not it was stored before.
fn send_again(films: &ModelClient, ledger: &mut Ledger) {
    // A client cannot send ids that the node has generated.
    let named = |one: &&Acknowledged| one.sent["observation_id"].is_string();
    let first: Vec<Acknowledged> = ledger.acknowledged.values().filter(named).cloned().collect();
    let body: String = first.iter().map(|one| format!("{}\n", one.sent)).collect();
    let replies: Vec<Value> = films.observe_lines(&body).unwrap().map(Result::unwrap).collect();
    assert_eq!(replies.len(), first.len());
    for (one, again) in first.iter().zip(&replies) {
        assert_eq!(again["duplicate"], true, "{again}");
        for field in ["observation_id", "user_epoch", "sequence"] {
            assert_eq!(again[field], one.reply[field], "{field} of {again}");
        }
    }
    for (id, sent) in std::mem::take(&mut ledger.unanswered) {
        let mut reply = films.observe(&sent);
        // It may have been stored before; now it is acknowledged.
        assert!(reply["duplicate"].is_boolean(), "{reply}");
        reply["duplicate"] = false.into();
        ledger.acknowledged.insert(id, Acknowledged { sent, reply });
    }
}

#[test]
fn a_node_killed_while_it_creates_its_store_is_started_again() {
    // The database comes first; a moment later the store is complete.
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let mut command = binary::command();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path());
        let mut child = command.spawn().unwrap();
        eventually("the database", || dir.path().join("db").exists().then_some(()));
        child.kill().unwrap();
        child.wait().unwrap();
        NodeProcess::serve(dir.path()).client().get("/v1/models").expect(200);
    }
}
