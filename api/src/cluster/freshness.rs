//! How old the answers of a node may be.

use std::time::Duration;

use celeris_model::Shard;
use celeris_storage::StorageError;
use futures_util::future::BoxFuture;

/// Answers of an owner that has not been confirmed for longer than this say so in `stale_ms`.
pub const STALE_AFTER: Duration = Duration::from_secs(10);

/// The confirmation of an owner.
pub type Confirming<'a> = BoxFuture<'a, Result<(), StorageError>>;

/// The age of a node's copies of the shards.
pub trait Freshness: Send + Sync {
    /// An upper bound of the age of what this node knows of a shard, `None` if it is not known: for
    /// a shard that it owns, the time since the log last confirmed that; for another, how far its
    /// copy may be behind the owner.
    fn staleness(&self, shard: Shard) -> Option<Duration>;

    /// Completes once the log has confirmed, after the call, that this node owns the shard. At
    /// once within the lease of an earlier confirmation.
    ///
    /// # Errors
    /// [`StorageError::NotOwner`] or [`StorageError::Fenced`] if another node owns it, others if the
    /// log does not answer.
    fn confirm(&self, shard: Shard) -> Confirming<'_>;

    /// Completes once the live nodes have applied the changes of models and items that this node has made, or
    /// after a bounded time.
    fn settle(&self) -> Settling<'_> {
        Box::pin(std::future::ready(()))
    }
}

/// Completes without a result.
pub type Settling<'a> = BoxFuture<'a, ()>;

/// The age of copies is not known, and every owner is current: for nodes without a replicated log.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unmeasured;

impl Freshness for Unmeasured {
    fn staleness(&self, _shard: Shard) -> Option<Duration> {
        None
    }

    fn confirm(&self, _shard: Shard) -> Confirming<'_> {
        Box::pin(std::future::ready(Ok(())))
    }
}
