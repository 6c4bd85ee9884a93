//! A user's state and history, for display.

use celeris_model::{ModelName, Record, Sequence, UserEpoch, UserId, VersionId};
use serde_json::{Map, Value};

use super::Explainer;
use crate::error::PredictorError;

/// One user's state and history under a model.
#[derive(Debug, Clone, PartialEq)]
pub struct UserView {
    pub version: VersionId,
    pub user_epoch: UserEpoch,
    /// The attributes given by a caller; `None` if there are none.
    pub attributes: Option<Map<String, Value>>,
    /// Number of observations that the state has learnt from.
    pub observations: u64,
    /// The weights `w_u`, length `dim`.
    pub weights: Vec<f64>,
    /// A hash of the whole state ([`celeris_model::UserModel::hash`]).
    pub state_hash: u64,
    /// The latest events, newest first.
    pub history: Vec<(Sequence, Record)>,
}

impl Explainer {
    /// A user's state, and at most `history_max` of the latest events.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub async fn user(&self, model: &ModelName, user: &UserId, history_max: usize) -> Result<UserView, PredictorError> {
        let subject = self.users.subject(self.models.get(model)?, user);
        self.users.load(&subject).await?;
        let (snapshot, attributes) = self.users.with_state(&subject, |state, sources| {
            Ok((state.snapshot(&subject.version, sources)?, state.attributes().cloned()))
        })?;
        self.users.settle(&subject, snapshot.pending.as_ref()).await?;
        // Events that arrived since then are not part of this view.
        let stream = &subject.model.stream;
        let history = self.storage.histories().latest(stream, user, snapshot.epoch, history_max)?;
        Ok(UserView {
            version: subject.version.id,
            user_epoch: snapshot.epoch,
            attributes,
            observations: snapshot.model.observations(),
            weights: snapshot.model.weights(),
            state_hash: snapshot.model.hash(),
            history,
        })
    }
}
