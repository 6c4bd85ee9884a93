//! Shards whose log is replicated.
//!
//! The replicated log of a shard is outside of this crate. Its owner appends each group there
//! ([`Journal`]) before the group is written to the database; the other nodes read the groups from
//! there and write them too ([`crate::Replica::apply`]). In both cases the write contains the
//! *cursor*, the position in the replicated log up to which the database is complete, and is not
//! synced: after a crash a node reads on from the cursor that it finds.

use std::collections::HashMap;
use std::time::Duration;

use celeris_model::{ItemId, LogId, Partition, Record, RecordKind, Sequence, Shard, Shards, StreamName, UserId};

use super::commit::{Commit, CommitError};
use super::entries::{self, Entry, RecordEntry};
use super::prepare::{self, Attached};
use super::progress::Ticket;
use super::queue::{Group, Work};
use super::watermark::Watermark;
use super::{Log, Records, committer};
use crate::database::{Batch, Column, Durability};
use crate::error::StorageError;
use crate::layout::envelope::{sealed, unseal};
use crate::layout::keys;

/// Why a group was not appended to a replicated log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalError {
    /// Another node owns the shard, and the group is not in its log.
    Fenced,
    /// The log takes no more groups from this node; whether it has this one is unknown.
    Stopped { reason: String },
}

/// A replicated log, as its owner appends to it.
pub trait Journal: Send {
    /// Appends one group or commit, and returns the cursor after it once it is durable. Blocks the thread.
    ///
    /// # Errors
    /// After one, the term ends and no further group is appended.
    fn append(&mut self, group: &[u8]) -> Result<Vec<u8>, JournalError>;

    /// The cursor at the end of the log, all groups of which were appended by [`Journal::append`]; `None` while it moves.
    fn end(&self) -> Option<Vec<u8>>;
}

/// What a group that was applied has changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AppliedGroup {
    /// Its records, in order.
    pub records: Vec<AppliedRecord>,
    /// The items whose features versions have frozen for the users of the shard.
    pub frozen: Vec<ItemId>,
    /// The users whose attributes were set or removed, but for those who were erased.
    pub described: Vec<(StreamName, UserId)>,
}

/// One record that was applied.
#[derive(Debug, Clone, PartialEq)]
pub struct AppliedRecord {
    pub stream: StreamName,
    pub sequence: Sequence,
    /// The record as it was requested.
    pub record: Record,
    /// Whether the item was noted as observed.
    pub notes_item: bool,
}

impl Log {
    /// The position in the replicated log of a shard up to which the database is complete; `None`
    /// if nothing of it was written.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub(crate) fn cursor(&self, shard: Shard) -> Result<Option<Vec<u8>>, StorageError> {
        let key = keys::cursor(shard);
        let Some(value) = self.records.database.get(Column::Cursors, &key)? else { return Ok(None) };
        Ok(Some(unseal(Column::Cursors, &key, &value)?.to_vec()))
    }

    /// See [`crate::Replica::apply`].
    pub(crate) fn apply(
        &self,
        shard: Shard,
        group: &[u8],
        cursor: &[u8],
        before: impl FnOnce(&AppliedGroup) -> Result<(), StorageError>,
    ) -> Result<AppliedGroup, StorageError> {
        let records = &self.records;
        records.health.check_open()?;
        let mut scratch = self.shard(shard).follow(shard)?;
        let entries = entries::decode(group).ok_or_else(|| StorageError::Diverged {
            log: LogId::Shard(shard),
            reason: "a group of it cannot be decoded".to_owned(),
        })?;
        let (group, applied) = prepared(records, (self.layout, shard), entries)?;
        before(&applied)?;
        let mut batch = committer::batch_of(records, shard, &group, &mut scratch);
        put_cursor(&mut batch, shard, cursor);
        let bytes = batch.bytes();
        batch.commit(Durability::Buffered).inspect_err(|error| records.health.poison(&error.to_string()))?;
        committer::publish(records, &group, bytes);
        Ok(applied)
    }

    /// See [`crate::Replica::begin_term`].
    pub(crate) fn begin_term(&self, shard: Shard, journal: Box<dyn Journal>) -> Result<(), StorageError> {
        self.records.health.check_open()?;
        self.shard(shard).begin(shard, &self.records, Box::new(Replicated { shard, journal }))
    }

    /// See [`crate::Replica::note_end`].
    pub(crate) fn note_end(&self, shard: Shard) -> Result<Ticket, StorageError> {
        self.shard(shard).in_term(|term| term.queue.push_note_of_end())
    }

    /// See [`crate::Replica::end_term`].
    pub(crate) fn end_term(&self, shard: Shard) {
        self.shard(shard).end();
    }
}

