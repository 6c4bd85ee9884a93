//! Reads the latest observations of a stream's log, in approximate order of arrival.

use std::ops::ControlFlow;

use celeris_model::{Partition, Record, RecordKind, Sequence, StreamName, Timestamp};
use celeris_storage::{LogRange, Storage, StorageError};

/// Maximum number of records read at start: six times the longest window.
pub(crate) const REPLAY_MAX: u64 = 65_536;

pub(crate) struct Entry {
    pub(crate) partition: Partition,
    pub(crate) sequence: Sequence,
    pub(crate) record: Record,
}

/// The latest observations of a stream: about [`REPLAY_MAX`] at most, the same share of every
/// partition.
///
/// The log orders records only within partitions. Partitions are merged by the timestamps of the
/// records, keeping the order within each partition. If clients send timestamps that differ from
/// the time of sending, the windows contain the right observations as a whole, but their order is
/// approximate.
pub(crate) fn tail(storage: &Storage, stream: &StreamName) -> Result<Vec<Entry>, StorageError> {
    let watermark = storage.log().watermark(stream);
    let records = watermark.records();
    let mut entries: Vec<(Timestamp, Entry)> = Vec::new();
    for partition in Partition::all() {
        let end = watermark.get(partition);
        let taken = share(end.0, records);
        let range = LogRange { stream: stream.clone(), partition, after: Sequence(end.0 - taken), up_to: end };
        let mut latest = Timestamp(i64::MIN);
        let outcome: ControlFlow<()> = storage.log().scan(&range, |sequence, record| {
            if record.kind == RecordKind::Observe && !record.predictions.is_empty() {
                latest = latest.max(record.timestamp);
                entries.push((latest, Entry { partition, sequence, record }));
            }
            ControlFlow::Continue(())
        })?;
        debug_assert!(outcome.is_continue(), "the callback never breaks");
    }
    // A stable sort of sequences that are ascending already, so a merge.
    entries.sort_by_key(|(time, _)| *time);
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

/// Number of records to read from a partition with `held` of the log's `records` records.
fn share(held: u64, records: u64) -> u64 {
    if records <= REPLAY_MAX {
        return held;
    }
    let share = u128::from(held) * u128::from(REPLAY_MAX) / u128::from(records);
    u64::try_from(share).expect("at most what is held").saturating_add(1).min(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_of_a_long_log_contributes_its_share() {
        assert_eq!(share(1000, REPLAY_MAX), 1000);
        assert_eq!(share(0, 1_000_000), 0);
        assert_eq!(share(1, 1_000_000_000), 1);
        let partitions = [500_000_u64, 250_000, 250_000];
        let read: u64 = partitions.iter().map(|held| share(*held, 1_000_000)).sum();
        assert!(read.abs_diff(REPLAY_MAX) <= 3, "{read}");
        assert_eq!(share(u64::MAX / 2, u64::MAX / 2), REPLAY_MAX + 1);
    }
}
