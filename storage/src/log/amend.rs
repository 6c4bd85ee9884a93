//! Changes of earlier records by a correction, a retraction or an erasure.
//!
//! The caller holds the user's lock and has waited until all records of the user are durable, so
//! the data read here does not change before the amendment is written, atomically with its changes.
//! Amendments rewrite the records that they target, so readers of the log (user states, trainings,
//! the sealer) read the amended history and resolve nothing.

use std::ops::ControlFlow;

use celeris_model::canonical::CHECKPOINT_EVERY;
use celeris_model::{ObservationId, Partition, Record, RecordKind, Sequence, StreamName, UserEpoch};

use super::erasures;
use super::queue::{Amendment, ErasureDraft};
use super::reading::{self, Lookup};
use crate::database::{Access, Change, Column, Database, KeyRange};
use crate::error::StorageError;
use crate::layout::event::{self, Entry};
use crate::layout::hashing::Hashes;
use crate::layout::{envelope, keys, record};

/// No user has a snapshot before this epoch, so amendments of short histories need not look for
/// one.
pub(crate) const SNAPSHOT_EPOCH_MIN: UserEpoch = UserEpoch(CHECKPOINT_EVERY);

/// Completes the record of an amendment and collects its changes of earlier records.
///
/// # Errors
/// `ObservationForgotten` or `NotAnObservation`; or errors of reading.
pub(super) fn amend(
    database: &Database,
    hashes: &Hashes,
    stream: &StreamName,
    record: &mut Record,
) -> Result<Amendment, StorageError> {
    debug_assert!(
        follows(database, hashes, stream, record)?,
        "everything of a user is durable before an amendment is appended, and its epoch is the next one"
    );
    let snapshots = keys::snapshots_of(stream, &record.user);
    let requested = record::encode(record);
    let mut amendment = match record.kind {
        RecordKind::Observe => unreachable!("an observation changes no earlier record"),
        RecordKind::Correct => correct(database, stream, record)?,
        RecordKind::Retract => retract(database, stream, record)?,
        RecordKind::Erase => erase(database, hashes, stream, record)?,
    };
    if record.user_epoch > SNAPSHOT_EPOCH_MIN {
        // By prefix, because a snapshot may still be in the queue before the amendment.
        amendment.changes.push(Change::DeletePrefix(Column::Snapshots, snapshots));
    }
    Ok(Amendment { requested, ..amendment })
}

/// Whether the epoch of `record` is the one after the user's last durable event.
fn follows(database: &Database, hashes: &Hashes, stream: &StreamName, record: &Record) -> Result<bool, StorageError> {
    let last = reading::last_epoch(database, hashes, stream, &record.user)?;
    Ok(record.user_epoch == last.next())
}

/// Replaces the observation by one with the new label and the original one as `first_label`.
fn correct(database: &Database, stream: &StreamName, record: &mut Record) -> Result<Amendment, StorageError> {
    let (sequence, original) = original(database, stream, record)?;
    record.item.clone_from(&original.item);
    record.observation_id.clone_from(&original.observation_id);
    let first_label = Some(original.first_label.unwrap_or(original.label));
    let corrected = Record { label: record.label, first_label, ..original };
    let key = keys::log(stream, Partition::of(&record.user), sequence);
    let mut value = record::encode(&corrected);
    envelope::seal(&key, &mut value);
    let mut entry = Vec::new();
    event::put_entry(sequence, &event::encode_event(&corrected), &mut entry);
    let changes = vec![
        Change::Put(Column::Log, key, value),
        Change::Put(Column::History, keys::history(stream, &record.user, corrected.user_epoch), entry),
    ];
    Ok(Amendment { changes, ..Amendment::default() })
}

/// Blanks the observation and the corrections that repeat its item and labels.
fn retract(database: &Database, stream: &StreamName, record: &mut Record) -> Result<Amendment, StorageError> {
    let (sequence, original) = original(database, stream, record)?;
    // The id stays in the retraction, since an erasure later would not find it in the observation.
    record.observation_id.clone_from(&original.observation_id);
    record.item = None;
    record.label = 0.0;
    let mut blanked = vec![(sequence, original.user_epoch)];
    if original.first_label.is_some() {
        for (at, correction) in reading::of_user(database, stream, &record.user, UserEpoch(0))? {
            if correction.kind == RecordKind::Correct && correction.targets.contains(&sequence) {
                blanked.push((at, correction.user_epoch));
            }
        }
    }
    blanked.sort_unstable();
    record.targets = blanked.iter().map(|(sequence, _)| *sequence).collect();
    Ok(Amendment { changes: blanks(stream, record, &blanked), scrub_from: Some(sequence), ..Amendment::default() })
}

