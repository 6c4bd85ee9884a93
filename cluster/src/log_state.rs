//! What this node knows of a log, shared by the tasks of the node.

use std::fmt;
use std::time::Duration;

use celeris_model::LogId;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::chain::Cursor;

/// What this node is to do with a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Follow,
    Own,
    /// Give it up and end.
    Stop,
}

/// What this node does with a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It reads the log.
    Following,
    /// It appends its claim.
    Claiming,
    /// It accepts writes.
    Owning,
    /// It appends what is queued, and its release.
    Releasing,
    /// It has stopped reading, because of a problem.
    Stuck,
}

/// Why a log needs attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "problem")]
pub enum Problem {
    /// The stream begins after the end of this copy: the copy of another node is needed.
    Behind { applied: u64, first: u64 },
    /// A message does not continue the log.
    Broken { reason: String },
    /// The stream ends before this copy: messages were lost, or the stream was created again.
    WentBack { applied: u64, last: u64 },
    /// The stream lacks messages between its first and its last: a server's file was damaged.
    Deleted { messages: u64 },
    /// The store does not accept the log.
    Store { reason: String },
}

/// What is wrong, and what to do.
impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Behind { applied, first } => write!(
                formatter,
                "the log begins at {first}, and this copy ends at {applied}: start the node again, and it gets the copy of another one"
            ),
            Self::Broken { reason } => write!(
                formatter,
                "the log is broken: {reason}. Compare the NATS servers; if no server has it whole, `celeris cluster recover` goes on from a copy"
            ),
            Self::WentBack { applied, last } => write!(
                formatter,
                "the log ends at {last}, before this copy, at {applied}: the NATS servers have lost messages; `celeris cluster recover` goes on from a copy"
            ),
            Self::Deleted { messages } => {
                write!(
                    formatter,
                    "a NATS server lacks {messages} messages of the log: its files are damaged; replace its store"
                )
            }
            Self::Store { reason } => write!(formatter, "the store does not take the log: {reason}"),
        }
    }
}

impl Problem {
    /// Whether the node goes on following the log.
    pub(crate) fn is_passable(&self) -> bool {
        matches!(self, Self::Deleted { .. })
    }
}

struct Inner {
    phase: Phase,
    /// The end of this copy; during a term, that of the log.
    cursor: Cursor,
    durable: u64,
    problem: Option<Problem>,
    /// The end of the lease of a term.
    leased_until: Option<Instant>,
    /// When this copy is known to have been complete.
    complete_at: Option<Instant>,
    /// A moment at which the log ended there.
    ended_there: Option<(Instant, u64)>,
}

pub(crate) struct LogState {
    pub(crate) log: LogId,
    inner: Mutex<Inner>,
    applied: watch::Sender<u64>,
    pub(crate) wish: watch::Sender<Wish>,
    /// Notified when the phase changes.
    changed: watch::Sender<()>,
}

impl LogState {
    pub(crate) fn new(log: LogId, changed: watch::Sender<()>) -> Self {
        let inner = Inner {
            phase: Phase::Following,
            cursor: Cursor::default(),
            durable: 0,
            problem: None,
            leased_until: None,
            complete_at: None,
            ended_there: None,
        };
        Self {
            log,
            inner: Mutex::new(inner),
            applied: watch::Sender::new(0),
            wish: watch::Sender::new(Wish::Follow),
            changed,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.inner.lock().phase
    }

    pub(crate) fn enter(&self, phase: Phase) {
        let mut inner = self.inner.lock();
        inner.phase = phase;
        if phase != Phase::Owning && phase != Phase::Releasing {
            inner.leased_until = None;
        }
        drop(inner);
        self.changed.send_replace(());
    }

    pub(crate) fn cursor(&self) -> Cursor {
        self.inner.lock().cursor.clone()
    }

    /// Notes the end of this copy, or in a term that of the log.
    pub(crate) fn advance(&self, cursor: &Cursor) {
        let mut inner = self.inner.lock();
        inner.cursor = cursor.clone();
        if let Some((at, tail)) = inner.ended_there
            && cursor.sequence >= tail
        {
            inner.complete_at = Some(at);
            inner.ended_there = None;
        }
        drop(inner);
        self.applied.send_replace(cursor.sequence);
    }

    /// Waits until `sequence` is applied.
    pub(crate) async fn wait_applied(&self, sequence: u64) {
        // It ends never with an error, as `self` holds the sender.
        let _ = self.applied.subscribe().wait_for(|applied| *applied >= sequence).await;
    }

    pub(crate) fn applied(&self) -> u64 {
        *self.applied.borrow()
    }

    pub(crate) fn durable(&self) -> u64 {
        self.inner.lock().durable
    }

    pub(crate) fn set_durable(&self, sequence: u64) {
        self.inner.lock().durable = sequence;
    }

    pub(crate) fn problem(&self) -> Option<Problem> {
        self.inner.lock().problem.clone()
    }

    /// Reports a problem, unless one that is as grave is reported already.
    pub(crate) fn report(&self, problem: Problem) {
        let mut inner = self.inner.lock();
        if inner.problem.as_ref().is_none_or(|known| known.is_passable() && *known != problem) {
            tracing::error!(log = %self.log, ?problem, "the log needs attention");
            inner.problem = Some(problem);
            drop(inner);
            self.changed.send_replace(());
        }
    }

    pub(crate) fn extend_lease(&self, until: Instant) {
        let mut inner = self.inner.lock();
        inner.leased_until = inner.leased_until.max(Some(until));
    }

    /// Whether no other node can have acknowledged a write that this owner does not know.
    pub(crate) fn is_leased(&self) -> bool {
        let inner = self.inner.lock();
        inner.phase == Phase::Owning && inner.leased_until.is_some_and(|until| Instant::now() < until)
    }

    /// Notes that the log ended at `tail` at this moment or later.
    pub(crate) fn note_tail(&self, at: Instant, tail: u64) {
        let mut inner = self.inner.lock();
        if inner.cursor.sequence >= tail {
            inner.complete_at = inner.complete_at.max(Some(at));
            inner.ended_there = None;
        } else if inner.ended_there.is_none() {
            inner.ended_there = Some((at, tail));
        }
    }

    /// At most this old is the copy; `None` if that is not known. `lease` is the length of a lease.
    pub(crate) fn staleness(&self, lease: Duration) -> Option<Duration> {
        let inner = self.inner.lock();
        let complete_at = match inner.phase {
            Phase::Owning | Phase::Releasing => inner.leased_until.and_then(|until| until.checked_sub(lease)),
            Phase::Following | Phase::Claiming | Phase::Stuck => inner.complete_at,
        };
        complete_at.map(|at| at.elapsed())
    }
}
