//! A term: the time in which this node owns a log and appends to it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use celeris_model::LogId;
use celeris_storage::{Journal, JournalError};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::time::Instant;

use crate::append::{Appender, Outcome};
use crate::batch::{Batch, Body, Writer, checksum};
use crate::chain::{Cursor, Next};
use crate::log_state::LogState;
use crate::streams::short_name;

/// Why a term takes no more appends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TermEnd {
    /// Another node owns the log. What was to be appended is not in it.
    Fenced,
    /// Whether the log has the last batch is not known, or it cannot have it.
    Stopped(String),
    Released,
}

/// What a term is made of.
pub(crate) struct TermParts {
    pub(crate) appender: Appender,
    pub(crate) place: (LogId, u64),
    pub(crate) writer: Writer,
    pub(crate) state: Arc<LogState>,
    pub(crate) catalog: Arc<LogState>,
    pub(crate) lease: Duration,
    /// Groups are acknowledged, and the log is released, from then on: until then the previous owner may
    /// take itself for one.
    pub(crate) acks_from: Instant,
}

pub(crate) struct Term {
    parts: TermParts,
    /// The end of the log. Locked while one append is on its way.
    tail: Mutex<Cursor>,
    end: watch::Sender<Option<TermEnd>>,
    runtime: Handle,
}

impl Term {
    /// Begins after the claim, at `tail`. Must be called in a runtime.
    pub(crate) fn new(parts: TermParts, tail: Cursor) -> Self {
        Self { parts, tail: Mutex::new(tail), end: watch::Sender::new(None), runtime: Handle::current() }
    }

    /// Waits until the term takes no more appends.
    pub(crate) async fn ended(&self) -> TermEnd {
        match self.end.subscribe().wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(TermEnd::Released),
            // Cannot be: `self` holds the sender.
            Err(_) => TermEnd::Released,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// The end of the log. Nothing is appended as long as it is held.
    pub(crate) async fn hold(&self) -> MutexGuard<'_, Cursor> {
        self.tail.lock().await
    }

    /// Appends one batch. Goes on if the caller stops waiting, so that the end of the log is known.
    pub(crate) async fn append(self: &Arc<Self>, body: Body) -> Result<Cursor, TermEnd> {
        let term = Arc::clone(self);
        let appended = self.runtime.spawn(async move { term.append_in_turn(body).await });
        appended.await.unwrap_or_else(|error| Err(TermEnd::Stopped(error.to_string())))
    }

    /// Appends that this node still owns the log, unless the lease says so: one append for all who wait.
    pub(crate) async fn confirm(self: &Arc<Self>) -> Result<(), TermEnd> {
        let term = Arc::clone(self);
        let confirmed = self.runtime.spawn(async move {
            let mut tail = term.tail.lock().await;
            if term.parts.state.is_leased() {
                return Ok(());
            }
            term.append_at(&mut tail, Body::Alive).await
        });
        confirmed.await.unwrap_or_else(|error| Err(TermEnd::Stopped(error.to_string())))
    }

    /// Appends that this node still owns the log, whatever the lease says.
    pub(crate) async fn probe(self: &Arc<Self>) {
        // An error has ended the term, which its task sees.
        let _ = self.append(Body::Alive).await;
    }

    /// As [`Term::probe`], in the background, and not if an append is on its way: that says the same.
    pub(crate) fn renew(self: &Arc<Self>) {
        if self.tail.try_lock().is_ok() {
            let term = Arc::clone(self);
            self.runtime.spawn(async move { term.probe().await });
        }
    }

    async fn append_in_turn(&self, body: Body) -> Result<Cursor, TermEnd> {
        let mut tail = self.tail.lock().await;
        self.append_at(&mut tail, body).await?;
        Ok(tail.clone())
    }

