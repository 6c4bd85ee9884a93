//! What becomes of decisions after they were made: a default reward where none has come, deletion when they are old, and
//! the version to replay them under.

pub(crate) mod default_rewards;
mod rows;
mod settings;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use celeris_model::{Decision, ModelId, Timestamp};
use celeris_predictor::ServingVersion;

pub(crate) use self::rows::DecisionsWriter;
pub use self::settings::DefaultReward;
use crate::error::ManagerError;
use crate::manager::Manager;

/// How often it is looked for rewards that have not come.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often it is looked for decisions that are too old.
const EXPIRE_EVERY: Duration = Duration::from_secs(10);

impl Manager {
    /// Gives default rewards and deletes old decisions, for as long as the node runs.
    pub async fn keep_decisions(self: Arc<Self>) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut expired: Option<Instant> = None;
        loop {
            looks.tick().await;
            if let Err(error) = self.give_default_rewards(SystemTime::now().into()).await {
                tracing::warn!(%error, "default rewards are late; they are tried again");
            }
            if expired.is_none_or(|last| last.elapsed() >= EXPIRE_EVERY) {
                expired = Some(Instant::now());
                let deleted = tokio::task::block_in_place(|| self.expire_decisions(SystemTime::now().into()));
                if let Err(error) = deleted {
                    tracing::warn!(%error, "old decisions could not be deleted; it is tried again");
                }
            }
        }
    }

    /// Deletes the decisions that are older than decisions are kept.
    fn expire_decisions(&self, now: Timestamp) -> Result<(), ManagerError> {
        let kept = i64::try_from(self.storage.decision_retention().as_millis()).unwrap_or(i64::MAX);
        let before = Timestamp(now.0.saturating_sub(kept));
        for model in self.storage.models_with_decisions()? {
            if let Err(error) = self.expire_of(model, before) {
                tracing::warn!(%model, %error, "old decisions of a model could not be deleted; it is tried again");
            }
        }
        Ok(())
    }

    fn expire_of(&self, model: ModelId, before: Timestamp) -> Result<(), ManagerError> {
        while self.storage.expire_decisions(model, before)? > 0 {}
        Ok(())
    }

    /// The version under which a decision was made; `None` where it is kept no more.
    ///
    /// # Errors
    /// `UnknownModel`, `Storage`, or `Features` where it cannot be read.
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
