//! Applies the log of another owner to this node's copy.

use std::sync::Arc;

use bytes::Bytes;
use celeris_model::LogId;
use celeris_storage::Storage;

use crate::batch::{Batch, Body};
use crate::chain::{Break, Cursor};
use crate::error::ClusterError;
use crate::hooks::Hooks;
use crate::log_state::{LogState, Problem};
use crate::reader::{Message, Reader};
use crate::streams::{Link, short_name};

/// A copy that follows its log.
pub(crate) struct Follower<'a> {
    place: (LogId, u64),
    storage: &'a Arc<Storage>,
    hooks: &'a Arc<dyn Hooks>,
    state: &'a Arc<LogState>,
    catalog: &'a Arc<LogState>,
    cursor: Cursor,
    reader: Option<Reader>,
}

impl<'a> Follower<'a> {
    pub(crate) fn new(
        place: (LogId, u64),
        storage: &'a Arc<Storage>,
        hooks: &'a Arc<dyn Hooks>,
        state: &'a Arc<LogState>,
        catalog: &'a Arc<LogState>,
    ) -> Self {
        Self { place, storage, hooks, state, catalog, cursor: Cursor::default(), reader: None }
    }

    pub(crate) fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Goes on where the copy ends.
    pub(crate) async fn resume(&mut self, link: &Link) -> Result<(), Problem> {
        let (log, storage) = (self.place.0, Arc::clone(self.storage));
        let read = tokio::task::spawn_blocking(move || {
            let replica = storage.replica().ok_or("the store is none of a cluster")?;
            let Some(cursor) = replica.cursor(log).map_err(|error| error.to_string())? else {
                return Ok(Cursor::default());
            };
            Cursor::decode(&cursor).ok_or_else(|| "its cursor is of a version that is not known".to_owned())
        });
        let cursor = read.await.map_err(|error| error.to_string()).flatten();
        self.cursor = cursor.map_err(|reason| Problem::Store { reason })?;
        self.state.advance(&self.cursor);
        tracing::debug!(stream = link.stream, position = %self.cursor, "following");
        Ok(())
    }

    pub(crate) fn close(&mut self) {
        self.reader = None;
    }

    /// The next messages. Nothing is lost if the caller stops waiting.
    pub(crate) async fn read(&mut self, link: &Link) -> Result<Vec<Message>, Problem> {
        let last = self.cursor.sequence;
        let reader = self.reader.get_or_insert_with(|| Reader::start(link.clone(), last));
        reader.next().await
    }

    /// Applies messages. If the caller stops waiting, the follower must resume.
    pub(crate) async fn apply(&mut self, messages: Vec<Message>) -> Result<(), Problem> {
        let (batches, broken) = self.checked(messages);
        if let Some((_, last)) = batches.last() {
            let last = last.clone();
            self.wait_for_catalog(&batches).await;
            self.write(batches).await.map_err(|reason| Problem::Store { reason })?;
            self.cursor = last;
        }
        broken.map_or(Ok(()), |reason| Err(Problem::Broken { reason: reason.to_string() }))
    }

    /// The batches up to the first that does not follow, each with the position after it.
    fn checked(&self, messages: Vec<Message>) -> (Vec<(Batch, Cursor)>, Option<Break>) {
        let (mut cursor, mut batches) = (self.cursor.clone(), Vec::with_capacity(messages.len()));
        for (sequence, message) in messages {
            match cursor.follow(self.place, sequence, &message) {
                Ok((next, batch)) => {
                    batches.push((batch, next.clone()));
                    cursor = next;
                }
                Err(reason) => return (batches, Some(reason)),
            }
        }
        (batches, None)
    }

    /// Batches are applied after what their writer has seen of the catalog.
    async fn wait_for_catalog(&self, batches: &[(Batch, Cursor)]) {
        let seen = batches.iter().map(|(batch, _)| batch.header.catalog).max().unwrap_or(0);
        if self.place.0 != LogId::Catalog {
            self.catalog.wait_applied(seen).await;
        }
    }

    async fn write(&self, batches: Vec<(Batch, Cursor)>) -> Result<(), String> {
        let log = self.place.0;
        metrics::counter!("celeris_cluster_applied_batches_total", "log" => short_name(log))
            .increment(batches.len() as u64);
        let (storage, hooks, state) = (Arc::clone(self.storage), Arc::clone(self.hooks), Arc::clone(self.state));
        let written = tokio::task::spawn_blocking(move || -> Result<(), String> {
            let replica = storage.replica().ok_or("the store is none of a cluster")?;
            for (batch, cursor) in batches {
                let (group, is_group) = match batch.body {
                    Body::Group(group) => (group, true),
                    Body::Epoch | Body::Release | Body::Alive => (Bytes::new(), false),
                };
                let applied = replica.apply(log, &group, &cursor.encode(), |group| hooks.applying(group));
                let applied = applied.map_err(|error| error.to_string())?;
                if is_group {
                    hooks.applied(log, applied);
                }
                state.advance(&cursor);
            }
            Ok(())
        });
        written.await.map_err(|error| error.to_string()).flatten()
    }
}

/// The position of a log up to which a store is complete.
pub(crate) fn end_of(storage: &Storage, log: LogId) -> Result<u64, ClusterError> {
    let replica = storage.replica().ok_or(ClusterError::NotAReplica)?;
    let cursor = replica.cursor(log)?.and_then(|cursor| Cursor::decode(&cursor)).unwrap_or_default();
    Ok(cursor.sequence)
}
