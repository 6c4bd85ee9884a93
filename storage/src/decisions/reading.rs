//! Reads decisions, and deletes those of a user and those that have expired.

use std::ops::ControlFlow;
use std::sync::Arc;

use celeris_model::{Decision, DecisionId, ModelId, Timestamp, UserId};

use super::{Decisions, ErasingDecisions, Shared, scrubbing, stored};
use crate::database::{Access, Batch, Column, Durability, KeyRange, after_prefix};
use crate::error::StorageError;
use crate::faults;
use crate::layout::envelope::{corrupt, sealed, unseal};
use crate::layout::keys::{self, KeyReader};

/// Maximum number of decisions that one step of a deletion removes.
pub(super) const EXPIRED_AT_ONCE: usize = 1024;

/// A range of one model's decisions, by the time in their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRange {
    pub model: ModelId,
    /// Exclusive lower bound; `None` starts at the first decision.
    pub after: Option<DecisionId>,
    /// Exclusive upper bound.
    pub before: Timestamp,
}

impl DecisionRange {
    fn keys(&self) -> KeyRange {
        // Generated ids have the same length, so they sort by time; other texts sort elsewhere.
        let first = self.after.clone().unwrap_or_else(|| DecisionId::first_at(Timestamp(0)));
        let end = DecisionId::first_at(self.before);
        let mut from = keys::decision(self.model, &first);
        if self.after.is_some() {
            from.push(0);
        }
        KeyRange { from, to: keys::decision(self.model, &end) }
    }
}

