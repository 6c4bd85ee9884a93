//! Promotion of versions: the gate before a switch, shadow mode, the switch itself, and the guard
//! after it.
//!
//! A candidate is compared with the active version on held-out records (`gate.rs`), then optionally
//! on live traffic (`shadow.rs`). A switch of versions is one atomic write followed by a pointer
//! swap in the predictor (`switch.rs`), in a cluster after the other nodes have
//! prepared the version too (`preparing.rs`). After it, the guard compares the new version with the
//! previous one and rolls back (`guard.rs`).

mod diff;
mod gate;
mod guard;
mod holdout;
mod preparing;
mod shadow;
mod switch;

use std::collections::HashMap;
use std::sync::Arc;

use celeris_model::ModelId;
use celeris_predictor::Predictor;
use celeris_storage::Storage;
use parking_lot::Mutex;

pub use self::diff::{DIFFERENT_ITEMS_MAX, ItemsOnlyIn, Moved, VersionDiff};
pub(crate) use self::gate::gate_event;
pub use self::guard::GuardStatus;
pub(crate) use self::holdout::Holdout;
pub(crate) use self::preparing::Preparing;
pub(crate) use self::switch::WARMING_MAX;

use self::guard::Guarded;
use crate::cluster::Peers;
use crate::monitoring::Monitoring;
use crate::registry::Registry;

/// Decides which version of a model serves.
pub struct Promotion {
    storage: Storage,
    predictor: Arc<Predictor>,
    registry: Arc<Registry>,
    monitoring: Arc<Monitoring>,
    /// Held while a switch is prepared and made. Locked before the changes of the registry.
    switching: Mutex<()>,
    /// Held during a comparison of two versions on request.
    comparing: Mutex<()>,
    /// The guards in progress.
    guards: Mutex<HashMap<ModelId, Guarded>>,
    /// The other nodes of a cluster.
    peers: Option<Peers>,
}

impl Promotion {
    pub(crate) fn new(
        storage: Storage,
        predictor: Arc<Predictor>,
        registry: Arc<Registry>,
        monitoring: Arc<Monitoring>,
        peers: Option<Peers>,
    ) -> Arc<Self> {
        Arc::new(Self {
            storage,
            predictor,
            registry,
            monitoring,
            switching: Mutex::default(),
            comparing: Mutex::default(),
            guards: Mutex::default(),
            peers,
        })
    }

    /// The status of a model's guard, if there is one.
    #[must_use]
    pub fn guard_status(&self, model: ModelId) -> Option<GuardStatus> {
        self.guards.lock().get(&model).map(|guarded| guarded.status)
    }

    /// Forgets the guard of a deleted model.
    pub(crate) fn forget(&self, model: ModelId) {
        self.guards.lock().remove(&model);
    }
}
