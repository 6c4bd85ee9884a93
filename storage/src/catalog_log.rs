//! The log of everything but feedback: the registry, items, and the features given for them.
//!
//! Each commit is one atomic write under the next *revision*. In a node on its own the database is
//! the log. In a cluster the owner appends each commit to a replicated log first, and the other
//! nodes apply it, as with the shards of the observation log ([`crate::Replica`]); so a revision is
//! the same on every node.

use std::sync::Arc;

use celeris_model::LogId;
use parking_lot::Mutex;

use crate::database::{Batch, Change, Column, Database, Durability};
use crate::error::StorageError;
use crate::health::Health;
use crate::layout::envelope::{corrupt, sealed, unseal};
use crate::layout::keys;
use crate::log::{Journal, JournalError};
use celeris_model::wire::{Reader, Writer};

/// The changes of one commit, in order.
pub(crate) type Changes = Vec<Change>;

/// Bytes of changes after which a commit to a replicated log ends.
const REPLICATED_BYTES: usize = 256 << 10;

/// Maximum bytes of a commit to a replicated log, whose messages are limited.
const REPLICATED_BYTES_MAX: usize = 960 << 10;

/// Where commits become durable.
enum Target {
    /// In the database.
    Local,
    /// In a replicated log; `None` while another node owns it.
    Replicated(Option<Box<dyn Journal>>),
}

struct State {
    /// Of the last commit.
    revision: u64,
    target: Target,
}

pub(crate) struct CatalogLog {
    database: Arc<Database>,
    health: Arc<Health>,
    is_replica: bool,
    state: Mutex<State>,
}

impl CatalogLog {
    /// Reads the last revision.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub(crate) fn open(database: Arc<Database>, health: Arc<Health>, is_replica: bool) -> Result<Self, StorageError> {
        let revision = match database.get(Column::Cursors, keys::REVISION)? {
            Some(value) => Reader(unseal(Column::Cursors, keys::REVISION, &value)?)
                .varint()
                .ok_or_else(|| corrupt(Column::Cursors, keys::REVISION, "it is not a revision"))?,
            None => 0,
        };
        let target = if is_replica { Target::Replicated(None) } else { Target::Local };
        Ok(Self { database, health, is_replica, state: Mutex::new(State { revision, target }) })
    }

    /// Bytes of changes after which a writer of many ends a commit.
    pub(crate) fn commit_bytes(&self) -> usize {
        if self.is_replica { REPLICATED_BYTES } else { usize::MAX }
    }

    /// Commits the changes that `fill` returns for the next revision, which is returned once they
    /// are durable.
    ///
    /// # Errors
    /// `Poisoned`, `Closed`, `NotOwner`, `Fenced`, `CommitTooLarge` or `Database`; a failed write poisons
    /// the store.
    pub(crate) fn commit(&self, fill: impl FnOnce(u64) -> Changes) -> Result<u64, StorageError> {
        self.health.check_open()?;
        let mut state = self.state.lock();
        let revision = state.revision + 1;
        let changes = fill(revision);
        if changes.is_empty() {
            return Ok(state.revision);
        }
        let mut batch = self.batch_of(revision, &changes);
        let durability = match &mut state.target {
            Target::Local => Durability::Synced,
            Target::Replicated(None) => return Err(StorageError::NotOwner),
            Target::Replicated(Some(journal)) => {
                let commit = encode(&changes);
                if commit.len() > REPLICATED_BYTES_MAX {
                    let (bytes, bytes_max) = (commit.len(), REPLICATED_BYTES_MAX);
                    return Err(StorageError::CommitTooLarge { bytes, bytes_max });
                }
                match journal.append(&commit) {
                    Ok(cursor) => {
                        put_cursor(&mut batch, &cursor);
                        Durability::Buffered
                    }
                    Err(error) => {
                        state.target = Target::Replicated(None);
                        return Err(match error {
                            JournalError::Fenced => StorageError::Fenced,
                            JournalError::Stopped { reason } => StorageError::Poisoned { cause: reason.into() },
                        });
                    }
                }
            }
        };
        self.write(batch, durability)?;
        state.revision = revision;
        Ok(revision)
    }

    /// The position in the replicated log up to which the database is complete; `None` if nothing
    /// of it was written.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub(crate) fn cursor(&self) -> Result<Option<Vec<u8>>, StorageError> {
        let Some(value) = self.database.get(Column::Cursors, keys::CATALOG_CURSOR)? else { return Ok(None) };
        Ok(Some(unseal(Column::Cursors, keys::CATALOG_CURSOR, &value)?.to_vec()))
    }

    /// Writes a commit of another owner, and the cursor after it. Without changes, only the cursor.
    /// Returns the changes.
    ///
    /// # Errors
    /// `Diverged` if it cannot be decoded or this node owns the log; `Poisoned`, `Closed` or
    /// `Database`.
    pub(crate) fn apply(&self, commit: &[u8], cursor: &[u8]) -> Result<Changes, StorageError> {
        self.health.check_open()?;
        let diverged = |reason: &str| StorageError::Diverged { log: LogId::Catalog, reason: reason.to_owned() };
        let mut state = self.state.lock();
        if !matches!(state.target, Target::Replicated(None)) {
            return Err(diverged("this node owns it and has written its commits itself"));
        }
        let changes = decode(commit).ok_or_else(|| diverged("a commit cannot be decoded"))?;
        let revision = state.revision + u64::from(!changes.is_empty());
        let mut batch = self.batch_of(revision, &changes);
        put_cursor(&mut batch, cursor);
        self.write(batch, Durability::Buffered)?;
        state.revision = revision;
        Ok(changes)
    }

    /// Begins a term, in which this node owns the replicated log.
    ///
    /// # Errors
    /// `Poisoned` or `Closed`.
    pub(crate) fn begin_term(&self, journal: Box<dyn Journal>) -> Result<(), StorageError> {
        self.health.check_open()?;
        self.state.lock().target = Target::Replicated(Some(journal));
        Ok(())
    }

    /// Ends the term once a running commit has ended.
    pub(crate) fn end_term(&self) {
        let mut state = self.state.lock();
        if let Target::Replicated(journal) = &mut state.target {
            *journal = None;
        }
    }

    fn batch_of(&self, revision: u64, changes: &Changes) -> Batch<'_> {
        let mut batch = self.database.batch();
        changes.iter().for_each(|change| batch.change(change));
        let mut value = Writer(Vec::new());
        value.varint(revision);
        batch.put(Column::Cursors, keys::REVISION, &sealed(keys::REVISION, &value.0));
        batch
    }

    /// A failure also poisons the observation log: both share the write-ahead log, whose state is
    /// then unknown.
    fn write(&self, batch: Batch<'_>, durability: Durability) -> Result<(), StorageError> {
        batch.commit(durability).inspect_err(|error| self.health.poison(&error.to_string()))
    }
}

