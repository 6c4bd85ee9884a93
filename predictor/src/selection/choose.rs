//! Who answers a request of a selection.

use std::sync::Arc;

use celeris_bandits::selection::{Faded, Lot, Selected};
use celeris_model::{ModelName, UserEpoch, UserId, VersionId};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::PredictorError;
use crate::node::{Predictor, compute};
use crate::selection::Selection;

/// Who answered for a selection.
#[derive(Debug, Clone, PartialEq)]
pub enum SelectedBy {
    /// One arm.
    Arm {
        /// The arm.
        arm: ModelName,
        /// The probability with which it was drawn.
        propensity: f32,
    },
    /// All arms together.
    All {
        /// In the order of the configuration.
        arms: Vec<WeightedArm>,
        /// Of each answered item, the share of the arms that agree with its score.
        confidence: Vec<f32>,
    },
}

/// An arm's part in an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedArm {
    /// The arm.
    pub arm: ModelName,
    /// Its weight; those of all arms add up to 1.
    pub weight: f64,
    /// The version that it answered with.
    pub version: VersionId,
}

/// Whose turn it is.
pub(crate) struct Turn<'a> {
    pub(crate) user: &'a UserId,
    pub(crate) min_epoch: Option<UserEpoch>,
    pub(crate) segment: Option<&'a ModelName>,
    /// Draws the arm; `None` for a request that leaves no decision, whose arm stays until the user's next event.
    pub(crate) seed: Option<u64>,
}

/// A number from 0 up to, without, 1 that is drawn by these bytes.
fn lot(selection: &ModelName, parts: [&[u8]; 2]) -> f64 {
    let mut bytes = Vec::with_capacity(128);
    for part in [selection.as_str().as_bytes()].into_iter().chain(parts) {
        bytes.extend_from_slice(part);
        // No text holds this byte, so no two lists of parts run together.
        bytes.push(0xff);
    }
    (xxh3_64(&bytes) >> 11) as f64 / (1_u64 << 53) as f64
}

impl Predictor {
    pub(crate) fn selection(&self, name: &ModelName) -> Option<Arc<Selection>> {
        self.selections.load().get(name).cloned()
    }

    /// Who answers, by what is durable now.
    pub(crate) async fn choose(&self, selection: &Selection, turn: &Turn<'_>) -> Result<Selected, PredictorError> {
        let rule = &selection.rule;
        let group = rule.group(turn.segment)?;
        let epoch = self.durable_epoch(&rule.arms[0], turn.user, turn.min_epoch).await?;
        let faded = self.faded(selection, turn.user, epoch, group)?;
        let drawn = match turn.seed {
            Some(seed) => lot(&rule.name, [b"seed", &seed.to_le_bytes()]),
            None => lot(&rule.name, [turn.user.as_str().as_bytes(), &epoch.0.to_le_bytes()]),
        };
        let lot = Lot { request: drawn, user: lot(&rule.name, [turn.user.as_str().as_bytes(), b"user"]) };
        Ok(rule.strategy.strategy().select(&faded, lot))
    }

    pub(crate) fn faded(
        &self,
        selection: &Selection,
        user: &UserId,
        epoch: UserEpoch,
        group: usize,
    ) -> Result<Faded, PredictorError> {
        let (rule, storage) = (&selection.rule, &self.storage);
        match &selection.stream {
            Some(view) => compute(view.is_current(rule, storage), || view.faded(rule, storage, group)),
            None => {
                let view = self.user_views.of(selection, user);
                compute(view.1.is_current(epoch), || {
                    self.user_views.look(&view, (rule, storage), epoch, |state| state.faded(group))
                })
            }
        }
    }

    /// The user's epoch, once everything up to it is durable.
    pub(crate) async fn durable_epoch(
        &self,
        model: &ModelName,
        user: &UserId,
        min_epoch: Option<UserEpoch>,
    ) -> Result<UserEpoch, PredictorError> {
        let subject = self.subject(model, user)?;
        self.reach(&subject, min_epoch).await?;
        let (epoch, pending) = compute(subject.entry.is_warm(&subject.version), || {
            let mut user = subject.entry.lock(&self.sources(&subject.key), &subject.version)?;
            let state = user.state();
            Ok::<_, PredictorError>((state.epoch, state.pending()))
        })?;
        self.update_weight(&subject.key);
        if let Some(ticket) = pending
            && let Err(error) = ticket.durable().await
        {
            subject.entry.discard();
            return Err(error.into());
        }
        Ok(epoch)
    }
}
