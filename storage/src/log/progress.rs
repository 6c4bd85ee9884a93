//! How far the log is durable, and the tickets that wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use celeris_model::{ObservationId, Partition, Sequence};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::StorageError;
use crate::history;

/// A place in the order of commits of this opening of the store. Everything at or before a durable position is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CommitPosition(pub(super) u64);

impl CommitPosition {
    /// Before everything: always durable.
    pub const START: Self = Self(0);
}

/// The durable position and its followers.
///
/// Position and failure are read far more often than they change, and without a lock. Whoever changes one looks at those
/// who wait afterwards, and whoever comes to wait looks at both again among them.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    durable: AtomicU64,
    /// The first failure.
    poisoned: OnceLock<Arc<str>>,
    /// Those who wait for positions that are not durable, in no order. One that gave up stays until its position is reached.
    waiting: Mutex<Vec<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    position: CommitPosition,
    reached: oneshot::Sender<()>,
}

impl Progress {
    pub(crate) fn health(&self) -> Result<(), StorageError> {
        match self.poisoned.get() {
            Some(cause) => Err(StorageError::Poisoned { cause: Arc::clone(cause) }),
            None => Ok(()),
        }
    }

    pub(crate) fn is_durable(&self, position: CommitPosition) -> bool {
        self.durable.load(Ordering::Acquire) >= position.0
    }

    pub(crate) async fn wait(&self, position: CommitPosition) -> Result<(), StorageError> {
        if self.is_durable(position) {
            return Ok(());
        }
        let reached = {
            let mut waiting = self.waiting.lock();
            if self.is_durable(position) {
                return Ok(());
            }
            self.health()?;
            let (reached, waits) = oneshot::channel();
            waiting.push(Waiting { position, reached });
            waits
        };
        // A failure ends the wait too, even one that comes between the position's turn and the word of it.
        let _ = reached.await;
        if self.is_durable(position) {
            return Ok(());
        }
        Err(self.health().err().unwrap_or(StorageError::Closed))
    }

    pub(super) fn ticket(self: &Arc<Self>, position: CommitPosition) -> Ticket {
        Ticket { position, progress: Arc::clone(self) }
    }

    /// Wakes those whose position is reached, and nobody else: whoever waits for the next group would only look and wait
    /// again.
    pub(super) fn advance(&self, position: CommitPosition) {
        self.durable.store(position.0, Ordering::Release);
        let reached: Vec<Waiting> =
            self.waiting.lock().extract_if(.., |waiting| waiting.position <= position).collect();
        for waiting in reached {
            // It may have given up.
            let _ = waiting.reached.send(());
        }
    }

    /// Ends all writing; the first cause stays.
    pub(crate) fn poison(&self, cause: &str) {
        self.poisoned.get_or_init(|| {
            tracing::error!(cause, "no more writes are accepted until the store is opened again");
            Arc::from(cause)
        });
        // Whoever finds the other end gone looks for the cause.
        self.waiting.lock().clear();
    }
}

/// A way to wait for a place in the order of commits. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ticket {
    position: CommitPosition,
    progress: Arc<Progress>,
}

impl Ticket {
    /// Waits until everything up to the position is durable.
    ///
    /// # Errors
    /// [`StorageError::Poisoned`] if it will never be known to be.
    pub async fn durable(&self) -> Result<(), StorageError> {
        self.progress.wait(self.position).await
    }

    /// Whether it is durable now.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.progress.is_durable(self.position)
    }

    /// The position, for [`crate::Storage::wait_durable`].
    #[must_use]
    pub fn position(&self) -> CommitPosition {
        self.position
    }
}

/// A record's place in the log, which it has from the moment it is appended.
#[derive(Debug, Clone)]
pub struct Placed {
    partition: Partition,
    sequence: Sequence,
    given: Option<ObservationId>,
    ticket: Ticket,
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

impl Placed {
    pub(super) fn new(partition: Partition, sequence: Sequence, given: Option<ObservationId>, ticket: Ticket) -> Self {
        Self { partition, sequence, given, ticket }
    }

    /// Waits until the record is durable.
    ///
    /// # Errors
    /// [`StorageError::Poisoned`] if it will never be known to be.
    pub async fn durable(&self) -> Result<Committed, StorageError> {
        self.ticket.durable().await?;
        let Self { partition, sequence, .. } = *self;
        let observation_id = self.given.clone().unwrap_or_else(|| history::server_id(partition, sequence));
        Ok(Committed { partition, sequence, observation_id })
    }

    /// The record's place in its partition.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// When the record is durable.
    #[must_use]
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Poll, Wake};

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_advance_wakes_those_it_reaches_and_nobody_else() {
        let progress = Arc::new(Progress::default());
        let [first, second, third] = [1, 2, 3].map(|position| progress.ticket(CommitPosition(position)));
        let bells: [Arc<Bell>; 3] = Default::default();
        let wakers = bells.each_ref().map(|bell| bell.clone().into());
        let [mut at_first, mut at_second, mut at_third] = wakers.each_ref().map(Context::from_waker);
        // The order in which they come to wait is not that of their positions.
        let mut third_waits = pin!(third.durable());
        assert!(third_waits.as_mut().poll(&mut at_third).is_pending());
        let mut first_waits = pin!(first.durable());
        assert!(first_waits.as_mut().poll(&mut at_first).is_pending());
        let mut second_waits = pin!(second.durable());
        assert!(second_waits.as_mut().poll(&mut at_second).is_pending());
        let rung = || bells.each_ref().map(|bell| bell.0.load(Ordering::Relaxed));
        progress.advance(CommitPosition(2));
        assert_eq!(rung(), [1, 1, 0]);
        assert!(matches!(first_waits.as_mut().poll(&mut at_first), Poll::Ready(Ok(()))));
        assert!(matches!(second_waits.as_mut().poll(&mut at_second), Poll::Ready(Ok(()))));
        progress.poison("the disk is gone");
        assert_eq!(rung(), [1, 1, 1]);
        let Poll::Ready(Err(StorageError::Poisoned { cause })) = third_waits.as_mut().poll(&mut at_third) else {
            panic!("the third is told of the failure")
        };
        assert_eq!(&*cause, "the disk is gone");
        // What was durable before stays so; what was not never will be.
        assert!(matches!(pin!(second.durable()).poll(&mut at_second), Poll::Ready(Ok(()))));
        assert!(matches!(pin!(third.durable()).poll(&mut at_third), Poll::Ready(Err(_))));
    }
}
