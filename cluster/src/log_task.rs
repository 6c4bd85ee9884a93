//! The life of a log on this node: it is followed, claimed, owned, released, and followed again.

use std::sync::Arc;

use celeris_model::LogId;
use celeris_storage::{Storage, StorageError};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, interval};

use crate::append::{Appender, Outcome};
use crate::batch::{Batch, Body, Writer, checksum};
use crate::chain::{Cursor, Next};
use crate::follower::Follower;
use crate::hooks::Hooks;
use crate::log_state::{LogState, Phase, Problem, Wish};
use crate::members::Members;
use crate::options::Timing;
use crate::streams::short_name;
use crate::term::{Term, TermEnd, TermJournal, TermParts};

/// How often a log that is to be claimed is looked at.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

/// The current term of a log, for those who confirm it.
pub(crate) type TermSlot = Mutex<Option<Arc<Term>>>;

/// What the task of a log works on.
pub(crate) struct LogTask {
    pub(crate) place: (LogId, u64),
    pub(crate) writer: Writer,
    pub(crate) storage: Arc<Storage>,
    pub(crate) hooks: Arc<dyn Hooks>,
    pub(crate) state: Arc<LogState>,
    pub(crate) catalog: Arc<LogState>,
    pub(crate) term: Arc<TermSlot>,
    pub(crate) appender: Appender,
    pub(crate) members: Arc<Mutex<Members>>,
    pub(crate) timing: Timing,
}

/// A claim that has landed.
struct Claimed {
    /// The position after it.
    cursor: Cursor,
    /// When the previous owner has noticed.
    acks_from: Instant,
    lease_until: Instant,
}

impl LogTask {
    /// Runs until the wish is to stop.
    pub(crate) async fn run(self) {
        let mut wish = self.state.wish.subscribe();
        loop {
            let end = match self.follow(&mut wish).await {
                Ok(Some(claimed)) => self.own(claimed, &mut wish).await,
                Ok(None) => return,
                Err(problem) => Err(problem),
            };
            if let Err(problem) = end {
                if matches!(problem, Problem::Broken { .. }) {
                    metrics::counter!("celeris_cluster_chain_breaks_total", "log" => self.name()).increment(1);
                }
                self.state.report(problem);
                self.state.enter(Phase::Stuck);
                let _ = wish.wait_for(|wish| *wish == Wish::Stop).await;
                return;
            }
        }
    }

    fn name(&self) -> String {
        short_name(self.place.0)
    }

    /// Follows the log until this node's claim has landed, or the node stops.
    async fn follow(&self, wish: &mut watch::Receiver<Wish>) -> Result<Option<Claimed>, Problem> {
        let mut follower = Follower::new(self.place, &self.storage, &self.hooks, &self.state, &self.catalog);
        follower.resume(&self.appender.link).await?;
        self.state.enter(Phase::Following);
        let mut look = interval(LOOK);
        let mut wanted_since: Option<Instant> = None;
        // A position that another claim or batch has taken: it is read before the next claim.
        let mut read_first = 0;
        loop {
            let wished = *wish.borrow_and_update();
            match wished {
                Wish::Stop => return Ok(None),
                Wish::Follow => wanted_since = None,
                Wish::Own => {
                    let since = *wanted_since.get_or_insert_with(Instant::now);
                    if follower.cursor().sequence >= read_first && self.may_claim(follower.cursor(), since).await {
                        match self.claim(follower.cursor(), since).await {
                            Claim::Landed(claimed) => return Ok(Some(claimed)),
                            Claim::Taken => read_first = follower.cursor().sequence + 1,
                            Claim::Trimmed => follower.close(),
                            Claim::Aborted => return Ok(None),
                        }
                        self.state.enter(Phase::Following);
                    }
                }
            }
            tokio::select! {
                read = follower.read(&self.appender.link) => match read {
                    Ok(messages) => tokio::select! {
                        applied = follower.apply(messages) => applied?,
                        () = stopped(wish) => return Ok(None),
                    },
                    Err(problem) if problem.is_passable() => self.state.report(problem),
                    Err(problem) => return Err(problem),
                },
                _ = wish.changed() => {}
                _ = look.tick(), if wished == Wish::Own => {}
            }
        }
    }

    /// Whether to claim the log now: it is read to its end, and its owner has released it, is dead,
    /// or takes too long.
    async fn may_claim(&self, cursor: &Cursor, wanted_since: Instant) -> bool {
        let now = Instant::now();
        let is_free =
            cursor.owner().is_none_or(|owner| *owner == self.writer.node || !self.members.lock().may_live(now, owner));
        if !is_free && now < wanted_since + self.timing.release_wait {
            return false;
        }
        // If the leader is deposed and says less, the claim does not land.
        self.appender.link.extent().await.is_ok_and(|extent| extent.last <= cursor.sequence)
    }

