//! What changes users: observations, default rewards, corrections, retractions, erasures, and attributes.

mod amend;
mod default_rewards;
mod describe;
mod learnt_features;
mod observe;

use std::sync::Arc;

use celeris_model::Observation;
use celeris_storage::{Storage, StorageError};
use tokio::sync::mpsc;

use crate::accepted_times::AcceptedTimes;
use crate::attribution::Attribution;
use crate::catalog::ItemCatalog;
use crate::error::PredictorError;
use crate::features::FeatureStore;
use crate::loss::LossEvent;
use crate::models::Models;
use crate::users::UserStore;

pub use amend::{Amended, Erased};
pub use default_rewards::DefaultReward;
pub use observe::{Observed, PendingObservation};

/// Appends events of users to the log and learns from them.
pub struct Ingest {
    pub(crate) storage: Storage,
    pub(crate) models: Arc<Models>,
    pub(crate) users: Arc<UserStore>,
    pub(crate) features: Arc<FeatureStore>,
    pub(crate) catalog: Arc<ItemCatalog>,
    pub(crate) attribution: Arc<Attribution>,
    pub(crate) losses: mpsc::Sender<LossEvent>,
    pub(crate) accepted_times: AcceptedTimes,
}

impl Ingest {
    /// Sends a loss event; drops and counts it if the channel is full.
    fn send_loss(&self, event: LossEvent) {
        if self.losses.try_send(event).is_err() {
            metrics::counter!("celeris_loss_events_dropped_total").increment(1);
        }
    }
}

/// Rejects ids that are reserved for the node.
fn check_id(observation: &Observation) -> Result<(), PredictorError> {
    match &observation.observation_id {
        Some(id) if id.is_reserved() => Err(StorageError::ReservedId { id: id.as_str().to_owned() }.into()),
        _ => Ok(()),
    }
}
