//! The durable position of a shard's log, and tickets to wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use celeris_model::{ObservationId, Partition, Sequence};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::reading;
use crate::error::StorageError;
use crate::spans::SPANS;

/// A position in the order of commits of one term. Everything at or before a durable position is
/// durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct CommitPosition(pub(super) u64);

/// Why a term ended before everything queued was durable.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// A write failed; whether it is on the disk is unknown.
    Poisoned(Arc<str>),
    /// Another node owns the shard; what was not durable is not in the log.
    Fenced,
}

impl End {
    fn error(&self) -> StorageError {
        match self {
            Self::Poisoned(cause) => StorageError::Poisoned { cause: Arc::clone(cause) },
            Self::Fenced => StorageError::Fenced,
        }
    }
}

/// The durable position of one term and its waiters.
///
/// Position and end are read far more often than changed, without a lock. A change notifies the
/// waiters afterwards, and a new waiter checks both again under the waiters' lock.
#[derive(Debug, Default)]
pub(super) struct Progress {
    durable: AtomicU64,
    ended: OnceLock<End>,
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
    /// # Errors
    /// `Poisoned` or `Fenced`, if the term has ended with one of them.
    pub(super) fn check(&self) -> Result<(), StorageError> {
        self.ended.get().map_or(Ok(()), |end| Err(end.error()))
    }

    fn is_durable(&self, position: CommitPosition) -> bool {
        self.durable.load(Ordering::Acquire) >= position.0
    }

    pub(super) fn ticket(self: &Arc<Self>, position: CommitPosition) -> Ticket {
        Ticket { of: Some((position, Arc::clone(self))) }
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

    /// Ends the term: nothing more becomes durable in it. The first end is kept.
    pub(super) fn end(&self, end: End) {
        self.ended.get_or_init(|| end);
        // Dropping the senders wakes the waiters, which then read the end.
        self.waiting.lock().clear();
    }
}

/// A handle to wait until a write of a shard's log is durable. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ticket {
    /// `None` if it was durable from the start.
    of: Option<(CommitPosition, Arc<Progress>)>,
}

impl Ticket {
    /// The ticket of something durable.
    pub const DURABLE: Self = Self { of: None };

    /// Waits until the write and all before it are durable.
    ///
    /// # Errors
    /// [`StorageError::Poisoned`] if it will never be known to be durable;
    /// [`StorageError::Fenced`] if it never will be.
    pub async fn durable(&self) -> Result<(), StorageError> {
        let Some((position, progress)) = &self.of else { return Ok(()) };
        if progress.is_durable(*position) {
            return Ok(());
        }
        let reached = {
            let mut waiting = progress.waiting.lock();
            if progress.is_durable(*position) {
                return Ok(());
            }
            progress.check()?;
            let (reached, waits) = oneshot::channel();
            waiting.push(Waiting { position: *position, reached });
            waits
        };
        // An end wakes the waiter too, even between the store of the position and the notification.
        let _ = reached.instrument(tracing::info_span!(target: SPANS, "log.wait")).await;
        if progress.is_durable(*position) {
            return Ok(());
        }
        Err(progress.check().err().unwrap_or(StorageError::Closed))
    }

    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.of.as_ref().is_none_or(|(position, progress)| progress.is_durable(*position))
    }

    /// The ticket of the later of two writes to the same shard. Of two terms, the one that is not
    /// durable, or that has ended, so that waiting for it fails.
    #[must_use]
    pub fn latest(self, other: Self) -> Self {
        if self.is_durable() {
            return other;
        }
        let (Some((at, progress)), Some((other_at, other_progress))) = (&self.of, &other.of) else { return self };
        let is_other = if Arc::ptr_eq(progress, other_progress) {
            other_at > at
        } else {
            !other.is_durable() && other_progress.check().is_err()
        };
        if is_other { other } else { self }
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
    /// [`StorageError::Poisoned`] if it will never be known to be durable;
    /// [`StorageError::Fenced`] if it never will be.
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
        progress.end(End::Poisoned("the disk is gone".into()));
        assert_eq!(rung(), [1, 1, 1]);
        let Poll::Ready(Err(StorageError::Poisoned { cause })) = third_waits.as_mut().poll(&mut at_third) else {
            panic!("the third waiter gets the failure")
        };
        assert_eq!(&*cause, "the disk is gone");
        // Durable positions stay durable; others never become so.
        assert!(matches!(pin!(second.durable()).poll(&mut at_second), Poll::Ready(Ok(()))));
        assert!(matches!(pin!(third.durable()).poll(&mut at_third), Poll::Ready(Err(_))));
        assert!(Ticket::DURABLE.is_durable());
    }

    #[test]
    fn the_latest_ticket_covers_both() {
        let (ended, current) = (Arc::new(Progress::default()), Arc::new(Progress::default()));
        let (early, late) = (current.ticket(CommitPosition(1)), current.ticket(CommitPosition(2)));
        let of_ended = ended.ticket(CommitPosition(9));
        let is_late = |ticket: Ticket| {
            current.durable.store(1, Ordering::Relaxed);
            let waits = !ticket.is_durable();
            current.durable.store(0, Ordering::Relaxed);
            waits
        };
        assert!(is_late(early.clone().latest(late.clone())) && is_late(late.clone().latest(early.clone())));
        assert!(!is_late(early.clone().latest(Ticket::DURABLE)) && !is_late(Ticket::DURABLE.latest(early.clone())));
        ended.end(End::Fenced);
        for latest in [of_ended.clone().latest(late.clone()), late.latest(of_ended)] {
            current.advance(CommitPosition(2));
            assert!(!latest.is_durable(), "waiting for an ended term must fail");
        }
    }
}