/// The longest time for which a group waits for further records.
const PATIENCE_MAX: Duration = Duration::from_millis(5);

/// The replicated log is the log: a group is durable once it is there.
struct Replicated {
    shard: Shard,
    journal: Box<dyn Journal>,
}

impl Commit for Replicated {
    fn commit(&mut self, group: &Group, mut batch: Batch<'_>) -> Result<(), CommitError> {
        let entries = entries::encode(group);
        let cursor = if entries.is_empty() {
            // All groups before are in the database.
            self.journal.end()
        } else {
            let appended = self.journal.append(&entries).map_err(|error| match error {
                JournalError::Fenced => CommitError::Fenced,
                JournalError::Stopped { reason } => CommitError::Stopped { reason },
            })?;
            Some(appended)
        };
        if let Some(cursor) = cursor {
            put_cursor(&mut batch, self.shard, &cursor);
        }
        batch.commit(Durability::Buffered).map_err(CommitError::Failed)
    }

    /// An append costs servers and followers about as much with one record as with many.
    fn patience(&self, last: Duration) -> Duration {
        (last / 2).min(PATIENCE_MAX)
    }
}

/// The works of decoded entries, and their records.
fn prepared(
    records: &Records,
    (layout, shard): (Shards, Shard),
    entries: Vec<Entry>,
) -> Result<(Group, AppliedGroup), StorageError> {
    let diverged = |reason| StorageError::Diverged { log: LogId::Shard(shard), reason };
    let item_of =
        |key: &[u8]| keys::frozen_item(key).ok_or_else(|| diverged("a key of frozen features is malformed".to_owned()));
    let mut last: HashMap<StreamName, Watermark> = HashMap::new();
    let (mut group, mut applied) = (Group::default(), AppliedGroup::default());
    for entry in entries {
        let RecordEntry { stream, sequence, record, frozen, notes_item } = match entry {
            Entry::Record(record) => record,
            Entry::Freeze(key, value) => {
                applied.frozen.push(item_of(&key)?);
                group.work.push(Work::Freeze(key, value));
                continue;
            }
            Entry::Source(source) => {
                group.work.push(Work::PassOver(source));
                continue;
            }
            Entry::Describe(key, value) => {
                let described = keys::described_user(&key);
                let of_shard = described.filter(|(_, user)| layout.of(Partition::of(user)) == shard);
                let of_shard = of_shard.ok_or_else(|| diverged("attributes are of no user of it".to_owned()))?;
                applied.described.push(of_shard);
                group.work.push(Work::Describe(key, value));
                continue;
            }
        };
        let partition = Partition::of(&record.user);
        let last = last.entry(stream.clone()).or_insert_with(|| records.watermark(&stream));
        let expected = last.get(partition).next();
        if layout.of(partition) != shard || sequence != expected {
            let partition = partition.index();
            let reason = format!("record {sequence} of partition {partition} of {stream}, expected {expected}");
            return Err(diverged(reason));
        }
        last.set(partition, sequence);
        for (key, _) in &frozen {
            applied.frozen.push(item_of(key)?);
        }
        let prepared = if record.kind == RecordKind::Observe {
            let id = record.observation_id.as_ref().map(|id| records.hashes.id(&stream, &record.user, id));
            prepare::observation(&stream, &record, Attached { id, frozen, notes_item, source: None })?
        } else {
            prepare::amendment(records, &stream, &record)?
        };
        group.bytes += prepared.bytes();
        group.work.push(Work::Append { sequence, prepared });
        applied.records.push(AppliedRecord { stream, sequence, record, notes_item });
    }
    Ok((group, applied))
}

fn put_cursor(batch: &mut Batch<'_>, shard: Shard, cursor: &[u8]) {
    let key = keys::cursor(shard);
    batch.put(Column::Cursors, &key, &sealed(&key, cursor));
}
