//! Explains and replays what was answered: scores, users, decisions and histories.

mod decision_replay;
mod replay;
mod user_view;
mod why;

use std::sync::Arc;

use celeris_storage::Storage;

use crate::error::PredictorError;
use crate::features::FeatureStore;
use crate::models::Models;
use crate::ranking::Scorer;
use crate::users::UserStore;
use crate::version::ServingVersion;

pub use decision_replay::{DecisionReplay, ReplayOutcome, ReplayedSlot, WhyNot, is_same};
pub use replay::{Replay, Replayed};
pub use user_view::UserView;
pub use why::{Because, PartOfScore, Why, WhyRequest};

/// Explains and replays what was answered.
pub struct Explainer {
    pub(crate) storage: Storage,
    pub(crate) models: Arc<Models>,
    pub(crate) users: Arc<UserStore>,
    pub(crate) features: Arc<FeatureStore>,
    pub(crate) scorer: Arc<Scorer>,
}

impl Explainer {
    /// A replay of histories of the stream of `version`'s model under `version`, which need not
    /// serve.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn replay<'v>(&self, version: &'v ServingVersion) -> Result<Replay<'v>, PredictorError> {
        let stream = self.models.serving(version)?.stream.clone();
        Ok(Replay::new(self.storage.clone(), self.features.untracked(), stream, version))
    }
}