fn put_cursor(batch: &mut Batch<'_>, cursor: &[u8]) {
    batch.put(Column::Cursors, keys::CATALOG_CURSOR, &sealed(keys::CATALOG_CURSOR, cursor));
}

/// The columns that commits change; the index is part of the form.
const COLUMNS: [Column; 5] =
    [Column::Registry, Column::Items, Column::ItemFeatures, Column::Frozen, Column::ObservedItems];

const PUT: u64 = 0;
const DELETE: u64 = 1;
const DELETE_PREFIX: u64 = 2;

/// The form of a commit in a replicated log: for each change three times its column plus its kind,
/// its key, and the value of a put.
fn encode(changes: &Changes) -> Vec<u8> {
    let mut commit = Writer(Vec::new());
    for change in changes {
        let (kind, key) = match change {
            Change::Put(_, key, _) => (PUT, key),
            Change::Delete(_, key) => (DELETE, key),
            Change::DeletePrefix(_, prefix) => (DELETE_PREFIX, prefix),
        };
        let column = COLUMNS.iter().position(|known| *known == change.column()).expect("commits change these columns");
        commit.varint(3 * column as u64 + kind);
        commit.bytes(key);
        if let Change::Put(_, _, value) = change {
            commit.bytes(value);
        }
    }
    commit.0
}

fn decode(commit: &[u8]) -> Option<Changes> {
    let mut reader = Reader(commit);
    let mut changes = Vec::new();
    while !reader.0.is_empty() {
        let tag = reader.varint()?;
        let column = *COLUMNS.get(usize::try_from(tag / 3).ok()?)?;
        let key = reader.bytes()?.to_vec();
        changes.push(match tag % 3 {
            PUT => Change::Put(column, key, reader.bytes()?.to_vec()),
            DELETE => Change::Delete(column, key),
            _ => Change::DeletePrefix(column, key),
        });
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_keep_their_form() {
        let changes = vec![
            Change::Put(Column::Registry, b"k".to_vec(), b"value".to_vec()),
            Change::Delete(Column::Items, b"i".to_vec()),
            Change::DeletePrefix(Column::Frozen, b"p".to_vec()),
        ];
        let commit = encode(&changes);
        assert_eq!(keys::hex(&commit), "00016b0576616c75650401690b0170");
        assert_eq!(decode(&commit), Some(changes));
        assert_eq!(decode(&commit[..commit.len() - 1]), None);
        assert_eq!(decode(&[15, 0]), None);
    }
}
