//! What a node does when its copy of a log changes.

use celeris_model::LogId;
use celeris_storage::{Applied, AppliedGroup, StorageError};

/// Is notified of what happens to the logs. All calls are made on threads that may block; those for one
/// log in order and one at a time.
pub trait Hooks: Send + Sync + 'static {
    /// A group of another owner is about to be applied. If it must not be yet, the log is not followed any
    /// further.
    ///
    /// # Errors
    /// Why not.
    fn applying(&self, _group: &AppliedGroup) -> Result<(), StorageError> {
        Ok(())
    }

    /// A group of another owner was applied.
    fn applied(&self, log: LogId, applied: Applied);

    /// Waits until what was applied of a log is in force, for a bounded time.
    fn settle(&self, _log: LogId) {}

    /// This node owns the log and accepts its writes.
    fn term_began(&self, log: LogId);

    /// This node gives the log up: its queued writes are appended after this returns.
    fn releasing(&self, log: LogId);

    /// This node owns the log no more. Writes whose appends failed are not in it: what is
    /// remembered of its users beyond the store must be forgotten.
    fn term_ended(&self, log: LogId);
}
