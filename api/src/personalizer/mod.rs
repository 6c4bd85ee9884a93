//! Requests in the form of Azure Personalizer, for applications that use its SDKs.
//!
//! `address.rs` maps their paths and keys to those of this API, `errors.rs` maps problems to errors of that form,
//! `features.rs` reads features, and `vectors.rs` makes factors of them. The handlers are in `routes/personalizer/`.

mod address;
mod errors;
mod features;
mod vectors;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use celeris_model::{DecisionId, EventId, ItemId, ModelId};
use hashlink::LruCache;
use parking_lot::Mutex;

pub use self::address::{Addressed, KEY_HEADER};
pub use self::errors::{Failure, in_their_form};
pub use self::features::{Circumstances, Fields, attributes, flattened};
pub use self::vectors::factors_of;
use crate::config;
use crate::error::ApiError;

/// The number of actions of which is remembered that they are described.
const DESCRIBED_MAX: usize = 1 << 16;

/// For how long that is remembered.
const DESCRIBED_FOR: Duration = Duration::from_secs(600);

/// How long an action whose features change keeps those that it was described with.
const CHANGES_AFTER: Duration = Duration::from_secs(60);

/// What an event id that the node makes ends with, so that it is distinguished from those of clients.
const OF_NODE: &str = "-0";

/// The event id of a request without one.
#[must_use]
pub fn event_of(decision: &DecisionId) -> EventId {
    EventId::new(format!("{decision}{OF_NODE}")).expect("ids of decisions are UUIDs")
}

/// The decision in an event id that a node has made.
#[must_use]
pub fn decision_in(event: &EventId) -> Option<DecisionId> {
    let decision = DecisionId::new(event.as_str().strip_suffix(OF_NODE)?).ok()?;
    decision.partition().map(|_| decision)
}

/// The events that are being ranked.
type InProgress = Arc<Mutex<HashSet<(ModelId, EventId)>>>;

/// What a node needs for requests in the form of Personalizer.
pub struct Personalizer {
    settings: config::Personalizer,
    /// When actions were described last, and by which features.
    described: Mutex<LruCache<(ModelId, ItemId), (u64, Instant)>>,
    in_progress: InProgress,
}

/// While it exists, no other request ranks its event.
#[derive(Debug)]
pub struct Ranking {
    in_progress: InProgress,
    event: (ModelId, EventId),
}

impl Drop for Ranking {
    fn drop(&mut self) {
        self.in_progress.lock().remove(&self.event);
    }
}

impl Personalizer {
    #[must_use]
    pub fn new(settings: config::Personalizer) -> Self {
        Self { settings, described: Mutex::new(LruCache::new(DESCRIBED_MAX)), in_progress: InProgress::default() }
    }

    #[must_use]
    pub fn settings(&self) -> &config::Personalizer {
        &self.settings
    }

    /// The user and the context of a request.
    #[must_use]
    pub fn circumstances(&self, features: &[serde_json::Map<String, serde_json::Value>]) -> Circumstances {
        Circumstances::of(features, &self.settings)
    }

    /// Begins to rank an event.
    ///
    /// # Errors
    /// 409 if another request is ranking it.
    pub fn begin(&self, model: ModelId, event: &EventId) -> Result<Ranking, ApiError> {
        let key = (model, event.clone());
        if !self.in_progress.lock().insert(key.clone()) {
            return Err(ApiError::conflict(format!("event {event} is being ranked by another request; send it again")));
        }
        Ok(Ranking { in_progress: Arc::clone(&self.in_progress), event: key })
    }

    /// Whether an action is described, by these features or by others of a short while ago.
    #[must_use]
    pub fn is_described(&self, model: ModelId, item: &ItemId, digest: u64) -> bool {
        let found = self.described.lock().get(&(model, item.clone())).copied();
        found.is_some_and(|(of, at)| at.elapsed() < if of == digest { DESCRIBED_FOR } else { CHANGES_AFTER })
    }

    /// Notes that an action is described.
    pub fn note_described(&self, model: ModelId, item: &ItemId, digest: u64) {
        self.described.lock().insert((model, item.clone()), (digest, Instant::now()));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn ids_of_the_node_name_their_decision_and_those_of_clients_do_not() {
        let decision = DecisionId::new("01930b1c-6d4e-7c50-9d1a-0123456789ab").unwrap();
        assert_eq!(decision_in(&event_of(&decision)), Some(decision.clone()));
        for text in [decision.as_str(), "e-0", "-0", "75269AD0-BFEE-4598-8196-C57383D38E10-0"] {
            assert_eq!(decision_in(&EventId::new(text).unwrap()), None, "{text}");
        }
    }

    #[test]
    fn an_event_is_ranked_by_one_request_at_a_time() {
        let personalizer = Personalizer::new(config::Personalizer::default());
        let event = EventId::new("e").unwrap();
        let ranking = personalizer.begin(ModelId(1), &event).unwrap();
        assert_eq!(personalizer.begin(ModelId(1), &event).unwrap_err().status(), 409);
        assert!(personalizer.begin(ModelId(2), &event).is_ok());
        drop(ranking);
        assert!(personalizer.begin(ModelId(1), &event).is_ok());
    }
}