    async fn append_at(&self, tail: &mut Cursor, body: Body) -> Result<(), TermEnd> {
        if let Some(end) = self.end.borrow().as_ref() {
            return Err(end.clone());
        }
        let TermParts { appender, place, writer, state, catalog, lease, acks_from } = &self.parts;
        let (is_group, is_release, is_alive) =
            (matches!(body, Body::Group(_)), body == Body::Release, body == Body::Alive);
        if is_release {
            // The next owner does not wait, and that before this one may answer by its lease until then.
            tokio::time::sleep_until(*acks_from).await;
        }
        let next = Next::InEpoch { writer: writer.clone(), catalog: catalog.applied() };
        let message = Batch { header: tail.next(place.0, place.1, next), body }.encode();
        metrics::histogram!("celeris_cluster_batch_bytes", "log" => short_name(place.0)).record(message.len() as f64);
        if is_alive {
            metrics::counter!("celeris_cluster_lease_renewals_total", "log" => short_name(place.0)).increment(1);
        }
        let outcome = appender.append(tail.sequence, &message).await;
        let Outcome::Appended { sent } = outcome else {
            let end = self.end_of(tail, &outcome, message.len());
            self.end.send_replace(Some(end.clone()));
            return Err(end);
        };
        tail.sequence += 1;
        tail.number += 1;
        tail.checksum = checksum(&message);
        tail.is_released = is_release;
        if is_group {
            tokio::time::sleep_until(*acks_from).await;
        }
        state.advance(tail);
        if is_release {
            self.end.send_replace(Some(TermEnd::Released));
        } else {
            state.extend_lease(sent + *lease);
        }
        Ok(())
    }

    /// Why an append that has failed ends the term.
    fn end_of(&self, tail: &Cursor, outcome: &Outcome, bytes: usize) -> TermEnd {
        match outcome {
            Outcome::Taken(found) => match tail.follow(self.parts.place, tail.sequence + 1, found) {
                Ok((_, Batch { body: Body::Epoch, header })) => {
                    let log = short_name(self.parts.place.0);
                    tracing::warn!(log, owner = %header.writer.node, epoch = header.epoch, "another node owns the log");
                    metrics::counter!("celeris_cluster_fenced_total", "log" => log).increment(1);
                    TermEnd::Fenced
                }
                Ok((_, batch)) => TermEnd::Stopped(format!("another {} is in its place", batch.body.name())),
                Err(reason) => TermEnd::Stopped(format!("the log is broken: {reason}")),
            },
            Outcome::Trimmed => TermEnd::Stopped("its place was trimmed meanwhile".to_owned()),
            Outcome::TooLarge => {
                let bytes_max = self.parts.appender.bytes_max;
                TermEnd::Stopped(format!(
                    "a batch takes {bytes} bytes, more than the {bytes_max} that a message may have"
                ))
            }
            Outcome::Aborted | Outcome::Appended { .. } => TermEnd::Stopped("the node stops".to_owned()),
        }
    }
}

/// The log, as the store appends to it.
pub(crate) struct TermJournal(pub(crate) Arc<Term>);

impl Journal for TermJournal {
    fn append(&mut self, group: &[u8]) -> Result<Vec<u8>, JournalError> {
        let body = Body::Group(Bytes::copy_from_slice(group));
        // On this thread, without a way through another: that would be two more switches for each append. The thread may
        // be one of a runtime, which its own `block_on` refuses.
        let _entered = self.0.runtime.enter();
        match futures_executor::block_on(self.0.append_in_turn(body)) {
            Ok(cursor) => Ok(cursor.encode()),
            Err(TermEnd::Fenced) => Err(JournalError::Fenced),
            Err(TermEnd::Stopped(reason)) => Err(JournalError::Stopped { reason }),
            Err(TermEnd::Released) => Err(JournalError::Stopped { reason: "the node stops".to_owned() }),
        }
    }

    fn end(&self) -> Option<Vec<u8>> {
        self.0.tail.try_lock().ok().map(|tail| tail.encode())
    }
}
