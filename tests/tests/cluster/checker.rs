//! What must hold after a run, whatever happened in it.
//!
//! Every event of a user has an epoch, so the log says in which order the operations took effect. That this
//! order agrees with the times at which clients asked and were answered is linearizability for each
//! user; no search for an order is needed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use celeris_tests::{Client, Cluster, binary, sealed};
use serde_json::Value;

use crate::load::{Answer, Ask, MODEL, Operation};
use crate::replay::{self, Embedded, HISTORY};
use crate::run::within;

/// How long a copy may lack the last batches when the load has ended.
const COPIES_WITHIN: Duration = Duration::from_secs(30);

/// An event of a user, as the log has it.
#[derive(Debug)]
struct LoggedEvent {
    /// Otherwise it is a correction or a retraction, of which nothing was predicted.
    is_observation: bool,
    id: Option<String>,
    label: Option<f32>,
}

/// The events of one user by epoch.
type Events = BTreeMap<u64, LoggedEvent>;

/// Checks a run: the cluster is whole again and no client is at work. Stops the cluster, and compares
/// the copies.
#[track_caller]
pub fn check(mut cluster: Cluster, operations: &[Operation]) {
    let node = (0..cluster.len()).find(|node| cluster.runs(*node)).expect("a node runs");
    let mut by_user: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    operations.iter().for_each(|operation| by_user.entry(&operation.user).or_default().push(operation));
    for (user, operations) in &by_user {
        let events = events(&cluster.client(node), user);
        check_user(user, &events, operations);
    }
    let embedded = Embedded::fed_by(&cluster.client(node), by_user.keys().copied());
    check_states(&cluster, &embedded, by_user.keys().copied());
    let running: Vec<usize> = (0..cluster.len()).filter(|node| cluster.runs(*node)).collect();
    for node in &running {
        check_follows(&cluster.client(*node));
        let exit = cluster.terminate(*node);
        assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    }
    check_copies(&cluster, &running, operations);
}

/// A node follows all logs to their ends. Otherwise it would ask owners for what its copy lacks, and the
/// scores that it answers would say nothing of its copy.
#[track_caller]
fn check_follows(node: &Client) {
    let mut found = String::new();
    let follows = || {
        found = node.get("/readyz").text;
        let status = node.get("/v1/cluster").expect(200);
        // It is not known while a log changes its owner, as it does when a node stops.
        let lags = |log: &Value| log["lag"] != 0;
        found == "ready\n" && !status["status"]["logs"].as_array().expect("a list").iter().any(lags)
    };
    assert!(within(COPIES_WITHIN, follows), "{} lacks something: {found}", node.url());
}

fn events(node: &Client, user: &str) -> Events {
    let view = replay::view(node, user, HISTORY);
    let event = |event: &Value| {
        let logged = LoggedEvent {
            is_observation: event["predicted"].is_number(),
            id: event["observation_id"].as_str().map(str::to_owned),
            label: event["label"].as_f64().map(|label| label as f32),
        };
        (event["user_epoch"].as_u64().expect("every event has an epoch"), logged)
    };
    let events: Events = view["history"].as_array().expect("a list").iter().map(event).collect();
    let last = events.keys().next_back().copied().unwrap_or(0);
    assert!(view["user_epoch"].as_u64().is_some_and(|epoch| epoch >= last), "{user}: {}", view["user_epoch"]);
    events
}

/// The ids of the observations that were retracted.
fn retracted<'o>(operations: impl IntoIterator<Item = &'o Operation>) -> BTreeSet<&'o String> {
    let retracted = operations.into_iter().filter_map(|operation| match &operation.ask {
        Ask::Retract { id } => Some(id),
        _ => None,
    });
    retracted.collect()
}

