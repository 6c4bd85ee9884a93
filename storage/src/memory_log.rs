//! Replicated logs in memory, for tests of several stores in one process.

use std::sync::Arc;

use celeris_model::LogId;
use parking_lot::Mutex;

use crate::error::StorageError;
use crate::log::{Journal, JournalError};
use crate::replica::Replica;

/// A replicated log: what was appended, in order, and the node that may append. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryLog {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    entries: Vec<Vec<u8>>,
    owner: usize,
}

/// The log as one node appends to it.
struct Owned {
    log: MemoryLog,
    owner: usize,
}

impl Journal for Owned {
    fn append(&mut self, entries: &[u8]) -> Result<Vec<u8>, JournalError> {
        let mut log = self.log.shared.lock();
        if log.owner != self.owner {
            return Err(JournalError::Fenced);
        }
        log.entries.push(entries.to_vec());
        Ok(cursor_at(log.entries.len()))
    }

    fn end(&self) -> Option<Vec<u8>> {
        let log = self.log.shared.lock();
        (log.owner == self.owner).then(|| cursor_at(log.entries.len()))
    }
}

impl MemoryLog {
    /// The number of groups or commits that were appended.
    #[must_use]
    pub fn end(&self) -> usize {
        self.shared.lock().entries.len()
    }

    /// The groups or commits that were appended.
    #[must_use]
    pub fn entries(&self) -> Vec<Vec<u8>> {
        self.shared.lock().entries.clone()
    }

    /// The node that may append.
    #[must_use]
    pub fn owner(&self) -> usize {
        self.shared.lock().owner
    }

    /// Lets `owner` append from now on, and no other node: begins its term. The caller guarantees
    /// that its store has applied everything.
    ///
    /// # Errors
    /// As [`Replica::begin_term`].
    pub fn begin(&self, (owner, replica): (usize, Replica<'_>), log: LogId) -> Result<(), StorageError> {
        self.shared.lock().owner = owner;
        replica.begin_term(log, Box::new(Owned { log: self.clone(), owner }))
    }

    /// Applies to a store what it lacks.
    ///
    /// # Errors
    /// As [`Replica::apply`].
    pub fn follow(&self, replica: Replica<'_>, log: LogId) -> Result<(), StorageError> {
        let from = position_of(replica.cursor(log)?);
        for (at, entries) in self.entries().iter().enumerate().skip(from) {
            replica.apply(log, entries, &cursor_at(at + 1), |_| Ok(()))?;
        }
        Ok(())
    }
}

/// The cursor behind this number of entries.
#[must_use]
pub fn cursor_at(position: usize) -> Vec<u8> {
    position.to_le_bytes().to_vec()
}

/// The number of entries before a cursor.
///
/// # Panics
/// If it is not a cursor of a log in memory.
#[must_use]
pub fn position_of(cursor: Option<Vec<u8>>) -> usize {
    cursor.map_or(0, |cursor| usize::from_le_bytes(cursor.try_into().expect("a cursor of a log in memory")))
}