    /// Appends a claim after `cursor`.
    async fn claim(&self, cursor: &Cursor, wanted_since: Instant) -> Claim {
        self.state.enter(Phase::Claiming);
        let next = Next::Claim { writer: self.writer.clone(), catalog: self.catalog.applied() };
        let header = cursor.next(self.place.0, self.place.1, next);
        let message = Batch { header, body: Body::Epoch }.encode();
        match self.appender.append(cursor.sequence, &message).await {
            Outcome::Appended { sent } => {
                let landed = Instant::now();
                // Nobody answers by a lease once an owner has released the log, which it does after its own wait. An
                // earlier term of this process may have ended within that.
                let is_leased = cursor.writer.is_some() && !cursor.is_released;
                let acks_from = if is_leased { landed + self.timing.lease + self.timing.lease / 10 } else { landed };
                let claimed = Cursor {
                    sequence: cursor.sequence + 1,
                    checksum: checksum(&message),
                    epoch: cursor.epoch + 1,
                    number: 0,
                    writer: Some(self.writer.clone()),
                    is_released: false,
                };
                metrics::counter!("celeris_cluster_takeovers_total", "log" => self.name()).increment(1);
                metrics::histogram!("celeris_cluster_takeover_seconds").record(wanted_since.elapsed());
                tracing::info!(log = self.name(), epoch = claimed.epoch, "this node owns the log");
                Claim::Landed(Claimed { cursor: claimed, acks_from, lease_until: sent + self.timing.lease })
            }
            Outcome::Taken(_) | Outcome::TooLarge => Claim::Taken,
            Outcome::Trimmed => Claim::Trimmed,
            Outcome::Aborted => Claim::Aborted,
        }
    }

    /// Owns the log until it is to be given up or is taken away.
    async fn own(&self, claimed: Claimed, wish: &mut watch::Receiver<Wish>) -> Result<(), Problem> {
        let parts = TermParts {
            appender: self.appender.clone(),
            place: self.place,
            writer: self.writer.clone(),
            state: Arc::clone(&self.state),
            catalog: Arc::clone(&self.catalog),
            lease: self.timing.lease,
            acks_from: claimed.acks_from,
        };
        let term = Arc::new(Term::new(parts, claimed.cursor.clone()));
        let journal = TermJournal(Arc::clone(&term));
        let cursor = claimed.cursor.encode();
        let begun = self.blocking(move |log, storage, hooks| {
            let replica = storage.replica().ok_or(StorageError::Closed)?;
            replica.apply(log, &[], &cursor, |_| Ok(()))?;
            replica.begin_term(log, Box::new(journal))?;
            hooks.term_began(log);
            Ok(())
        });
        if let Err(reason) = begun.await {
            // So that another node need not wait for this one.
            let _ = term.append(Body::Release).await;
            return Err(Problem::Store { reason });
        }
        self.state.advance(&claimed.cursor);
        self.state.extend_lease(claimed.lease_until);
        *self.term.lock() = Some(Arc::clone(&term));
        self.state.enter(Phase::Owning);
        metrics::gauge!("celeris_cluster_epoch", "log" => self.name()).set(claimed.cursor.epoch as f64);
        tokio::select! {
            _ = wish.wait_for(|wish| *wish != Wish::Own) => {}
            end = term.ended() => tracing::warn!(log = self.name(), ?end, "the term has ended"),
        }
        self.release(&term).await
    }

    async fn release(&self, term: &Arc<Term>) -> Result<(), Problem> {
        self.state.enter(Phase::Releasing);
        *self.term.lock() = None;
        let problem = |reason| Problem::Store { reason };
        let ended = self.blocking(|log, storage, hooks| {
            hooks.releasing(log);
            storage.replica().ok_or(StorageError::Closed)?.end_term(log);
            Ok(())
        });
        let ended = ended.await;
        if !term.has_ended() {
            match term.append(Body::Release).await {
                Ok(_) | Err(TermEnd::Released | TermEnd::Fenced) => {}
                Err(TermEnd::Stopped(reason)) => tracing::warn!(log = self.name(), reason, "the log is not released"),
            }
        }
        let forgotten = self.blocking(|log, _, hooks| {
            hooks.term_ended(log);
            Ok(())
        });
        forgotten.await.and(ended).map_err(problem)
    }

    /// Runs `work` on a thread that may block.
    async fn blocking(
        &self,
        work: impl FnOnce(LogId, &Storage, &Arc<dyn Hooks>) -> Result<(), StorageError> + Send + 'static,
    ) -> Result<(), String> {
        let (log, storage, hooks) = (self.place.0, Arc::clone(&self.storage), Arc::clone(&self.hooks));
        let done = tokio::task::spawn_blocking(move || work(log, &storage, &hooks)).await;
        done.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }
}

/// What became of a claim.
enum Claim {
    Landed(Claimed),
    Taken,
    Trimmed,
    Aborted,
}

async fn stopped(wish: &watch::Receiver<Wish>) {
    let mut wish = wish.clone();
    let _ = wish.wait_for(|wish| *wish == Wish::Stop).await;
}
