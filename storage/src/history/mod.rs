//! Histories of users: their events, and snapshots of their states. Reads return durable records
//! only.

mod snapshots;
mod spans;

use std::ops::ControlFlow;

use celeris_model::{Partition, Record, Sequence, StreamName, UserEpoch, UserId};

pub use self::snapshots::Snapshot;
pub use self::spans::HistorySpan;
use crate::database::{Access, Column, Database, KeyRange, after_prefix};
use crate::error::StorageError;
use crate::faults;
use crate::layout::envelope::corrupt;
use crate::layout::event::{Entry, Event};
use crate::layout::hashing::Hashes;
use crate::layout::keys;
use crate::log::{Log, Lookup, reading};

/// A user's events from which states learn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Events {
    /// The observations that were not removed, in the order of their epochs.
    pub observations: Vec<Event>,
    /// The epoch of the last event of any kind in the range; `None` if there was none.
    pub last: Option<UserEpoch>,
    /// The epoch of the last correction or retraction in the range; 0 if there was none.
    pub amended: UserEpoch,
}

/// Histories of users and snapshots of their states.
#[derive(Clone, Copy)]
pub struct Histories<'s> {
    pub(crate) database: &'s Database,
    pub(crate) hashes: &'s Hashes,
    pub(crate) log: &'s Log,
}

impl Histories<'_> {
    /// All events of one user that were not removed, in the order of their epochs. An observation
    /// has its last corrected label; corrections and retractions are events of their own.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn of(&self, stream: &StreamName, user: &UserId) -> Result<Vec<(Sequence, Record)>, StorageError> {
        self.after(stream, user, UserEpoch(0))
    }

    /// [`Histories::of`] for the events after `epoch`.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn after(
        &self,
        stream: &StreamName,
        user: &UserId,
        epoch: UserEpoch,
    ) -> Result<Vec<(Sequence, Record)>, StorageError> {
        reading::of_user(self.database, stream, user, epoch)
    }

    /// The user's events after `epoch` (0 for all) from which states learn: as
    /// [`Histories::after`], at a fraction of its cost.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn events_after(&self, stream: &StreamName, user: &UserId, epoch: UserEpoch) -> Result<Events, StorageError> {
        faults::reach_in(self.database.path(), "history");
        let mut events = Events::default();
        let range = KeyRange::prefix(keys::history_of(stream, user));
        let prefix = range.from.len();
        let range = range.after(keys::history(stream, user, epoch));
        self.database.scan(Column::History, range, Access::Lookup, |key, value| {
            let entry = Entry::decode(key, prefix, value)?;
            events.last = Some(entry.epoch);
            match entry.event()? {
                Some(event) => events.observations.push(event),
                None => events.amended = entry.epoch,
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(events)
    }

    /// The user's event of this epoch, with its sequence; `None` if there is none, or it was
    /// removed.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn event(
        &self,
        stream: &StreamName,
        user: &UserId,
        epoch: UserEpoch,
    ) -> Result<Option<(Sequence, Record)>, StorageError> {
        let entry = keys::history(stream, user, epoch);
        let Some(value) = self.database.get(Column::History, &entry)? else { return Ok(None) };
        let sequence = Entry::decode(&entry, keys::history_of(stream, user).len(), &value)?.sequence;
        Ok(match reading::at(self.database, stream, Partition::of(user), sequence)? {
            Lookup::Found { record, .. } => Some((sequence, record)),
            Lookup::Forgotten | Lookup::Unknown => None,
        })
    }

    /// At most `max` users with events, after the user `after`, each with the epoch of the latest event;
    /// in the order of partitions, and of the lengths and bytes of ids within one.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn users(
        &self,
        stream: &StreamName,
        after: Option<&UserId>,
        max: usize,
    ) -> Result<Vec<(UserId, UserEpoch)>, StorageError> {
        let mut range = KeyRange::prefix(keys::of_stream(stream));
        if let Some(user) = after {
            range.from = after_prefix(keys::history_of(stream, user));
        }
        let mut users = Vec::new();
        while users.len() < max {
            let mut next = None;
            self.database.scan(Column::History, range.clone(), Access::Lookup, |key, _| {
                let user = keys::user_of_history(key).and_then(|user| UserId::new(user).ok());
                next = Some(user.ok_or_else(|| corrupt(Column::History, key, "its key names no user"))?);
                Ok(ControlFlow::Break(()))
            })?;
            let Some(user) = next else { break };
            range.from = after_prefix(keys::history_of(stream, &user));
            let epoch = self.last_epoch(stream, &user)?;
            users.push((user, epoch));
        }
        Ok(users)
    }

    /// The epoch of a user's latest durable event, including erasures; 0 for a user without events.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn last_epoch(&self, stream: &StreamName, user: &UserId) -> Result<UserEpoch, StorageError> {
        reading::last_epoch(self.database, self.hashes, stream, user)
    }

    /// The epoch of a user's last erasure from a stream; 0 if there was none.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn last_erasure(&self, stream: &StreamName, user: &UserId) -> Result<UserEpoch, StorageError> {
        reading::last_erasure(self.database, self.hashes, stream, user)
    }
}
