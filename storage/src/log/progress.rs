//! How far the log is durable, and the tickets that wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use celeris_model::{ObservationId, Partition, Sequence};
use tokio::sync::watch;

use crate::error::StorageError;
use crate::history;

/// A place in the order of commits of this opening of the store. Everything at or before a durable position is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CommitPosition(pub(super) u64);

impl CommitPosition {
    /// Before everything: always durable.
    pub const START: Self = Self(0);
}

/// Where a durable record is, and what it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Its user's partition.
    pub partition: Partition,
    /// Its place there.
    pub sequence: Sequence,
    /// The client's id, or the one that names the place (`~partition-sequence`).
    pub observation_id: ObservationId,
}

impl Committed {
    pub(super) fn new(partition: Partition, sequence: Sequence, given: Option<ObservationId>) -> Self {
        let observation_id = given.unwrap_or_else(|| history::server_id(partition, sequence));
        Self { partition, sequence, observation_id }
    }
}

#[derive(Debug, Clone, Default)]
struct State {
    durable: CommitPosition,
    /// The first failure.
    poisoned: Option<Arc<str>>,
}

impl State {
    fn health(&self) -> Result<(), StorageError> {
        match &self.poisoned {
            Some(cause) => Err(StorageError::Poisoned { cause: Arc::clone(cause) }),
            None => Ok(()),
        }
    }
}

/// The durable position and its followers.
#[derive(Debug)]
pub(crate) struct Progress {
    state: watch::Sender<State>,
    /// The durable position once more, since every observation asks for it several times and seldom has to wait.
    durable: AtomicU64,
    /// Whether there is a failure, for the same reason.
    is_poisoned: AtomicBool,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            state: watch::Sender::new(State::default()),
            durable: AtomicU64::new(CommitPosition::START.0),
            is_poisoned: AtomicBool::new(false),
        }
    }
}

impl Progress {
    pub(crate) fn health(&self) -> Result<(), StorageError> {
        if self.is_poisoned.load(Ordering::Acquire) { self.state.borrow().health() } else { Ok(()) }
    }

    pub(crate) fn is_durable(&self, position: CommitPosition) -> bool {
        self.durable.load(Ordering::Acquire) >= position.0
    }

    pub(crate) async fn wait(&self, position: CommitPosition) -> Result<(), StorageError> {
        if self.is_durable(position) {
            return Ok(());
        }
        let mut state = self.state.subscribe();
        let reached = state
            .wait_for(|state| state.durable >= position || state.poisoned.is_some())
            .await
            .map_err(|_| StorageError::Closed)?;
        if reached.durable >= position { Ok(()) } else { reached.health() }
    }

    pub(super) fn ticket(self: &Arc<Self>, position: CommitPosition, committed: Committed) -> Ticket {
        Ticket { position, committed, progress: Arc::clone(self) }
    }

    pub(super) fn advance(&self, position: CommitPosition) {
        self.durable.store(position.0, Ordering::Release);
        self.state.send_modify(|state| state.durable = position);
    }

    /// Ends all writing; the first cause stays.
    pub(crate) fn poison(&self, cause: &str) {
        self.state.send_modify(|state| {
            state.poisoned.get_or_insert_with(|| {
                tracing::error!(cause, "a write failed: no more writes are accepted until the store is opened again");
                Arc::from(cause)
            });
        });
        self.is_poisoned.store(true, Ordering::Release);
    }
}

/// A record's way to the disk.
#[derive(Debug, Clone)]
pub struct Ticket {
    position: CommitPosition,
    committed: Committed,
    progress: Arc<Progress>,
}

impl Ticket {
    /// Waits until the record is durable.
    ///
    /// # Errors
    /// [`StorageError::Poisoned`] if it will never be known to be.
    pub async fn durable(&self) -> Result<Committed, StorageError> {
        self.progress.wait(self.position).await?;
        Ok(self.committed.clone())
    }

    /// The record's place in its partition.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.committed.sequence
    }

    pub(super) fn committed(&self) -> &Committed {
        &self.committed
    }

    /// Its place in the order of commits, for [`crate::Storage::wait_durable`].
    #[must_use]
    pub fn position(&self) -> CommitPosition {
        self.position
    }

    /// Whether it is durable now.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.progress.is_durable(self.position)
    }
}
