//! Point predictions with their uncertainty (Velox §2.5, `predict`).

use std::sync::Arc;

use celeris_model::{Estimate, ItemId, ModelName, UserEpoch, UserId, UserModel, VersionId};

use crate::error::PredictorError;
use crate::features::Resolved;
use crate::node::{Predictor, Subject, compute};
use crate::predictions::{CachedScore, PredictionKey};
use crate::users::Snapshot;

/// How many multiplications a request may take on an async thread: about 500 microseconds.
const QUICK_MULTIPLICATIONS_MAX: usize = 1 << 20;

/// How many items from outside the trained table a request may look up on an async thread.
const QUICK_LOOKUPS_MAX: usize = 16;

/// Which items to score for which user.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictRequest {
    /// The model.
    pub model: ModelName,
    /// The user.
    pub user: UserId,
    /// The items; at least one.
    pub items: Vec<ItemId>,
    /// The answer must reflect at least that many of the user's events.
    pub min_epoch: Option<UserEpoch>,
}

/// One scored item.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// The item.
    pub item: ItemId,
    /// Its score and uncertainty.
    pub estimate: Estimate,
    /// Whether the model has trained on the item or anybody has told of it; else it is scored as an average one.
    pub known: bool,
}

/// The scores of one user's items, in the order asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// The version that scored.
    pub version: VersionId,
    /// How many of the user's events the scores reflect.
    pub user_epoch: UserEpoch,
    /// Whether nothing is known of the user, so that the prior answers.
    pub cold: bool,
    /// The scores.
    pub scores: Vec<Scored>,
}

impl Predictor {
    /// Scores items for a user. Unknown users are scored from the prior, unknown items from the average item.
    ///
    /// # Errors
    /// `UnknownModel`, `NoItems`, `EpochNotReached` or `Storage`.
    pub async fn predict(&self, request: &PredictRequest) -> Result<Predictions, PredictorError> {
        if request.items.is_empty() {
            return Err(PredictorError::NoItems);
        }
        let subject = self.subject(&request.model, &request.user)?;
        self.reach(&subject, request.min_epoch).await?;
        let (snapshot, scores) = compute(self.is_quick(&subject, &request.items), || {
            let snapshot = self.snapshot(&subject)?;
            let scores = self.score(&subject, &snapshot, &request.items)?;
            Ok::<_, PredictorError>((snapshot, scores))
        })?;
        self.settle(&subject, &snapshot).await?;
        let cold = snapshot.model.observations() == 0;
        Ok(Predictions { version: subject.version.id, user_epoch: snapshot.epoch, cold, scores })
    }

    pub(crate) fn is_quick(&self, subject: &Subject, items: &[ItemId]) -> bool {
        let dim = subject.version.dim();
        let outside = || items.iter().filter(|item| subject.version.theta.get(item).is_none()).count();
        items.len() * dim * dim <= QUICK_MULTIPLICATIONS_MAX
            && subject.entry.is_warm(&subject.version)
            && outside() <= QUICK_LOOKUPS_MAX
    }

    pub(crate) fn score(
        &self,
        subject: &Subject,
        snapshot: &Snapshot,
        items: &[ItemId],
    ) -> Result<Vec<Scored>, PredictorError> {
        let cached = subject.version.dim() >= self.prediction_dim_min;
        items
            .iter()
            .map(|item| {
                let key = cached.then(|| self.prediction_key(subject, snapshot, item));
                let score = self.score_one(subject, &snapshot.model, item, key)?;
                Ok(Scored { item: item.clone(), estimate: score.estimate, known: score.known })
            })
            .collect()
    }

    fn score_one(
        &self,
        subject: &Subject,
        model: &Arc<UserModel>,
        item: &ItemId,
        key: Option<PredictionKey>,
    ) -> Result<CachedScore, PredictorError> {
        if let Some(found) = key.as_ref().and_then(|key| self.predictions.get(key)) {
            return Ok(found);
        }
        let resolved: Resolved = self.features.resolve(&subject.version, &subject.model.stream, item)?;
        let estimate = model.estimate(&subject.version.learning, resolved.offset(), resolved.features());
        let score = CachedScore { estimate, known: resolved.known() };
        if let Some(key) = key {
            self.predictions.insert(key, score);
        }
        Ok(score)
    }

    fn prediction_key(&self, subject: &Subject, snapshot: &Snapshot, item: &ItemId) -> PredictionKey {
        PredictionKey {
            model: subject.model.name.clone(),
            version: subject.version.id,
            user: subject.key.user.clone(),
            epoch: snapshot.epoch,
            item: item.clone(),
            revision: self.features.revision(item),
        }
    }
}
