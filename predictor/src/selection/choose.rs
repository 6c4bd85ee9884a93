//! Chooses the arm or arms that answer a request to a selection.

use std::sync::Arc;

use celeris_bandits::selection::{Faded, Lot, Selected};
use celeris_model::{ModelName, UserEpoch, UserId, VersionId};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::PredictorError;
use crate::node::{Predictor, compute};
use crate::selection::Selection;

/// The arm or arms that answered for a selection.
#[derive(Debug, Clone, PartialEq)]
pub enum SelectedBy {
    Arm {
        arm: ModelName,
        propensity: f32,
    },
    /// All arms together.
    All {
        /// In the order of the configuration.
        arms: Vec<WeightedArm>,
        /// For each item, the share of the arms that agree with its score.
        confidence: Vec<f32>,
    },
}

/// An arm's weight in a combined answer.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedArm {
    pub arm: ModelName,
    /// Its weight; the weights of all arms add up to 1.
    pub weight: f64,
    pub version: VersionId,
}

/// The inputs of a choice.
pub(crate) struct Turn<'a> {
    pub(crate) user: &'a UserId,
    pub(crate) min_epoch: Option<UserEpoch>,
    pub(crate) segment: Option<&'a ModelName>,
    /// Determines the arm; `None` for a request without a decision, whose arm stays the same until the user's next
    /// event.
    pub(crate) seed: Option<u64>,
}

/// A hash of these parts as a number in [0, 1).
fn lot(selection: &ModelName, parts: [&[u8]; 2]) -> f64 {
    let mut bytes = Vec::with_capacity(128);
    for part in [selection.as_str().as_bytes()].into_iter().chain(parts) {
        bytes.extend_from_slice(part);
        // No UTF-8 text contains this byte, so different lists of parts give different bytes.
        bytes.push(0xff);
    }
    (xxh3_64(&bytes) >> 11) as f64 / (1_u64 << 53) as f64
}

impl Predictor {
    pub(crate) fn selection(&self, name: &ModelName) -> Option<Arc<Selection>> {
        self.selections.load().get(name).cloned()
    }

    /// Chooses the arm or arms, from durable records only.
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

    /// The user's epoch, once all events up to it are durable.
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