impl Decisions {
    /// One decision, written or not.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn get(&self, model: ModelId, id: &DecisionId) -> Result<Option<Arc<Decision>>, StorageError> {
        if self.unwritten(model, id).is_some() {
            // Its candidates may not be computed yet.
            self.flush();
        }
        let key = keys::decision(model, id);
        let Some(value) = self.shared.database.get(Column::Decisions, &key)? else { return Ok(None) };
        Ok(Some(Arc::new(stored::decode(&key, &value)?)))
    }

    /// One decision if it is still in memory, possibly with only the number of its candidates; does
    /// not access the disk.
    #[must_use]
    pub fn unwritten(&self, model: ModelId, id: &DecisionId) -> Option<Arc<Decision>> {
        self.shared.unwritten.lock().get(id).filter(|decision| decision.model_id == model).cloned()
    }

    /// Whether the decision is of a user who is being erased, or has been erased since it was made.
    #[must_use]
    pub fn is_erased(&self, decision: &Decision) -> bool {
        self.shared.erased_users.holds(&decision.model_id, &decision.user, decision.user_epoch)
    }

    /// Visits the decisions of a model before `before`, the latest first, until `visit` breaks.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn scan_back(
        &self,
        model: ModelId,
        before: Option<&DecisionId>,
        mut visit: impl FnMut(Decision) -> ControlFlow<()>,
    ) -> Result<(), StorageError> {
        self.flush();
        let mut range = KeyRange::prefix(keys::of_model(model));
        if let Some(before) = before {
            range.to = keys::decision(model, before);
        }
        self.shared.database.scan_back(Column::Decisions, range, |key, value| Ok(visit(stored::decode(key, value)?)))
    }

    /// [`Decisions::scan_back`] for the decisions for one user.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn scan_back_for(
        &self,
        (model, user): (ModelId, &UserId),
        before: Option<&DecisionId>,
        mut visit: impl FnMut(Decision) -> ControlFlow<()>,
    ) -> Result<(), StorageError> {
        self.flush();
        let mut range = KeyRange::prefix(keys::all_decided_for(model, user));
        let prefix = range.from.len();
        if let Some(before) = before {
            range.to = keys::decided_for(model, user, before);
        }
        let database = &self.shared.database;
        database.scan_back(Column::DecidedFor, range, |key, _| {
            let key = keys::decision(model, &decided(key, prefix)?);
            // It may have been deleted since the scan began.
            match database.get(Column::Decisions, &key)? {
                Some(value) => Ok(visit(stored::decode(&key, &value)?)),
                None => Ok(ControlFlow::Continue(())),
            }
        })
    }

    /// Visits the decisions of a model, in the order of their ids, until `visit` breaks.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn scan<B>(
        &self,
        model: ModelId,
        visit: impl FnMut(Decision) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, StorageError> {
        self.scan_keys(KeyRange::prefix(keys::of_model(model)), visit)
    }

    /// Visits the decisions of a range in the order of their time, until `visit` breaks.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn scan_in<B>(
        &self,
        range: &DecisionRange,
        visit: impl FnMut(Decision) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, StorageError> {
        self.scan_keys(range.keys(), visit)
    }

    fn scan_keys<B>(
        &self,
        range: KeyRange,
        mut visit: impl FnMut(Decision) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, StorageError> {
        self.flush();
        let mut outcome = ControlFlow::Continue(());
        self.shared.database.scan(Column::Decisions, range, Access::Sweep, |key, value| {
            outcome = visit(stored::decode(key, value)?);
            Ok(if outcome.is_break() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(outcome)
    }

    /// Deletes a user's decisions under these models. While the returned value exists, no decisions
    /// of the user are written; after [`ErasingDecisions::finish`], none that were made before the
    /// erasure, by requests in progress. Returns once the deletion is durable and the bytes are
    /// gone from the sorted files; blocks the thread while the models' decisions are rewritten.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`; some decisions may remain then, and the call can be
    /// repeated.
    pub fn erase(&self, models: &[ModelId], user: &UserId) -> Result<ErasingDecisions, StorageError> {
        // The first flush writes and counts queued decisions. After `begin` no more are written,
        // and the second flush drains the writer.
        self.flush();
        let mut erasing = ErasingDecisions::begin(&self.shared, models, user);
        self.flush();
        let database = &self.shared.database;
        faults::reach_in(database.path(), "erase");
        let _erasing = self.shared.erasing.lock();
        let mut touched = Vec::new();
        {
            let _changing = self.shared.changing.lock();
            let mut batch = database.batch();
            for &model in models {
                let of_model = self.shared.erase_from(&mut batch, model, user)?;
                if of_model > 0 {
                    self.shared.count_erased(&mut batch, model, of_model)?;
                    scrubbing::note(&mut batch, model);
                }
                if of_model > 0 || self.shared.is_unscrubbed(model)? {
                    touched.push(model);
                }
                erasing.erased += of_model;
            }
            if touched.is_empty() {
                return Ok(erasing);
            }
            batch.commit(Durability::Synced)?;
        }
        self.shared.scrub(&touched)?;
        Ok(erasing)
    }

    /// Deletes some of a model's decisions made before `before`, the oldest first, with their events, and returns
    /// their number: 0 once there are none left. The disk space is reclaimed by RocksDB's
    /// compactions. Blocks the thread.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn expire(&self, model: ModelId, before: Timestamp) -> Result<u64, StorageError> {
        let range = DecisionRange { model, after: None, before }.keys();
        let database = &self.shared.database;
        let _changing = self.shared.changing.lock();
        let mut batch = database.batch();
        let mut expired = 0;
        database.scan(Column::Decisions, range, Access::Sweep, |key, value| {
            let decision = stored::decode(key, value)?;
            batch.delete(Column::Decisions, key);
            batch.delete(Column::DecidedFor, &keys::decided_for(decision.model_id, &decision.user, &decision.id));
            expired += 1;
            Ok(if expired < EXPIRED_AT_ONCE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        let events = self.shared.expire_events(&mut batch, model, before)?;
        if expired + events > 0 {
            batch.commit(Durability::Buffered)?;
        }
        self.shared.counters.expire(expired as u64);
        Ok((expired + events) as u64)
    }

    /// Total number of a model's decisions that have been erased with their users: if it has
    /// changed, copies elsewhere have to be checked.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn erased(&self, model: ModelId) -> Result<u64, StorageError> {
        self.shared.erased(model)
    }

    /// The models that have decisions, by id.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn models(&self) -> Result<Vec<ModelId>, StorageError> {
        let mut models: Vec<ModelId> = Vec::new();
        let mut range = KeyRange::from(Vec::new());
        loop {
            let mut next = None;
            self.shared.database.scan(Column::Decisions, range, Access::Lookup, |key, _| {
                let model = KeyReader::new(key).number().map(ModelId);
                next = Some(model.ok_or_else(|| corrupt(Column::Decisions, key, "its key names no model"))?);
                Ok(ControlFlow::Break(()))
            })?;
            let Some(model) = next else { return Ok(models) };
            range = KeyRange::from(after_prefix(keys::of_model(model)));
            models.push(model);
        }
    }
}

impl Shared {
    pub(super) fn erase_from(&self, batch: &mut Batch, model: ModelId, user: &UserId) -> Result<u64, StorageError> {
        let range = KeyRange::prefix(keys::all_decided_for(model, user));
        let prefix = range.from.len();
        let mut erased = 0;
        self.database.scan(Column::DecidedFor, range, Access::Lookup, |key, _| {
            let id = decided(key, prefix)?;
            batch.delete(Column::Decisions, &keys::decision(model, &id));
            batch.delete(Column::DecidedFor, key);
            self.delete_event_of(batch, model, &id)?;
            erased += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(erased)
    }

    fn count_erased(&self, batch: &mut Batch, model: ModelId, erased: u64) -> Result<(), StorageError> {
        let key = keys::of_model(model);
        let count = self.erased(model)? + erased;
        let body = postcard::to_extend(&count, Vec::new()).expect("a vector takes any bytes");
        batch.put(Column::DecisionsErased, &key, &sealed(&key, &body));
        Ok(())
    }

    fn erased(&self, model: ModelId) -> Result<u64, StorageError> {
        let key = keys::of_model(model);
        let Some(value) = self.database.get(Column::DecisionsErased, &key)? else { return Ok(0) };
        let body = unseal(Column::DecisionsErased, &key, &value)?;
        postcard::from_bytes(body).map_err(|error| corrupt(Column::DecisionsErased, &key, &error.to_string()))
    }
}

/// The decision of an entry of [`Column::DecidedFor`]; `prefix` is the length of the key before it.
fn decided(key: &[u8], prefix: usize) -> Result<DecisionId, StorageError> {
    let id = KeyReader::new(&key[prefix..]).text().and_then(|id| DecisionId::new(id).ok());
    id.ok_or_else(|| corrupt(Column::DecidedFor, key, "its key names no decision"))
}
