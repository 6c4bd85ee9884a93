//! Point predictions with their uncertainty (Velox §2.5, `predict`).

use celeris_model::{Context, Estimate, ItemId, Loss, ModelName, UserEpoch, UserId, VersionId};

use super::{Ranker, ResolvedItems};
use crate::error::PredictorError;
use crate::features::missing_parts;
use crate::selection::SelectedBy;
use crate::users::{Subject, UserSnapshot, UserStatus};

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
    /// The circumstances.
    pub context: Option<Box<Context>>,
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
    /// The computed parts that no item had, since the context or the attributes lack what they read.
    pub missing: Vec<String>,
    /// For a selection, the arm or arms that answered.
    pub selected: Option<SelectedBy>,
}

impl Ranker {
    /// Whether the user's state under the active version is in memory.
    pub(crate) fn is_warm(&self, model: &ModelName, user: &UserId) -> bool {
        self.models.get(model).is_ok_and(|model| self.users.is_warm(&model, user))
    }

    /// Scores items by a model for a user. Unknown users are scored from the prior, unknown items
    /// from the average item.
    ///
    /// # Errors
    /// `UnknownModel`, `EpochNotReached` or `Storage`.
    pub(crate) async fn predict_by_model(&self, request: &PredictRequest) -> Result<Predictions, PredictorError> {
        let subject = self.users.subject(self.models.get(&request.model)?, &request.user);
        self.users.reach(&subject, request.min_epoch).await?;
        let version = &subject.version;
        let (id, loss) = (version.id, version.learning.loss());
        let answer = |epoch, cold, scores, missing| Predictions {
            version: id,
            loss,
            user_epoch: epoch,
            cold,
            scores,
            missing,
            selected: None,
        };
        if let Some((UserStatus { epoch, cold, pending, .. }, scores)) = self.scorer.recalled(&subject, &request.items)
        {
            self.users.settle(&subject, pending.as_ref()).await?;
            return Ok(answer(epoch, cold, scores, Vec::new()));
        }
        let snapshot = self.users.snapshot(&subject)?;
        let (scores, missing) = self.score(&subject, &snapshot, request)?;
        self.users.settle(&subject, snapshot.pending.as_ref()).await?;
        Ok(answer(snapshot.epoch, snapshot.model.observations() == 0, scores, missing))
    }

    fn score(
        &self,
        subject: &Subject,
        snapshot: &UserSnapshot,
        request: &PredictRequest,
    ) -> Result<(Vec<Scored>, Vec<String>), PredictorError> {
        let items = ResolvedItems::all(&subject.version, &request.items).in_context(request.context.as_deref());
        let resolved = self.scorer.resolve(subject, &items)?;
        let estimates = self.scorer.estimate(subject, snapshot, &items, &resolved);
        let scored =
            |(index, estimate)| Scored { item: items.item(index).clone(), estimate, known: resolved[index].known() };
        let scores = estimates.into_iter().enumerate().map(scored).collect();
        Ok((scores, missing_parts(&subject.version, &resolved)))
    }
}
