//! What a node in a cluster does when another node has appended to the log.
//!
//! A node holds the whole log, and may have anything in memory that is derived from it. What it has of
//! users whose shard it does not own is a view of the records applied so far: their events drop it.

use std::collections::HashSet;

use celeris_model::{ItemId, RecordKind, Shard, StreamName};
use celeris_storage::{AppliedGroup, AppliedRecord, ErasedUser};

use crate::error::PredictorError;
use crate::predictor::Predictor;
use crate::users::UserKey;

impl Predictor {
    /// Erases the decisions of users whose erasure is about to be applied to the store with a group of
    /// another node's records: after a crash in between, the group is applied again. Blocks the thread.
    ///
    /// # Errors
    /// `Storage`; the call can be repeated.
    pub fn applying(&self, erasures: &[ErasedUser]) -> Result<(), PredictorError> {
        erasures.iter().try_for_each(|erased| self.ingest().erase_decisions(erased))
    }

    /// Brings memory in line with a group of another node's records, which was applied to the store
    /// just before. Blocks the thread.
    ///
    /// # Errors
    /// `Storage`; the call can be repeated.
    pub fn applied(&self, group: &AppliedGroup) -> Result<(), PredictorError> {
        self.features().note_changes(&group.frozen);
        let mut users: HashSet<UserKey> = HashSet::new();
        for AppliedRecord { stream, record, .. } in &group.records {
            users.insert(UserKey { stream: stream.clone(), user: record.user.clone() });
        }
        users.iter().for_each(|user| self.users().discard(user));
        for AppliedRecord { stream, record, notes_item, .. } in &group.records {
            if let Some(facts) = &record.decision {
                self.attribution().forget(&facts.id);
            }
            match record.kind {
                RecordKind::Observe => self.list(stream, record.item.as_ref().filter(|_| *notes_item))?,
                RecordKind::Erase => self.purge(&UserKey { stream: stream.clone(), user: record.user.clone() }),
                RecordKind::Correct | RecordKind::Retract => {}
            }
        }
        Ok(())
    }

    fn list(&self, stream: &StreamName, item: Option<&ItemId>) -> Result<(), PredictorError> {
        match (item, self.catalog().loaded(stream)) {
            (Some(item), Some(catalog)) => self.catalog().list_observed(&catalog, item),
            _ => Ok(()),
        }
    }

    /// Drops what is in memory of the users of a shard that this node has lost, including events that
    /// are not in the log. The node has ended its term; it must not begin another one before this
    /// returns. Blocks the thread while requests use the users' states.
    pub fn forget_shard(&self, shard: Shard) {
        // In this order: what is dropped first is not built again from what is dropped later.
        self.features().forget_shard(shard);
        self.attribution().forget_all();
        self.users().forget_shard(shard);
    }
}