/// Blanks all records of the user, removes the user's attributes, and the user from the erasure's own record.
fn erase(
    database: &Database,
    hashes: &Hashes,
    stream: &StreamName,
    record: &mut Record,
) -> Result<Amendment, StorageError> {
    let mut blanked = Vec::new();
    let mut observations = 0;
    let range = KeyRange::prefix(keys::history_of(stream, &record.user));
    let partition = Partition::of(&record.user);
    let prefix = range.from.len();
    database.scan(Column::History, range, Access::Lookup, |key, value| {
        let Entry { sequence, epoch, .. } = Entry::decode(key, prefix, value)?;
        blanked.push((sequence, epoch));
        Ok(ControlFlow::Continue(()))
    })?;
    // Earlier retractions have blanked records without history entries, but copies of the log may
    // still contain these.
    let mut targets: Vec<Sequence> = Vec::with_capacity(blanked.len());
    for (sequence, _) in &blanked {
        if let Lookup::Found { record, .. } = reading::at(database, stream, partition, *sequence)? {
            observations += u64::from(record.kind == RecordKind::Observe);
            targets.extend(record.targets);
        }
        targets.push(*sequence);
    }
    targets.sort_unstable();
    targets.dedup();
    blanked.sort_unstable();
    let mut changes = blanks(stream, record, &blanked);
    let hash = hashes.user(stream, &record.user);
    let (key, value) = erasures::encode_epoch(stream, hash, record.user_epoch);
    changes.push(Change::Put(Column::Erasures, key, value));
    let first = targets.first().copied();
    changes.push(Change::Delete(Column::UserAttributes, keys::user_attributes(stream, &record.user)));
    *record = Record {
        kind: RecordKind::Erase,
        user: hash.pseudonym(),
        user_epoch: record.user_epoch,
        item: None,
        label: 0.0,
        first_label: None,
        weight: 1.0,
        feedback: None,
        timestamp: record.timestamp,
        observation_id: None,
        decision: None,
        context: None,
        predictions: Vec::new(),
        targets,
    };
    let erasure = Some(ErasureDraft { first, timestamp: record.timestamp, observations });
    Ok(Amendment { changes, erasure, scrub_from: first, ..Amendment::default() })
}

/// The observation that a correction or retraction targets.
fn original(database: &Database, stream: &StreamName, record: &Record) -> Result<(Sequence, Record), StorageError> {
    debug_assert_eq!(record.targets.len(), 1, "a correction or retraction names one observation");
    let partition = Partition::of(&record.user);
    let sequence = record.targets.first().copied().unwrap_or_default();
    let id = |given: Option<&ObservationId>| {
        let id = given.cloned().unwrap_or_else(|| reading::server_id(partition, sequence));
        id.as_str().to_owned()
    };
    match reading::at(database, stream, partition, sequence)? {
        Lookup::Found { record: original, .. }
            if original.kind == RecordKind::Observe && original.user == record.user =>
        {
            Ok((sequence, original))
        }
        Lookup::Forgotten => Err(StorageError::ObservationForgotten { id: id(record.observation_id.as_ref()) }),
        Lookup::Found { .. } | Lookup::Unknown => {
            Err(StorageError::NotAnObservation { id: id(record.observation_id.as_ref()) })
        }
    }
}

/// Replaces the records at these sequences by blanks, and removes their history entries.
fn blanks(stream: &StreamName, record: &Record, places: &[(Sequence, UserEpoch)]) -> Vec<Change> {
    let partition = Partition::of(&record.user);
    let mut changes = Vec::with_capacity(2 * places.len() + 1);
    for (sequence, epoch) in places {
        let key = keys::log(stream, partition, *sequence);
        let mut value = record::blank();
        envelope::seal(&key, &mut value);
        changes.push(Change::Put(Column::Log, key, value));
        changes.push(Change::Delete(Column::History, keys::history(stream, &record.user, *epoch)));
    }
    changes
}
