//! Background work on recorded decisions: default rewards, deletion of expired decisions, and lookup of the version
//! that made a decision.

pub(crate) mod default_rewards;
mod settings;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use celeris_model::{Decision, ModelId, Timestamp};
use celeris_predictor::ServingVersion;

pub use self::settings::DefaultReward;
use crate::error::ManagerError;
use crate::manager::Manager;

/// Interval of the check for missing rewards.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Interval of the check for expired decisions.
const EXPIRE_EVERY: Duration = Duration::from_secs(10);

impl Manager {
    /// Writes default rewards and deletes expired decisions until the task is cancelled.
    pub async fn keep_decisions(self: Arc<Self>) {
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
                let deleted = tokio::task::block_in_place(|| self.expire_decisions(SystemTime::now().into()));
                if let Err(error) = deleted {
                    tracing::warn!(%error, "could not delete expired decisions; retrying");
                }
            }
        }
    }

    /// Deletes the decisions that are older than the retention period.
    fn expire_decisions(&self, now: Timestamp) -> Result<(), ManagerError> {
        let kept = i64::try_from(self.storage.decision_retention().as_millis()).unwrap_or(i64::MAX);
        let before = Timestamp(now.0.saturating_sub(kept));
        for model in self.storage.models_with_decisions()? {
            if let Err(error) = self.expire_of(model, before) {
                tracing::warn!(%model, %error, "could not delete the expired decisions of a model; retrying");
            }
        }
        Ok(())
    }

    fn expire_of(&self, model: ModelId, before: Timestamp) -> Result<(), ManagerError> {
        while self.storage.expire_decisions(model, before)? > 0 {}
        Ok(())
    }

    /// Returns the version under which a decision was made, or `None` if it has been pruned.
    ///
    /// # Errors
    /// `UnknownModel`, `Storage`, or `Features` if the version cannot be read.
    pub fn version_of_decision(&self, decision: &Decision) -> Result<Option<Arc<ServingVersion>>, ManagerError> {
        let model = decision.scored_by();
        let active = self.predictor.active(model)?;
        if active.id == decision.version {
            return Ok(Some(active));
        }
        let record = self.model(model)?;
        match self.version(model, decision.version) {
            Ok(_) => Ok(Some(Arc::new(self.load(&record, decision.version)?))),
            Err(ManagerError::UnknownVersion { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
