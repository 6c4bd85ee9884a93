//! Sealing of amended logs.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use celeris_export::sealing::folder_name;
use celeris_export::{Sealer, SealingOptions, SealingStatus};
use celeris_model::{ModelId, ModelName, Record, RecordKind, Sequence, StreamName, Timestamp, UserEpoch, UserId};
use celeris_storage::{AckMode, Append, Storage, StorageError, StorageOptions};

/// Much longer than sealing a few records takes.
const DEADLINE: Duration = Duration::from_secs(60);

fn stream() -> StreamName {
    StreamName::new("films").unwrap()
}

fn no_models(_: &Storage) -> Result<BTreeMap<ModelId, ModelName>, StorageError> {
    Ok(BTreeMap::new())
}

fn append(storage: &Storage, kind: RecordKind, user: &str, epoch: u64, targets: &[u64]) {
    let record = Record {
        kind,
        user: UserId::new(user).unwrap(),
        user_epoch: UserEpoch(epoch),
        item: Some("film".parse().unwrap()),
        label: 3.0,
        first_label: None,
        weight: 1.0,
        feedback: None,
        timestamp: Timestamp(1),
        observation_id: None,
        decision: None,
        context: None,
        predictions: Vec::new(),
        targets: targets.iter().copied().map(Sequence).collect(),
    };
    let append =
        Append { stream: stream(), record, frozen: Vec::new(), notes_item: false, source: None, ack: AckMode::Wait };
    let _ticket = storage.log().append(append).unwrap();
}

/// Waits until this many records are sealed and returns the status.
fn sealed(storage: &Storage, sealer: &Sealer, records: u64) -> SealingStatus {
    let begun = Instant::now();
    loop {
        if storage.log().watermark(&stream()).records() == records
            && let Some((_, status)) = sealer.status().into_iter().find(|(_, status)| status.lag_records == 0)
        {
            return status;
        }
        assert!(begun.elapsed() < DEADLINE, "not sealed in time: {:?}", sealer.status());
        std::thread::yield_now();
    }
}

fn files(dir: &Path) -> BTreeSet<String> {
    let folder = dir.join("observations").join(folder_name(&stream()));
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".parquet")).collect()
}

#[test]
fn an_amendment_rewrites_only_the_segment_of_its_target() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
    let options = SealingOptions { interval: Duration::from_millis(1), records: 1 };
    let sealer = Sealer::start(storage.clone(), options, no_models).unwrap();
    // Records of one user share a partition, so sequences are those of the user's events.
    append(&storage, RecordKind::Observe, "ann", 1, &[]);
    sealed(&storage, &sealer, 1);
    let first = files(dir.path());
    append(&storage, RecordKind::Observe, "ann", 2, &[]);
    let status = sealed(&storage, &sealer, 2);
    assert_eq!((status.segments, status.rows, status.rewrites), (2, 2, 0));
    let both = files(dir.path());

    append(&storage, RecordKind::Retract, "ann", 3, &[1]);
    let status = sealed(&storage, &sealer, 3);
    assert_eq!(status.rewrites, 1);
    let after = files(dir.path());
    assert!(first.is_disjoint(&after), "{after:?} still contains the retracted observation");
    let untouched: BTreeSet<String> = both.difference(&first).cloned().collect();
    assert!(untouched.is_subset(&after), "{untouched:?} was not touched, but {after:?} is there");

    // The targets of amendments are found after a restart too.
    sealer.stop();
    append(&storage, RecordKind::Retract, "ann", 4, &[2]);
    let sealer = Sealer::start(storage.clone(), options, no_models).unwrap();
    let status = sealed(&storage, &sealer, 4);
    assert_eq!(status.rewrites, 1);
    assert!(untouched.is_disjoint(&files(dir.path())));
}

#[test]
fn an_erasure_that_blanks_a_retraction_leaves_no_retracted_rows() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
    let options = SealingOptions { interval: Duration::from_millis(1), records: 1 };
    let sealer = Sealer::start(storage.clone(), options, no_models).unwrap();
    append(&storage, RecordKind::Observe, "ann", 1, &[]);
    assert_eq!(sealed(&storage, &sealer, 1).rows, 1);
    sealer.stop();
    // The sealer runs only after both are written, and the erasure blanks the retraction.
    for (records, kind, targets) in [(2, RecordKind::Retract, [1].as_slice()), (3, RecordKind::Erase, &[])] {
        append(&storage, kind, "ann", records, targets);
        let begun = Instant::now();
        while storage.log().watermark(&stream()).records() < records {
            assert!(begun.elapsed() < DEADLINE);
            std::thread::yield_now();
        }
    }
    let sealer = Sealer::start(storage.clone(), options, no_models).unwrap();
    assert_eq!(sealed(&storage, &sealer, 3).rows, 0);
    assert!(files(dir.path()).is_empty());
}
