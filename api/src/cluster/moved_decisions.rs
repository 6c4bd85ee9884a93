//! Decisions for users who have moved to this node.
//!
//! A decision stays where it was made. When the user has moved, and a reward names the decision, it is copied from the
//! node that has it; without that a planned restart would cost the rewards of all that was shown before.

use std::time::{Duration, Instant, SystemTime};

use axum::body::Bytes;
use axum::http::Request;
use celeris_model::{Decision, DecisionId, ModelId, NodeName, PlacementRevision};
use celeris_storage::{Storage, StorageError};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hashlink::LruCache;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::forward::{Answered, Forwarder, whole};
use super::kept::Kept;
use super::router::Peer;

/// How long a reward waits for the other nodes.
const TIMEOUT: Duration = Duration::from_millis(500);

/// How many decisions are looked for at a time. A reward beyond that is not held up: its decision is unknown.
const AT_ONCE: usize = 64;

/// A decision that no node had is not looked for again for this time.
const UNKNOWN_FOR: Duration = Duration::from_secs(60);

/// The number of such decisions that are remembered.
const UNKNOWN_MAX: usize = 16_384;

/// The path of a decision at another node.
fn path(model: ModelId, id: &DecisionId) -> String {
    format!("/v1/cluster/decisions/{model}/{id}")
}

/// Looks for decisions at the other nodes.
pub struct MovedDecisions {
    permits: Semaphore,
    /// When they were found nowhere.
    unknown: Mutex<LruCache<(ModelId, DecisionId), Instant>>,
}

impl Default for MovedDecisions {
    fn default() -> Self {
        Self { permits: Semaphore::new(AT_ONCE), unknown: Mutex::new(LruCache::new(UNKNOWN_MAX)) }
    }
}

impl MovedDecisions {
    /// Copies a decision to this node, if it is not here and another node has it.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn fetch(
        &self,
        storage: &Storage,
        of: (ModelId, &DecisionId),
        nodes: (&Forwarder, &[Peer], (&NodeName, PlacementRevision)),
    ) -> Result<(), StorageError> {
        if !is_missing(storage, of)? || self.is_unknown(of) {
            return Ok(());
        }
        let Ok(_permit) = self.permits.try_acquire() else { return Ok(()) };
        match ask(of, nodes).await {
            Found::Decision(decision) => {
                // Counted by the store if it is refused.
                let _ = storage.decisions().record(*decision, None);
            }
            Found::Nowhere => {
                self.unknown.lock().insert((of.0, of.1.clone()), Instant::now());
            }
            Found::NotByAll => {}
        }
        Ok(())
    }

    fn is_unknown(&self, (model, id): (ModelId, &DecisionId)) -> bool {
        let looked = self.unknown.lock().get(&(model, id.clone())).copied();
        looked.is_some_and(|looked| looked.elapsed() < UNKNOWN_FOR)
    }
}

/// Whether a decision that may be kept somewhere is not here.
fn is_missing(storage: &Storage, (model, id): (ModelId, &DecisionId)) -> Result<bool, StorageError> {
    let decisions = storage.decisions();
    // Only ids of decisions are sent to other nodes.
    if id.made_at().is_none() || !id.as_str().bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
        return Ok(false);
    }
    if decisions.is_expired(id, SystemTime::now().into()) {
        return Ok(false);
    }
    Ok(decisions.unwritten(model, id).is_none() && decisions.get(model, id)?.is_none())
}

enum Found {
    Decision(Box<Decision>),
    Nowhere,
    /// Not all nodes have answered.
    NotByAll,
}

async fn ask(
    (model, id): (ModelId, &DecisionId),
    (forwarder, peers, from): (&Forwarder, &[Peer], (&NodeName, PlacementRevision)),
) -> Found {
    let Ok(request) = Request::get(path(model, id)).body(()) else { return Found::Nowhere };
    let request = Kept { parts: request.into_parts().0, body: Bytes::new() };
    let answers = peers.iter().map(|peer| timeout(TIMEOUT, forwarder.send(peer, from, &request)));
    let mut answers: FuturesUnordered<_> = answers.collect();
    let mut have_all_answered = true;
    while let Some(answer) = answers.next().await {
        let Ok(Ok(Answered::Reply(reply))) = answer else {
            have_all_answered = false;
            continue;
        };
        if !reply.status().is_success() {
            have_all_answered &= reply.status() == axum::http::StatusCode::NOT_FOUND;
            continue;
        }
        match serde_json::from_slice::<Decision>(&whole(reply.into_body()).await) {
            Ok(decision) if decision.model_id == model && decision.id == *id => {
                return Found::Decision(Box::new(decision));
            }
            Ok(_) => tracing::warn!(%id, "another node has answered with another decision"),
            Err(error) => tracing::warn!(%id, %error, "the decision of another node cannot be read"),
        }
    }
    if have_all_answered { Found::Nowhere } else { Found::NotByAll }
}
