//! Background work on recorded decisions: default rewards, and deletion of expired decisions.

mod default_rewards;
mod progress;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use celeris_model::{ModelId, Timestamp};
use celeris_predictor::Predictor;
use celeris_storage::Storage;
use parking_lot::Mutex;

use self::progress::Progress;
use crate::error::ManagerError;
use crate::registry::Registry;

/// Interval of the check for missing rewards.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Interval of the check for expired decisions.
const EXPIRE_EVERY: Duration = Duration::from_secs(10);

/// Writes default rewards and deletes expired decisions.
pub struct DecisionMaintenance {
    storage: Storage,
    predictor: Arc<Predictor>,
    registry: Arc<Registry>,
    /// Of a node in a cluster; one in the registry otherwise.
    progress: Option<Mutex<Progress>>,
}

impl DecisionMaintenance {
    pub(crate) fn new(storage: Storage, predictor: Arc<Predictor>, registry: Arc<Registry>) -> Self {
        let progress = registry.is_in_cluster().then(|| Mutex::new(Progress::new(storage.clone())));
        Self { storage, predictor, registry, progress }
    }

    /// Writes default rewards and deletes expired decisions until the task is cancelled.
    pub async fn run(self: Arc<Self>) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut expired: Option<Instant> = None;
        loop {
            looks.tick().await;
            if let Err(error) = self.give_default_rewards(SystemTime::now().into()).await {
                tracing::warn!(%error, "could not write default rewards; retrying");
            }
            if expired.is_none_or(|last| last.elapsed() >= EXPIRE_EVERY) {
                expired = Some(Instant::now());
                let deleted = self.expire_decisions(SystemTime::now().into());
                if let Err(error) = deleted {
                    tracing::warn!(%error, "could not delete expired decisions; retrying");
                }
            }
        }
    }

    /// Deletes the decisions that are older than the retention period.
    fn expire_decisions(&self, now: Timestamp) -> Result<(), ManagerError> {
        let kept = i64::try_from(self.storage.decisions().retention().as_millis()).unwrap_or(i64::MAX);
        let before = Timestamp(now.0.saturating_sub(kept));
        for model in self.storage.decisions().models()? {
            if let Err(error) = self.expire_of(model, before) {
                tracing::warn!(%model, %error, "could not delete the expired decisions of a model; retrying");
            }
        }
        Ok(())
    }

    fn expire_of(&self, model: ModelId, before: Timestamp) -> Result<(), ManagerError> {
        while self.storage.decisions().expire(model, before)? > 0 {}
        Ok(())
    }
}
