//! How a group of a shard's log becomes durable.

use std::time::Duration;

use super::queue::Group;
use crate::database::{Batch, Durability};
use crate::error::StorageError;

/// Why a group did not become durable.
#[derive(Debug)]
pub(super) enum CommitError {
    /// Another node owns the shard, and the group is not in its log.
    Fenced,
    /// The replicated log takes no more from this node; whether it has the group is unknown.
    Stopped { reason: String },
    /// A write failed; whether it is on the disk is unknown.
    Failed(StorageError),
}

/// Makes the groups of one term durable, one after the other.
pub(super) trait Commit: Send {
    /// Makes a group durable and writes `batch`, its form in the database. Blocks the thread.
    ///
    /// # Errors
    /// After one, no further group is committed.
    fn commit(&mut self, group: &Group, batch: Batch<'_>) -> Result<(), CommitError>;

    /// How long a group may wait for callers who return, after a commit that took `last`.
    fn patience(&self, last: Duration) -> Duration;
}

/// The database is the log: a group is durable once its batch is synced.
pub(super) struct Local;

impl Commit for Local {
    fn commit(&mut self, _group: &Group, batch: Batch<'_>) -> Result<(), CommitError> {
        batch.commit(Durability::Synced).map_err(CommitError::Failed)
    }

    /// A sync is about as short as the way of an answer and of the next request.
    fn patience(&self, _last: Duration) -> Duration {
        Duration::ZERO
    }
}
