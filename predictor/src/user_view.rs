//! A user's state and history, for display.

use celeris_model::{ModelName, Record, Sequence, UserEpoch, UserId, VersionId};

use crate::error::PredictorError;
use crate::node::{Predictor, compute};

/// One user's state and history under a model.
#[derive(Debug, Clone, PartialEq)]
pub struct UserView {
    pub version: VersionId,
    pub user_epoch: UserEpoch,
    /// Number of observations that the state has learnt from.
    pub observations: u64,
    /// The weights `w_u`, length `dim`.
    pub weights: Vec<f64>,
    /// A hash of the whole state ([`celeris_model::UserModel::hash`]).
    pub state_hash: u64,
    /// The latest events, newest first.
    pub history: Vec<(Sequence, Record)>,
}

impl Predictor {
    /// A user's state, and at most `history_max` of the latest events.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub async fn user(&self, model: &ModelName, user: &UserId, history_max: usize) -> Result<UserView, PredictorError> {
        let subject = self.subject(model, user)?;
        let moment = compute(false, || self.moment(&subject))?;
        self.settle(&subject, moment.pending.as_ref()).await?;
        // Events that arrived since then are not part of this view.
        let stream = &subject.model.stream;
        let history = compute(false, || self.storage.latest_history(stream, user, moment.epoch, history_max))?;
        Ok(UserView {
            version: subject.version.id,
            user_epoch: moment.epoch,
            observations: moment.model.observations(),
            weights: moment.model.weights(),
            state_hash: moment.model.hash(),
            history,
        })
    }
}
