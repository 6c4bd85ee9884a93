//! The durable position of the log, and tickets to wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use celeris_model::{ObservationId, Partition, Sequence};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::reading;
use crate::error::StorageError;

/// A position in the order of commits since the store was opened. Everything at or before a durable
/// position is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CommitPosition(pub(super) u64);

impl CommitPosition {
    /// Before all commits: always durable.
    pub const START: Self = Self(0);
}

/// The durable position and its waiters.
///
/// Position and failure are read far more often than changed, without a lock. A change notifies the
/// waiters afterwards, and a new waiter checks both again under the waiters' lock.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    durable: AtomicU64,
    poisoned: OnceLock<Arc<str>>,
    /// Waiters for positions that are not durable, unordered. A cancelled waiter stays until its
    /// position is reached.
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

    pub(super) fn ticket(self: &Arc<Self>, position: CommitPosition) -> Ticket {
        Ticket { position, progress: Arc::clone(self) }
    }

    /// Wakes only the waiters whose position is reached: any other would check and wait again.
    pub(super) fn advance(&self, position: CommitPosition) {
        self.durable.store(position.0, Ordering::Release);
        let reached: Vec<Waiting> =
            self.waiting.lock().extract_if(.., |waiting| waiting.position <= position).collect();
        for waiting in reached {
            // The waiter may have been cancelled.
            let _ = waiting.reached.send(());
        }
    }

    /// Stops all writes; the first cause is kept.
    pub(crate) fn poison(&self, cause: &str) {
        self.poisoned.get_or_init(|| {
            tracing::error!(cause, "no more writes are accepted until the store is opened again");
            Arc::from(cause)
        });
        // Dropping the senders wakes the waiters, which then read the cause.
        self.waiting.lock().clear();
    }
}

/// A handle to wait for a commit position. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ticket {
    position: CommitPosition,
    progress: Arc<Progress>,
}

impl Ticket {
    /// Waits until everything up to the position is durable.
    ///
    /// # Errors
    /// [`StorageError::Poisoned`] if it will never be known to be durable.
    pub async fn durable(&self) -> Result<(), StorageError> {
        let Self { position, progress } = self;
        if progress.is_durable(*position) {
            return Ok(());
        }
        let reached = {
            let mut waiting = progress.waiting.lock();
            if progress.is_durable(*position) {
                return Ok(());
            }
            progress.health()?;
            let (reached, waits) = oneshot::channel();
            waiting.push(Waiting { position: *position, reached });
            waits
        };
        // A failure ends the wait too, even between the store of the position and the notification.
        let _ = reached.await;
        if progress.is_durable(*position) {
            return Ok(());
        }
        Err(progress.health().err().unwrap_or(StorageError::Closed))
    }

    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.progress.is_durable(self.position)
    }

    /// The position, for [`super::Log::wait_durable`].
    #[must_use]
    pub fn position(&self) -> CommitPosition {
        self.position
    }
}

/// A record's position in the log, assigned when it is appended.
#[derive(Debug, Clone)]
pub struct Placed {
    partition: Partition,
    sequence: Sequence,
    given: Option<ObservationId>,
    ticket: Ticket,
}

/// The position and id of a durable record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub partition: Partition,
    pub sequence: Sequence,
    /// The client's id, or the one derived from the position (`~partition-sequence`).
    pub observation_id: ObservationId,
}

impl Placed {
    pub(super) fn new(partition: Partition, sequence: Sequence, given: Option<ObservationId>, ticket: Ticket) -> Self {
        Self { partition, sequence, given, ticket }
    }

    /// Waits until the record is durable.
    ///
    /// # Errors
    /// [`StorageError::Poisoned`] if it will never be known to be durable.
    pub async fn durable(&self) -> Result<Committed, StorageError> {
        self.ticket.durable().await?;
        let Self { partition, sequence, .. } = *self;
        let observation_id = self.given.clone().unwrap_or_else(|| reading::server_id(partition, sequence));
        Ok(Committed { partition, sequence, observation_id })
    }

    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// The ticket to wait for the record's durability.
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
    fn an_advance_wakes_only_waiters_whose_position_is_reached() {
        let progress = Arc::new(Progress::default());
        let [first, second, third] = [1, 2, 3].map(|position| progress.ticket(CommitPosition(position)));
        let bells: [Arc<Bell>; 3] = Default::default();
        let wakers = bells.each_ref().map(|bell| bell.clone().into());
        let [mut at_first, mut at_second, mut at_third] = wakers.each_ref().map(Context::from_waker);
        // Waiters arrive in another order than their positions.
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
            panic!("the third waiter gets the failure")
        };
        assert_eq!(&*cause, "the disk is gone");
        // Durable positions stay durable; others never become so.
        assert!(matches!(pin!(second.durable()).poll(&mut at_second), Poll::Ready(Ok(()))));
        assert!(matches!(pin!(third.durable()).poll(&mut at_third), Poll::Ready(Err(_))));
    }
}
