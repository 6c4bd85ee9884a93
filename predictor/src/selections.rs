//! Chooses the arm or arms that answer a request to a selection.

use std::sync::Arc;

use celeris_bandits::selection::{Faded, Lot, Selected, State};
use celeris_model::{ModelName, UserEpoch, UserId};
use celeris_storage::Storage;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::PredictorError;
use crate::models::Models;
use crate::selection::{Selection, SelectionReport, UserViews, report};
use crate::users::UserStore;

/// The states of the serving selections.
pub struct Selections {
    storage: Storage,
    models: Arc<Models>,
    users: Arc<UserStore>,
    /// States of selections with one for each user.
    user_views: UserViews,
}

/// The inputs of a choice.
pub(crate) struct Turn<'a> {
    pub(crate) user: &'a UserId,
    pub(crate) min_epoch: Option<UserEpoch>,
    pub(crate) segment: Option<&'a ModelName>,
    /// Determines the arm; `None` for a request without a decision, whose arm stays the same until
    /// the user's next event.
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

impl Selections {
    pub(crate) fn new(storage: Storage, models: Arc<Models>, users: Arc<UserStore>, bytes_max: usize) -> Self {
        Self { storage, models, users, user_views: UserViews::new(bytes_max) }
    }

    /// Chooses the arm or arms, from durable records only.
    pub(crate) async fn choose(&self, selection: &Selection, turn: &Turn<'_>) -> Result<Selected, PredictorError> {
        let rule = &selection.rule;
        let group = rule.group(turn.segment)?;
        let epoch = self.durable_epoch(selection, turn.user, turn.min_epoch).await?;
        let faded = self.faded(selection, turn.user, epoch, group)?;
        let drawn = match turn.seed {
            Some(seed) => lot(&rule.name, [b"seed", &seed.to_le_bytes()]),
            None => lot(&rule.name, [turn.user.as_str().as_bytes(), &epoch.0.to_le_bytes()]),
        };
        let lot = Lot { request: drawn, user: lot(&rule.name, [turn.user.as_str().as_bytes(), b"user"]) };
        Ok(rule.strategy.strategy().select(&faded, lot))
    }

    async fn durable_epoch(
        &self,
        selection: &Selection,
        user: &UserId,
        min_epoch: Option<UserEpoch>,
    ) -> Result<UserEpoch, PredictorError> {
        let subject = self.users.subject(self.models.get(&selection.rule.arms[0])?, user);
        self.users.durable_epoch(&subject, min_epoch).await
    }

    fn faded(
        &self,
        selection: &Selection,
        user: &UserId,
        epoch: UserEpoch,
        group: usize,
    ) -> Result<Faded, PredictorError> {
        let (rule, storage) = (&selection.rule, &self.storage);
        match &selection.shared {
            Some(view) => view.faded(rule, storage, group),
            None => {
                let view = self.user_views.of(selection, user);
                self.user_views.look(&view, (rule, storage), epoch, |state| state.faded(group))
            }
        }
    }

    /// A selection's state: for this user if each user has one, in this segment if each segment has
    /// one.
    ///
    /// # Errors
    /// `UnknownModel` if there is no such selection, `Segment`, `UserMissing` or `Storage`.
    pub async fn report(
        &self,
        name: &ModelName,
        user: Option<&UserId>,
        segment: Option<&ModelName>,
    ) -> Result<SelectionReport, PredictorError> {
        let unknown = || PredictorError::UnknownModel { model: name.clone() };
        let selection = self.models.selection(name).ok_or_else(unknown)?;
        let rule = &selection.rule;
        let group = rule.group(segment)?;
        let report = |state: &State| report(rule, state, group);
        match &selection.shared {
            Some(view) => view.look(rule, &self.storage, report),
            None => {
                let user = user.ok_or_else(|| PredictorError::UserMissing { model: name.clone() })?;
                let epoch = self.durable_epoch(&selection, user, None).await?;
                let view = self.user_views.of(&selection, user);
                self.user_views.look(&view, (rule, &self.storage), epoch, report)
            }
        }
    }

    /// Reads new log records into all selections with a shared state, so that requests need not.
    /// Blocks on the disk.
    ///
    /// # Errors
    /// `Storage`.
    pub fn follow_log(&self) -> Result<(), PredictorError> {
        for selection in self.models.selections() {
            if let Some(view) = &selection.shared {
                view.catch_up(&selection.rule, &self.storage)?;
            }
        }
        Ok(())
    }

    /// Stores the shared states of which a start would have to read much of the log, or that
    /// reflect records amended since they were stored. Blocks on the disk.
    ///
    /// # Errors
    /// `Storage`; the previous ones remain.
    pub fn store_if_due(&self) -> Result<(), PredictorError> {
        for selection in self.models.selections() {
            if let Some(view) = &selection.shared {
                view.store_if_due(&selection.rule, &self.storage)?;
            }
        }
        Ok(())
    }

    /// Stores all shared states, so that the next start need not read the log. Blocks on the disk.
    ///
    /// # Errors
    /// `Storage`; the previous ones remain.
    pub fn store(&self) -> Result<(), PredictorError> {
        self.follow_log()?;
        for selection in self.models.selections() {
            if let Some(view) = &selection.shared {
                view.store(&selection.rule, &self.storage)?;
            }
        }
        Ok(())
    }

    /// Drops the states of a user.
    pub(crate) fn purge(&self, user: &UserId) {
        self.user_views.purge(user);
    }
}
