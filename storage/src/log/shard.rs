//! One shard of the log on this node.

use std::sync::Arc;
use std::thread::JoinHandle;

use arc_swap::ArcSwapOption;
use celeris_model::{LogId, Shard};
use parking_lot::{Mutex, MutexGuard};

use super::Records;
use super::commit::Commit;
use super::committer::{Committer, Scratch};
use super::pending::PendingIds;
use super::positions::TakenMessages;
use super::progress::Progress;
use super::queue::Queue;
use crate::error::StorageError;

/// A shard: written by this node during a term, and only read between terms.
#[derive(Default)]
pub(super) struct ShardLog {
    term: ArcSwapOption<Term>,
    committer: Mutex<Option<JoinHandle<()>>>,
    /// Held while a group of another owner is applied.
    follower: Mutex<Scratch>,
}

/// A period in which this node owns the shard.
pub(super) struct Term {
    pub(super) queue: Queue,
    pub(super) progress: Arc<Progress>,
    pub(super) pending: PendingIds,
    pub(super) sources: TakenMessages,
}

impl ShardLog {
    /// Runs `work` on the current term.
    ///
    /// # Errors
    /// `NotOwner` if there is none, or those of `work`.
    pub(super) fn in_term<T>(&self, work: impl FnOnce(&Term) -> Result<T, StorageError>) -> Result<T, StorageError> {
        work(self.term.load().as_deref().ok_or(StorageError::NotOwner)?)
    }

    /// The buffers with which groups of another owner are applied, one at a time.
    ///
    /// # Errors
    /// `Diverged` during a term: the owner has written its groups itself.
    pub(super) fn follow(&self, shard: Shard) -> Result<MutexGuard<'_, Scratch>, StorageError> {
        let follower = self.follower.lock();
        if self.term.load().is_some() {
            let reason = "this node owns it and has written its groups itself".to_owned();
            return Err(StorageError::Diverged { log: LogId::Shard(shard), reason });
        }
        Ok(follower)
    }

    /// Begins a term whose groups `commit` makes durable. The previous one has ended.
    ///
    /// # Errors
    /// [`StorageError::Io`] if no thread can be started.
    pub(super) fn begin(
        &self,
        shard: Shard,
        records: &Arc<Records>,
        commit: Box<dyn Commit>,
    ) -> Result<(), StorageError> {
        let _follower = self.follower.lock();
        let progress = Arc::<Progress>::default();
        let queue = Queue::new(&records.options, records.watermarks(), Arc::clone(&progress));
        let term =
            Arc::new(Term { queue, progress, pending: PendingIds::default(), sources: TakenMessages::default() });
        let committer = Committer::new(Arc::clone(records), shard, Arc::clone(&term), commit);
        let thread = std::thread::Builder::new()
            .name(format!("celeris-log-{}", shard.index()))
            .spawn(move || committer.run())
            .map_err(StorageError::io("start the thread of", "the log"))?;
        *self.committer.lock() = Some(thread);
        self.term.store(Some(term));
        Ok(())
    }

    /// Rejects appends, commits queued work and ends the term. Idempotent.
    pub(super) fn end(&self) {
        if let Some(term) = self.term.load().as_ref() {
            term.queue.close();
        }
        if let Some(committer) = self.committer.lock().take()
            && committer.join().is_err()
        {
            // It has poisoned the log, which the caller sees.
            tracing::error!("the log's committer panicked");
        }
        self.term.store(None);
    }
}
