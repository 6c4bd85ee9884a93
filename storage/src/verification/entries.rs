//! Checks a run of entries: every block, every seal, and that no record of the log is missing.

use std::ops::ControlFlow;

use crate::database::{Access, Column, Database, KeyRange};
use crate::error::StorageError;
use crate::layout::envelope::unseal;
use crate::log::LogCheck;

/// The result of a check.
pub(crate) struct Checked {
    /// Bytes of keys and values.
    pub(crate) bytes: u64,
    /// The last key read, if there is more to read: the next check starts with it, reading it a
    /// second time.
    pub(crate) resume_from: Option<Vec<u8>>,
}

/// Checks the entries of `column` from `from` on, up to `bytes_max` bytes.
///
/// RocksDB checks the checksum of each block that it reads from disk.
///
/// # Errors
/// `CorruptLog` for a bad block, `Corrupt` for a bad value or a missing record.
pub(crate) fn check(
    database: &Database,
    column: Column,
    from: Vec<u8>,
    bytes_max: u64,
) -> Result<Checked, StorageError> {
    let mut log = LogCheck::from(&from);
    let (mut bytes, mut entries, mut resume_from) = (0, 0_u64, None);
    database.scan(column, KeyRange::from(from), Access::Sweep, |key, value| {
        if column == Column::Log {
            log.visit(key, value)?;
        } else if column.is_sealed() {
            unseal(column, key, value)?;
        }
        bytes += (key.len() + value.len()) as u64;
        entries += 1;
        // The first entry was read before, so one alone would be no progress.
        if entries > 1 && bytes >= bytes_max {
            resume_from = Some(key.to_vec());
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Checked { bytes, resume_from })
}
