//! Point predictions with their uncertainty (Velox §2.5, `predict`).

use celeris_model::{Estimate, ItemId, Loss, ModelName, UserEpoch, UserId, VersionId};

use crate::error::PredictorError;
use crate::node::{Predictor, compute};
use crate::scoring::ResolvedItems;
use crate::selection::{SelectedBy, without_segment};
use crate::users::UserStatus;

#[derive(Debug, Clone, PartialEq)]
pub struct PredictRequest {
    pub model: ModelName,
    pub user: UserId,
    /// The items; at least one.
    pub items: Vec<ItemId>,
    /// The answer must reflect at least this epoch of the user.
    pub min_epoch: Option<UserEpoch>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    pub item: ItemId,
    pub estimate: Estimate,
    /// Whether the item is trained or described; otherwise the score is that of an average item.
    pub known: bool,
}

/// The scores of one user's items, in the order of the request.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    pub version: VersionId,
    /// The loss, which defines the unit of the scores.
    pub loss: Loss,
    /// The epoch of the user that the scores reflect.
    pub user_epoch: UserEpoch,
    /// Whether the user has no observations, so that the scores come from the prior.
    pub cold: bool,
    pub scores: Vec<Scored>,
    /// For a selection, the arm or arms that answered.
    pub selected: Option<SelectedBy>,
}

impl Predictor {
    /// Scores items for a user. Unknown users are scored from the prior, unknown items from the average item.
    ///
    /// # Errors
    /// `UnknownModel`, `NoItems`, `EpochNotReached` or `Storage`.
    pub async fn predict(&self, request: &PredictRequest) -> Result<Predictions, PredictorError> {
        self.predict_in(request, None).await
    }

    /// [`Predictor::predict`] in a segment, for a selection with a state for each segment.
    ///
    /// # Errors
    /// As [`Predictor::predict`], and `Segment`.
    pub async fn predict_in(
        &self,
        request: &PredictRequest,
        segment: Option<&ModelName>,
    ) -> Result<Predictions, PredictorError> {
        if request.items.is_empty() {
            return Err(PredictorError::NoItems);
        }
        match self.selection(&request.model) {
            Some(selection) => self.predict_among(&selection, request, segment).await,
            None => {
                without_segment(&request.model, segment)?;
                self.predict_by_model(request).await
            }
        }
    }

    pub(crate) async fn predict_by_model(&self, request: &PredictRequest) -> Result<Predictions, PredictorError> {
        let subject = self.subject(&request.model, &request.user)?;
        self.reach(&subject, request.min_epoch).await?;
        let version = &subject.version;
        let (id, loss) = (version.id, version.learning.loss());
        let answer =
            |epoch, cold, scores| Predictions { version: id, loss, user_epoch: epoch, cold, scores, selected: None };
        if let Some((UserStatus { epoch, cold, pending }, scores)) = self.recalled(&subject, &request.items) {
            self.settle(&subject, pending.as_ref()).await?;
            return Ok(answer(epoch, cold, scores));
        }
        let picked = ResolvedItems::all(version, &request.items);
        let dim = version.dim();
        let (moment, scores) = compute(self.is_quick(&subject, &picked, picked.len() * dim * dim), || {
            let moment = self.moment(&subject)?;
            let resolved = self.resolve_all(&subject, &picked)?;
            let estimates = self.estimate_all(&subject, &moment, &picked, &resolved);
            let scored = |(index, estimate)| Scored {
                item: picked.item(index).clone(),
                estimate,
                known: resolved[index].known(),
            };
            Ok::<_, PredictorError>((moment, estimates.into_iter().enumerate().map(scored).collect()))
        })?;
        self.settle(&subject, moment.pending.as_ref()).await?;
        Ok(answer(moment.epoch, moment.model.observations() == 0, scores))
    }
}
