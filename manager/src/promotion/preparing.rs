//! The first phase of a switch in a cluster: every node prepares the version.
//!
//! The node that leads names the version in a document of the registry. The others fetch, load and
//! warm it, and report it as ready; then it is activated on all of them by one commit. A node that
//! is late serves the version before until it is ready. A node that begins to lead withdraws the
//! versions that are named but not active: the switch did not happen, as after a restart of a node
//! on its own.

use std::time::{Duration, Instant};

use celeris_model::{ModelId, ModelName, VersionId};
use celeris_storage::{RegistryBatch, StorageError};
use serde::{Deserialize, Serialize};

use super::Promotion;
use crate::cluster::{Peers, readiness_of};
use crate::error::ManagerError;
use crate::leadership::Term;
use crate::registry::{ModelRecord, prepared_key, prepared_keys};

/// Interval at which the reports of the other nodes are read, which come twice a second.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The version that a model is about to be switched to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Preparing {
    pub(crate) model: ModelName,
    pub(crate) version: VersionId,
}

/// A preparation in progress; withdrawn when it is dropped before its end.
pub(super) struct Preparation<'p> {
    /// `None` for a node on its own.
    shared: Option<Shared<'p>>,
}

struct Shared<'p> {
    promotion: &'p Promotion,
    peers: &'p Peers,
    term: &'p Term,
    model: ModelId,
    version: VersionId,
}

impl Promotion {
    /// Has the other nodes prepare a version.
    ///
    /// The caller guarantees that it holds `switching`.
    pub(super) fn begin_preparing<'p>(
        &'p self,
        (record, term): (&ModelRecord, &'p Term),
        version: VersionId,
    ) -> Result<Preparation<'p>, ManagerError> {
        let Some(peers) = &self.peers else { return Ok(Preparation { shared: None }) };
        let _changing = self.registry.lock_changes_in(term)?;
        let model = self.registry.current(record)?.config.name;
        let mut batch = RegistryBatch::new();
        batch.put(prepared_key(record.id)?, &Preparing { model, version })?;
        self.storage.registry().commit(&batch)?;
        Ok(Preparation { shared: Some(Shared { promotion: self, peers, term, model: record.id, version }) })
    }

    /// Withdraws the versions that were prepared but not activated before this node led.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) fn withdraw_prepared(&self) -> Result<(), StorageError> {
        let registry = self.storage.registry();
        let mut batch = RegistryBatch::new();
        let left = registry.keys(&prepared_keys()?)?;
        for key in &left {
            tracing::info!(%key, "a switch of versions was interrupted and is withdrawn");
            batch.delete(key.clone());
        }
        if left.is_empty() { Ok(()) } else { registry.commit(&batch) }
    }
}

impl Preparation<'_> {
    /// Waits until all live nodes are ready, or the time for it is over.
    ///
    /// # Errors
    /// `Storage(NotOwner)` once the term is over.
    pub(super) fn wait(&self) -> Result<(), ManagerError> {
        let Some(Shared { peers, term, model, version, .. }) = &self.shared else { return Ok(()) };
        let deadline = Instant::now() + peers.ready_within;
        let wanted = readiness_of((*model, *version));
        loop {
            term.check()?;
            let lagging = peers.readiness.lagging(&wanted);
            if lagging.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let nodes = lagging.iter().map(|node| node.as_str()).collect::<Vec<_>>().join(", ");
                tracing::warn!(%model, %version, nodes, "nodes are not ready in time; they serve the version before");
                metrics::counter!("celeris_switch_laggards_total").increment(lagging.len() as u64);
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Adds the end of the preparation to the write that activates the version.
    pub(super) fn end_with(&self, batch: &mut RegistryBatch) -> Result<(), StorageError> {
        if let Some(Shared { model, .. }) = &self.shared {
            batch.delete(prepared_key(*model)?);
        }
        Ok(())
    }

    /// The write was made.
    pub(super) fn ended(mut self) {
        self.shared = None;
    }
}

impl Drop for Preparation<'_> {
    fn drop(&mut self) {
        let Some(Shared { promotion, term, model, version, .. }) = self.shared.take() else { return };
        let withdrawn = promotion.registry.lock_changes_in(term).and_then(|_changing| {
            let mut batch = RegistryBatch::new();
            batch.delete(prepared_key(model)?);
            Ok(promotion.storage.registry().commit(&batch)?)
        });
        if let Err(error) = withdrawn {
            // The next node that leads withdraws it.
            tracing::info!(%model, %version, %error, "a version that is not activated stays prepared");
        }
    }
}
