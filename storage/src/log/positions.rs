//! Positions in sources: how far each shard has taken the messages that observations are ingested from.
//!
//! The position of a message is in the same batch as its record, and in the same group of a replicated log. So a
//! record and its position survive a crash together or not at all, and the next owner of the shard reads on after it: each
//! message counts once. A message without a record of its own, because its observation was known already or was
//! refused, is passed over: its position alone is written, in the order of the log.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use celeris_model::wire::{Reader, Writer};
use celeris_model::{Shard, Shards, SourceId};
use parking_lot::Mutex;

use super::Log;
use super::progress::Ticket;
use super::queue::{Group, Prepared, Work};
use super::shard::Term;
use crate::database::{Access, Batch, Column, Database, Durability};
use crate::error::StorageError;
use crate::layout::envelope::{corrupt, sealed, unseal};
use crate::layout::keys;

/// A message of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePosition {
    pub source: SourceId,
    /// Its number in the source. Numbers grow, and may have gaps.
    pub offset: u64,
}

impl SourcePosition {
    /// Bytes that it takes in a queue.
    pub(super) fn bytes(&self) -> usize {
        self.source.as_str().len() + size_of::<u64>()
    }
}

impl Log {
    /// The offset of the last message of a source that a shard has taken; `None` if it has taken none.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn source_position(&self, shard: Shard, source: &SourceId) -> Result<Option<u64>, StorageError> {
        let key = keys::source_position(shard, source);
        let Some(value) = self.records.database.get(Column::Cursors, &key)? else { return Ok(None) };
        decode(&key, &value).map(Some)
    }

    /// Enqueues the position of a message of which a shard writes nothing else. Its order relative to appends is that
    /// of the calls.
    ///
    /// # Errors
    /// `MessageTaken`, `Overloaded`, `Poisoned`, `Closed`, `NotOwner` or `Fenced`, with nothing enqueued; or errors of
    /// reading.
    pub fn pass_over(&self, shard: Shard, message: &SourcePosition) -> Result<Ticket, StorageError> {
        self.records.health.check_open()?;
        self.shard(shard).in_term(|term| self.take(term, shard, message, || term.queue.push_position(message.clone())))
    }

    /// Enqueues a message by `push`, unless its shard has it or a later one of its source already.
    pub(super) fn take<T>(
        &self,
        term: &Term,
        shard: Shard,
        SourcePosition { source, offset }: &SourcePosition,
        push: impl FnOnce() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let mut taken = term.sources.last.lock();
        let last = match taken.get(source) {
            Some(last) => Some(*last),
            None => self.source_position(shard, source)?,
        };
        if last.is_some_and(|last| *offset <= last) {
            return Err(StorageError::MessageTaken { message_source: source.clone(), offset: *offset });
        }
        let pushed = push()?;
        taken.insert(source.clone(), *offset);
        Ok(pushed)
    }
}

/// The last message of each source that was enqueued in a term. Held while one is enqueued, so that positions are
/// enqueued in their order.
#[derive(Default)]
pub(super) struct TakenMessages {
    last: Mutex<HashMap<SourceId, u64>>,
}

/// Writes the last position of each source in a group.
pub(super) fn put_last(batch: &mut Batch, shard: Shard, group: &Group) {
    let mut last = BTreeMap::new();
    for work in &group.work {
        if let Work::Append { prepared: Prepared { source: Some(message), .. }, .. } | Work::PassOver(message) = work {
            last.insert(&message.source, message.offset);
        }
    }
    for (source, offset) in last {
        let key = keys::source_position(shard, source);
        batch.put(Column::Cursors, &key, &encode(&key, offset));
    }
}

/// Copies the positions of a node on its own, in its only shard, to all shards of a cluster.
///
/// # Errors
/// `Corrupt`, `CorruptLog` or `Database`; the call can be repeated.
pub(crate) fn copy_for_all(database: &Database, shards: Shards) -> Result<(), StorageError> {
    let mut batch = database.batch();
    database.scan(Column::Cursors, keys::all_source_positions(), Access::Sweep, |key, value| {
        let offset = decode(key, value)?;
        let source = keys::source_of_position(key)
            .ok_or_else(|| corrupt(Column::Cursors, key, "its key names no source of messages"))?;
        for shard in shards.all() {
            let key = keys::source_position(shard, &source);
            batch.put(Column::Cursors, &key, &encode(&key, offset));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    batch.commit(Durability::Synced)
}

fn encode(key: &[u8], offset: u64) -> Vec<u8> {
    let mut value = Writer(Vec::new());
    value.varint(offset);
    sealed(key, &value.0)
}

fn decode(key: &[u8], value: &[u8]) -> Result<u64, StorageError> {
    Reader(unseal(Column::Cursors, key, value)?)
        .varint()
        .ok_or_else(|| corrupt(Column::Cursors, key, "it is not a position"))
}