/// The log of a user against what its clients did.
#[track_caller]
fn check_user(user: &str, events: &Events, operations: &[&Operation]) {
    let retracted = retracted(operations.iter().copied());
    // Each acknowledged observation is in the log exactly once, unless it was retracted; nothing else is.
    let mut logged: HashMap<&String, u64> = HashMap::new();
    for (epoch, event) in events {
        if event.is_observation {
            let id = event.id.as_ref().unwrap_or_else(|| panic!("{user}: an event without id at {epoch}"));
            assert!(logged.insert(id, *epoch).is_none(), "{user}: {id} is in the log twice");
        }
    }
    let observed = operations.iter().filter_map(|operation| match &operation.ask {
        Ask::Observe { id, .. } => Some(id),
        _ => None,
    });
    let observed: BTreeSet<&String> = observed.collect();
    for id in &observed {
        let is_retracted = retracted.contains(id);
        let of_id = |operation: &&&Operation| operation.ask.id() == Some(id);
        assert_eq!(
            logged.contains_key(id),
            !is_retracted,
            "{user}: {id}, retracted: {is_retracted}; {:#?}; {events:#?}",
            operations.iter().filter(of_id).collect::<Vec<_>>()
        );
    }
    assert!(logged.keys().all(|id| observed.contains(id)), "{user}: the log has what nobody sent");
    // Epochs that were answered are those of the log, each of one event.
    let mut taken: BTreeMap<u64, &Operation> = BTreeMap::new();
    for operation in operations {
        let Answer::Epoch(epoch) = operation.answer else { continue };
        if operation.ask == Ask::Read {
            continue;
        }
        if let Some(other) = taken.insert(epoch, operation) {
            panic!("{user}: epoch {epoch} of both {other:?} and {operation:?}");
        }
        if let Ask::Observe { id, .. } = &operation.ask
            && let Some(found) = logged.get(id)
        {
            assert_eq!(*found, epoch, "{user}: {id}");
        }
    }
    // The order of the epochs agrees with the times.
    for operation in operations {
        // The latest epoch at which it can have taken effect, and whether it took that one itself.
        let (latest, is_own) = match (operation.answer, &operation.ask) {
            (Answer::Epoch(epoch), ask) => (epoch, *ask != Ask::Read),
            (Answer::Before(epoch), _) => (epoch, false),
            (Answer::Done, _) => continue,
        };
        for earlier in operations {
            if earlier.returned >= operation.invoked {
                continue;
            }
            if let Answer::Epoch(before) = earlier.answer {
                let follows = if is_own { before < latest } else { before <= latest };
                assert!(follows, "{user}: {operation:?} was answered before the effect of {earlier:?}");
            }
        }
    }
    check_labels(user, events, operations);
}

/// An observation has the label of its last correction.
fn check_labels(user: &str, events: &Events, operations: &[&Operation]) {
    for event in events.values().filter(|event| event.is_observation) {
        let of_event = operations.iter().filter(|operation| match &operation.ask {
            Ask::Observe { id, .. } | Ask::Correct { id, .. } => Some(id) == event.id.as_ref(),
            _ => false,
        });
        // One client works for an observation, one operation after the other.
        let last = of_event
            .filter_map(|operation| match &operation.ask {
                Ask::Observe { label, .. } | Ask::Correct { label, .. } => Some((operation.invoked, *label)),
                _ => None,
            })
            .max_by_key(|(invoked, _)| *invoked);
        assert_eq!(event.label, last.map(|(_, label)| label), "{user}: {event:?}");
    }
}

/// All copies give the same scores and owners have the same states as an embedded node, to the bit.
fn check_states<'u>(cluster: &Cluster, embedded: &Embedded, users: impl Iterator<Item = &'u str>) {
    let running: Vec<usize> = (0..cluster.len()).filter(|node| cluster.runs(*node)).collect();
    for user in users {
        let (state, scores) = (embedded.state(user), embedded.scores(user));
        for node in &running {
            assert_eq!(replay::state(&cluster.client(*node), user), state, "{user}");
        }
        // A copy may lack the last batches for a moment.
        let mut found = Vec::new();
        let all_have = || {
            found = running.iter().map(|node| replay::scores(&cluster.client(*node), user)).collect();
            found.iter().all(|found| *found == scores)
        };
        if !within(COPIES_WITHIN, all_have) {
            panic!("{user}: the copies score {found:?}, an embedded node {scores:?}");
        }
    }
}

/// The exports of all copies are equal, and have every observation that was not retracted.
fn check_copies(cluster: &Cluster, nodes: &[usize], operations: &[Operation]) {
    let export = |node: &usize| {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let out = folder.path().join("export");
        let (data, out_text) = (cluster.data_dir(*node), out.display().to_string());
        let exported = binary::run(["export", "--data-dir", &data.display().to_string(), "--out", &out_text]);
        assert_eq!(exported.code, Some(0), "{}", exported.stderr);
        sealed::read(&out, MODEL).expect("the stream has observations").rows
    };
    let copies: Vec<_> = nodes.iter().map(export).collect();
    for copy in &copies[1..] {
        assert_eq!(copy, &copies[0], "the copies differ");
    }
    let retracted = retracted(operations);
    let observed = operations.iter().filter_map(|operation| match &operation.ask {
        Ask::Observe { id, .. } if !retracted.contains(id) => Some(id.clone()),
        _ => None,
    });
    let observed: BTreeSet<String> = observed.collect();
    let exported: Vec<String> = copies[0].values().map(|row| row.observation_id.clone()).collect();
    assert_eq!(exported.len(), observed.len(), "each once");
    assert_eq!(exported.into_iter().collect::<BTreeSet<_>>(), observed);
}
