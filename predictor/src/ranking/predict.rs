//! Point predictions with their uncertainty (Velox §2.5, `predict`).

use celeris_model::{Estimate, ItemId, Loss, ModelName, UserEpoch, UserId, VersionId};

use super::{Ranker, ResolvedItems};
use crate::compute::compute;
use crate::error::PredictorError;
use crate::selection::SelectedBy;
use crate::users::UserStatus;

#[derive(Debug, Clone, PartialEq)]
pub struct PredictRequest {
    pub model: ModelName,
    pub user: UserId,
    /// The items; at least one.
    pub items: Vec<ItemId>,
    /// The answer must reflect at least this epoch of the user.
    pub min_epoch: Option<UserEpoch>,
    /// The segment, for a selection with a state for each segment.
    pub segment: Option<ModelName>,
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

impl Ranker {
    /// Scores items by a model for a user. Unknown users are scored from the prior, unknown items from the average item.
    ///
    /// # Errors
    /// `UnknownModel`, `EpochNotReached` or `Storage`.
    pub(crate) async fn predict_by_model(&self, request: &PredictRequest) -> Result<Predictions, PredictorError> {
        let context = self.users.context(self.models.get(&request.model)?, &request.user);
        self.users.reach(&context, request.min_epoch).await?;
        let version = &context.version;
        let (id, loss) = (version.id, version.learning.loss());
        let answer =
            |epoch, cold, scores| Predictions { version: id, loss, user_epoch: epoch, cold, scores, selected: None };
        if let Some((UserStatus { epoch, cold, pending }, scores)) = self.scorer.recalled(&context, &request.items) {
            self.users.settle(&context, pending.as_ref()).await?;
            return Ok(answer(epoch, cold, scores));
        }
        let items = ResolvedItems::all(version, &request.items);
        let dim = version.dim();
        let (snapshot, scores) = compute(items.is_quick(&context, items.len() * dim * dim), || {
            let snapshot = self.users.snapshot(&context)?;
            let resolved = self.scorer.resolve(&context, &items)?;
            let estimates = self.scorer.estimate(&context, &snapshot, &items, &resolved);
            let scored = |(index, estimate)| Scored {
                item: items.item(index).clone(),
                estimate,
                known: resolved[index].known(),
            };
            Ok::<_, PredictorError>((snapshot, estimates.into_iter().enumerate().map(scored).collect()))
        })?;
        self.users.settle(&context, snapshot.pending.as_ref()).await?;
        Ok(answer(snapshot.epoch, snapshot.model.observations() == 0, scores))
    }
}
