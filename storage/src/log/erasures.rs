//! Stored data of erased users: the last epoch, and the erasure itself.

use std::ops::ControlFlow;

use celeris_model::{Partition, Sequence, StreamName, Timestamp, UserEpoch};

use super::Log;
use crate::database::{Access, Column, Database, KeyRange};
use crate::error::StorageError;
use crate::layout::envelope::{begin, corrupt, seal, unseal};
use crate::layout::hashing::UserHash;
use crate::layout::keys::{self, KeyReader};
use celeris_model::wire::{Reader, Writer};

/// One erasure, without the user's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erasure {
    pub partition: Partition,
    /// The sequence of the first removed event; that of the erasure itself if there was none.
    pub first: Sequence,
    /// The sequence of the erasure.
    pub at: Sequence,
    pub timestamp: Timestamp,
    /// Number of removed observations.
    pub observations: u64,
}

impl Log {
    /// All erasures of a stream, by partition and sequence. A version whose training's watermark
    /// lies between `first` and `at` may have been trained on removed events.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn erasures(&self, stream: &StreamName) -> Result<Vec<Erasure>, StorageError> {
        let prefix = keys::erasures_of(stream);
        let mut erasures = Vec::new();
        let range = KeyRange::prefix(prefix.clone());
        self.records.database.scan(Column::Erasures, range, Access::Lookup, |key, value| {
            let erasure = decode(&key[prefix.len()..], unseal(Column::Erasures, key, value)?);
            erasures.push(erasure.ok_or_else(|| corrupt(Column::Erasures, key, "it is not an erasure"))?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(erasures)
    }
}

/// Key and value of an erasure.
pub(super) fn encode(stream: &StreamName, erasure: &Erasure) -> (Vec<u8>, Vec<u8>) {
    let key = keys::erasure(stream, erasure.partition, erasure.at);
    let mut value = Writer(begin());
    value.varint(erasure.first.0);
    value.signed(erasure.timestamp.0);
    value.varint(erasure.observations);
    seal(&key, &mut value.0);
    (key, value.0)
}

pub(super) fn decode(place: &[u8], body: &[u8]) -> Option<Erasure> {
    let mut place = KeyReader::new(place);
    let mut body = Reader(body);
    Some(Erasure {
        partition: Partition::from_index(place.byte()?)?,
        at: Sequence(place.number()?),
        first: Sequence(body.varint()?),
        timestamp: Timestamp(body.signed()?),
        observations: body.varint()?,
    })
}

/// Key and value of an erased user's epoch.
pub(super) fn encode_epoch(stream: &StreamName, user: UserHash, epoch: UserEpoch) -> (Vec<u8>, Vec<u8>) {
    let key = keys::erased_user(stream, user);
    let mut value = Writer(begin());
    value.varint(epoch.0);
    seal(&key, &mut value.0);
    (key, value.0)
}

/// The epoch of a user's last erasure; 0 if there was none.
pub(super) fn last_epoch(database: &Database, stream: &StreamName, user: UserHash) -> Result<UserEpoch, StorageError> {
    let key = keys::erased_user(stream, user);
    let Some(value) = database.get(Column::Erasures, &key)? else { return Ok(UserEpoch(0)) };
    let epoch = Reader(unseal(Column::Erasures, &key, &value)?).varint();
    epoch.map(UserEpoch).ok_or_else(|| corrupt(Column::Erasures, &key, "it is not an epoch"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn erasure_values_keep_their_stored_format() {
        let erasure = Erasure {
            partition: Partition::from_index(33).unwrap(),
            first: Sequence(300),
            at: Sequence(301),
            timestamp: Timestamp(-2),
            observations: 7,
        };
        let (key, value) = encode(&StreamName::new("films").unwrap(), &erasure);
        let body = unseal(Column::Erasures, &key, &value).unwrap();
        assert_eq!(body, [0xac, 0x02, 3, 7]);
        assert_eq!(decode(&key[7..], body), Some(erasure));
    }
}
