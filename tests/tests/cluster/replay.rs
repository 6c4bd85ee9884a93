//! A node on its own that is fed with the log of a cluster.

use celeris_tests::{Client, Node, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::load::{ITEMS, MODEL};
use crate::run::create_model_at;

/// More events than any user has in a run.
pub const HISTORY: usize = 10_000;

/// A node without a cluster, which has learnt what is in the log after all corrections and retractions, of
/// each user in the order of the epochs.
pub struct Embedded {
    node: Node,
    _folder: TempDir,
}

/// What a user has learnt, whichever way.
#[derive(Debug, PartialEq)]
pub struct State {
    observations: Value,
    weights: Value,
    hash: Value,
}

impl Embedded {
    /// Feeds a node with what a node of the cluster has of these users.
    #[track_caller]
    pub fn fed_by<'u>(source: &Client, users: impl Iterator<Item = &'u str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::serve(folder.path());
        create_model_at(&node.client());
        let lines: Vec<String> = users.flat_map(|user| lines(source, user)).collect();
        let learnt = node.model(MODEL).observe_lines(&lines.concat()).unwrap().map(Result::unwrap);
        let learnt = learnt.inspect(|line| assert!(line["user_epoch"].is_u64(), "{line}")).count();
        assert_eq!(learnt, lines.len());
        Self { node, _folder: folder }
    }

    pub fn state(&self, user: &str) -> State {
        state(&self.node.client(), user)
    }

    pub fn scores(&self, user: &str) -> Value {
        scores(&self.node.client(), user)
    }
}

/// A user with this many events. Repeated while the shard has no owner: one that is moved when the servers elect a leader
/// has none for seconds.
#[track_caller]
pub fn view(node: &Client, user: &str, history: usize) -> Value {
    let path = format!("/v1/models/{MODEL}/users/{user}?history={history}");
    let reply = eventually("the user has an owner", || Some(node.get(&path)).filter(|reply| reply.status != 503));
    reply.expect(200)
}

/// The effective observations of a user, oldest first.
fn lines(source: &Client, user: &str) -> Vec<String> {
    let view = view(source, user, HISTORY);
    let events = view["history"].as_array().unwrap().iter().rev();
    let line = |event: &Value| {
        let mut observation = json!({"user": user});
        for field in ["item", "label", "weight", "timestamp", "observation_id"] {
            observation[field] = event[field].clone();
        }
        format!("{observation}\n")
    };
    events.filter(|event| event["predicted"].is_number()).map(line).collect()
}

pub fn state(node: &Client, user: &str) -> State {
    let view = view(node, user, 0);
    let [observations, weights, hash] = ["observations", "weights", "state_hash"].map(|field| view[field].clone());
    State { observations, weights, hash }
}

/// The scores of all items, from the copy that a node has.
pub fn scores(node: &Client, user: &str) -> Value {
    let items: Vec<String> = (0..ITEMS).map(|item| format!("item-{item}")).collect();
    let path = format!("/v1/models/{MODEL}/predict?staleness=1h");
    let reply = node.post(&path, &json!({"user": user, "items": items})).expect(200);
    json!([reply["scores"], reply["predictions"]])
}
