//! Detects records that are missing from the log.

use celeris_model::{Partition, Sequence, StreamName};

use crate::database::Column;
use crate::error::StorageError;
use crate::layout::envelope::{corrupt, unseal};
use crate::layout::keys::{self, KeyReader};

/// Follows the log in key order: within a partition, sequences have no gaps, so that a lost file is
/// detected even if no block is damaged.
#[derive(Default)]
pub(crate) struct LogCheck {
    /// `None` before the first record.
    place: Option<Place>,
}

struct Place {
    last: u64,
    /// The key's bytes before the sequence.
    prefix: Vec<u8>,
}

impl LogCheck {
    /// A check that starts with the record of this key, or with any record if it is not a record's
    /// key.
    pub(crate) fn from(key: &[u8]) -> Self {
        let place = Place::of(key).and_then(|place| {
            let first = place.sequence(key)?.0;
            Some(Place { last: first.saturating_sub(1), ..place })
        });
        Self { place }
    }

    /// Checks the next record.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn visit(&mut self, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
        unseal(Column::Log, key, value)?;
        let bad_key = || corrupt(Column::Log, key, "its key is not that of a record");
        if !self.place.as_ref().is_some_and(|place| key.starts_with(&place.prefix)) {
            self.place = Some(Place::of(key).ok_or_else(bad_key)?);
        }
        let place = self.place.as_mut().ok_or_else(bad_key)?;
        let sequence = place.sequence(key).ok_or_else(bad_key)?;
        place.last += 1;
        if sequence.0 != place.last {
            let reason = format!("record {} of its partition is missing before it", place.last);
            return Err(corrupt(Column::Log, key, &reason));
        }
        Ok(())
    }

    /// The sequence of the last record checked, or the one before the first.
    pub(super) fn last(&self) -> Sequence {
        Sequence(self.place.as_ref().map_or(0, |place| place.last))
    }
}

impl Place {
    /// The position before the first record of the partition of `key`.
    fn of(key: &[u8]) -> Option<Self> {
        let mut reader = KeyReader::new(key);
        let stream = StreamName::new(reader.text()?).ok()?;
        let partition = Partition::from_index(reader.byte()?)?;
        Some(Self { last: 0, prefix: keys::of_partition(&stream, partition) })
    }

    fn sequence(&self, key: &[u8]) -> Option<Sequence> {
        let mut rest = KeyReader::new(key.get(self.prefix.len()..)?);
        rest.number().filter(|_| rest.is_empty()).map(Sequence)
    }
}
