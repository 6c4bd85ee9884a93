//! Removes the end of a log.
//!
//! The store is closed, and this is the only writer. A record is removed with its entries in the history and among the ids.
//! What later records have changed in those before the point is taken back as far as it is known: a correction leaves the
//! label that the observation had. A blank stays one: what was retracted or erased is gone, and must be. An erasure that
//! touches records before the point is written again behind them, so that the log still says why they are blank.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::ControlFlow;

use celeris_model::{ItemId, Partition, Record, RecordKind, Sequence, StreamName, Timestamp, UserEpoch, UserId};

use super::checkpoints::{self, Watermarks};
use super::reading::{self, Lookup};
use super::watermark::Watermark;
use super::{Erasure, erasures};
use crate::database::{Access, Batch, Column, Database, Durability, KeyRange};
use crate::error::StorageError;
use crate::layout::envelope::{self, corrupt};
use crate::layout::event;
use crate::layout::keys::{self, KeyReader};
use crate::layout::record;
use celeris_model::wire::Reader;

/// Bytes of a batch of deletions. The store is unusable until all are done, so they need not be one.
const BATCH_BYTES: usize = 4 << 20;

/// A point of the logs of a store: the last sequences of each stream. A stream that it does not name is empty.
pub type Position = BTreeMap<StreamName, Watermark>;

/// Where the log of a store is to end.
#[derive(Debug, Clone)]
pub enum CutAt {
    /// After these records.
    Position(Position),
    /// In each partition, before the first record of a later time. The records up to `kept` stay whatever their times: they
    /// are known to have been there by then.
    Time { time: Timestamp, kept: Position },
}

/// What a cut has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CutDone {
    /// Records that are left.
    pub records: u64,
    /// Records that were removed.
    pub removed: u64,
    /// Observations whose label is again that before a removed correction.
    pub uncorrected: u64,
    /// Erasures from after the point that were kept.
    pub erasures: u64,
}

/// Where the logs end that are cut at `at`.
///
/// # Errors
/// `Corrupt`, `CorruptLog` or `Database`.
pub(crate) fn position_of(database: &Database, ends: &Watermarks, at: &CutAt) -> Result<Position, StorageError> {
    let mut position = Position::new();
    for (stream, end) in ends {
        let mut found = Watermark::start();
        for partition in Partition::all() {
            let last = end.get(partition);
            let sequence = match at {
                CutAt::Position(position) => position.get(stream).map_or(Sequence(0), |known| known.get(partition)),
                CutAt::Time { time, kept } => {
                    let known = kept.get(stream).map_or(Sequence(0), |known| known.get(partition)).min(last);
                    let mut sequence = last;
                    records(database, stream, partition, known, |at, record| {
                        if record.is_some_and(|record| record.timestamp > *time) {
                            sequence = Sequence(at.0 - 1);
                            return Ok(ControlFlow::Break(()));
                        }
                        Ok(ControlFlow::Continue(()))
                    })?;
                    sequence
                }
            };
            found.set(partition, sequence.min(last));
        }
        position.insert(stream.clone(), found);
    }
    Ok(position)
}

/// Cuts the logs, which end at `ends`, after `position`.
///
/// # Errors
/// `Corrupt`, `CorruptLog` or `Database`.
pub(crate) fn cut(database: &Database, ends: &Watermarks, position: &Position) -> Result<CutDone, StorageError> {
    let mut cut = Cut { database, batch: database.batch(), items: HashSet::new(), done: CutDone::default() };
    let mut kept = Watermarks::new();
    for (stream, end) in ends {
        let mut watermark = Watermark::start();
        for partition in Partition::all() {
            let last = end.get(partition);
            let keep = position.get(stream).map_or(Sequence(0), |known| known.get(partition)).min(last);
            let place = Place { stream, partition, keep };
            watermark.set(partition, if keep < last { cut.partition(&place)? } else { last });
        }
        cut.done.records += watermark.records();
        kept.insert(stream.clone(), watermark);
    }
    cut.items(&kept)?;
    for stream in ends.keys() {
        cut.batch.delete(Column::Checkpoints, &keys::of_stream(stream));
    }
    checkpoints::put(&mut cut.batch, &kept);
    cut.batch.commit(Durability::Synced)?;
    database.flush()?;
    Ok(cut.done)
}

/// A partition, and its last record that stays.
struct Place<'a> {
    stream: &'a StreamName,
    partition: Partition,
    keep: Sequence,
}

struct Cut<'a> {
    database: &'a Database,
    batch: Batch<'a>,
    /// Items of removed observations.
    items: HashSet<(StreamName, ItemId)>,
    done: CutDone,
}

impl Cut<'_> {
    /// Cuts one partition, and returns its last sequence then.
    fn partition(&mut self, place: &Place<'_>) -> Result<Sequence, StorageError> {
        let Place { stream, partition, keep } = *place;
        let (mut erased, mut corrected) = (Vec::new(), BTreeSet::new());
        let mut removed = Vec::new();
        records(self.database, stream, partition, keep, |at, record| {
            removed.push(at);
            let Some(record) = record else { return Ok(ControlFlow::Continue(())) };
            match record.kind {
                RecordKind::Erase => erased.push((at, record)),
                RecordKind::Correct => {
                    corrected.extend(record.targets.iter().filter(|target| **target <= keep).copied());
                }
                RecordKind::Observe => {
                    self.items.extend(record.item.map(|item| (stream.clone(), item)));
                }
                RecordKind::Retract => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.done.removed += removed.len() as u64;
        for at in removed {
            self.batch.delete(Column::Log, &keys::log(stream, partition, at));
            self.flush_if_full()?;
        }
        self.history(place)?;
        self.ids(place)?;
        // What follows reads the histories without the removed entries.
        self.flush()?;
        for target in corrected {
            self.uncorrect(place, target)?;
        }
        self.erasures(place, erased)
    }

    /// Removes the history entries of removed records, and the snapshots of the users who have any.
    fn history(&mut self, place: &Place<'_>) -> Result<(), StorageError> {
        let prefix = keys::of_partition(place.stream, place.partition);
        let mut removed = Vec::new();
        self.database.scan(Column::History, KeyRange::prefix(prefix), Access::Sweep, |key, value| {
            let sequence = Reader(value).varint();
            let sequence =
                sequence.ok_or_else(|| corrupt(Column::History, key, "its value is not that of an entry"))?;
            if sequence > place.keep.0 {
                removed.push(key.to_vec());
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let mut last = None;
        for key in removed {
            let user = keys::user_of_history(&key).and_then(|user| UserId::new(user).ok());
            let user = user.ok_or_else(|| corrupt(Column::History, &key, "its key names no user"))?;
            self.batch.delete(Column::History, &key);
            if last.as_ref() != Some(&user) {
                self.batch.delete_prefix(Column::Snapshots, &keys::snapshots_of(place.stream, &user));
            }
            last = Some(user);
            self.flush_if_full()?;
        }
        Ok(())
    }

    /// Removes the ids of removed records, which can be used again.
    fn ids(&mut self, place: &Place<'_>) -> Result<(), StorageError> {
        let prefix = keys::of_partition(place.stream, place.partition);
        let mut removed = Vec::new();
        self.database.scan(Column::ObservationIds, KeyRange::prefix(prefix), Access::Sweep, |key, value| {
            if reading::decode_sequence(key, value)? > place.keep {
                removed.push(key.to_vec());
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for key in removed {
            self.batch.delete(Column::ObservationIds, &key);
            self.flush_if_full()?;
        }
        Ok(())
    }

    /// Gives an observation the label back that it had at the point.
    fn uncorrect(&mut self, place: &Place<'_>, target: Sequence) -> Result<(), StorageError> {
        let Place { stream, partition, keep } = *place;
        let Lookup::Found { record, .. } = reading::at(self.database, stream, partition, target)? else {
            return Ok(());
        };
        let Some(first_label) = record.first_label else { return Ok(()) };
        let of_user = reading::of_user(self.database, stream, &record.user, UserEpoch(0))?;
        let corrections = of_user.into_iter().filter(|(at, correction)| {
            *at <= keep && correction.kind == RecordKind::Correct && correction.targets.contains(&target)
        });
        let last = corrections.max_by_key(|(at, _)| *at);
        let was = match last {
            Some((_, correction)) => Record { label: correction.label, ..record },
            None => Record { label: first_label, first_label: None, ..record },
        };
        let key = keys::log(stream, partition, target);
        let mut value = record::encode(&was);
        envelope::seal(&key, &mut value);
        self.batch.put(Column::Log, &key, &value);
        let mut entry = Vec::new();
        event::put_entry(target, &event::encode_event(&was), &mut entry);
        self.batch.put(Column::History, &keys::history(stream, &was.user, was.user_epoch), &entry);
        self.batch.delete_prefix(Column::Snapshots, &keys::snapshots_of(stream, &was.user));
        self.done.uncorrected += 1;
        self.flush_if_full()
    }

    /// Writes the removed erasures again that touch records which stay, directly behind those.
    fn erasures(&mut self, place: &Place<'_>, erased: Vec<(Sequence, Record)>) -> Result<Sequence, StorageError> {
        let Place { stream, partition, keep } = *place;
        let mut described = Vec::new();
        let of_partition = KeyRange::prefix(keys::erasures_of(stream));
        let prefix = of_partition.from.len();
        self.database.scan(Column::Erasures, of_partition, Access::Lookup, |key, value| {
            let erasure = erasures::decode(&key[prefix..], envelope::unseal(Column::Erasures, key, value)?);
            let erasure = erasure.ok_or_else(|| corrupt(Column::Erasures, key, "it is not an erasure"))?;
            if erasure.partition == partition && erasure.at > keep {
                described.push((key.to_vec(), erasure));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for (key, _) in &described {
            self.batch.delete(Column::Erasures, key);
        }
        let mut last = keep;
        for (at, mut record) in erased {
            record.targets.retain(|target| *target <= keep);
            let Some(first) = record.targets.first().copied() else { continue };
            last = last.next();
            let key = keys::log(stream, partition, last);
            let mut value = record::encode(&record);
            envelope::seal(&key, &mut value);
            self.batch.put(Column::Log, &key, &value);
            let observations = described.iter().find(|(_, erasure)| erasure.at == at);
            let observations = observations.map_or(0, |(_, erasure)| erasure.observations);
            let erasure = Erasure { partition, first, at: last, timestamp: record.timestamp, observations };
            let (key, value) = erasures::encode(stream, &erasure);
            self.batch.put(Column::Erasures, &key, &value);
            self.done.erasures += 1;
        }
        self.flush()?;
        Ok(last)
    }

    /// Forgets that items were observed, and the features frozen for them, if no observation of them is left.
    fn items(&mut self, kept: &Watermarks) -> Result<(), StorageError> {
        if self.items.is_empty() {
            return Ok(());
        }
        for (stream, end) in kept {
            for partition in Partition::all().filter(|partition| end.get(*partition).0 > 0) {
                let start = Sequence(0);
                records(self.database, stream, partition, start, |_, record| {
                    if let Some(item) = record.and_then(|record| record.item) {
                        self.items.remove(&(stream.clone(), item));
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
            }
        }
        for (stream, item) in &self.items {
            self.batch.delete(Column::ObservedItems, &keys::item(stream, item));
        }
        let observed: HashSet<&ItemId> = self.items.iter().map(|(_, item)| item).collect();
        let mut frozen = Vec::new();
        self.database.scan(Column::Frozen, KeyRange::from(Vec::new()), Access::Sweep, |key, _| {
            if keys::frozen_item(key).is_some_and(|item| observed.contains(&item)) {
                frozen.push(key.to_vec());
            }
            Ok(ControlFlow::Continue(()))
        })?;
        frozen.iter().for_each(|key| self.batch.delete(Column::Frozen, key));
        self.flush()
    }

    fn flush_if_full(&mut self) -> Result<(), StorageError> {
        if self.batch.bytes() < BATCH_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        std::mem::replace(&mut self.batch, self.database.batch()).commit(Durability::Buffered)
    }
}

/// Visits the records of a partition after a sequence, `None` for a blank.
fn records(
    database: &Database,
    stream: &StreamName,
    partition: Partition,
    after: Sequence,
    mut visit: impl FnMut(Sequence, Option<Record>) -> Result<ControlFlow<()>, StorageError>,
) -> Result<(), StorageError> {
    let prefix = keys::of_partition(stream, partition);
    let range = KeyRange { from: keys::log(stream, partition, after.next()), ..KeyRange::prefix(prefix.clone()) };
    database.scan(Column::Log, range, Access::Sweep, |key, value| {
        let sequence = KeyReader::new(&key[prefix.len()..]).number();
        let sequence = sequence.ok_or_else(|| corrupt(Column::Log, key, "its key ends in no sequence"))?;
        visit(Sequence(sequence), record::decode(key, value)?)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::path::Path;

    use celeris_model::{FeatureOrigin, ModelId, ObservationId, Sequence, StreamName, Timestamp, UserId, VersionId};
    use rand::seq::IndexedRandom as _;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::{AckMode, Append, Appended, FrozenFeatures, Storage, StorageOptions};

    type Contents = Vec<(Column, Vec<u8>, Vec<u8>)>;

    /// All entries but those of checkpoints and snapshots, which are derived, and of notes for the scrubber.
    fn contents(storage: &Storage) -> Contents {
        let mut contents = Vec::new();
        let derived = [Column::Snapshots, Column::Checkpoints];
        for column in Column::MAIN.iter().filter(|column| !derived.contains(column)) {
            let everything = KeyRange::from(Vec::new());
            let visited = storage.database().scan(*column, everything, Access::Sweep, |key, value| {
                if !(*column == Column::Erasures && key[0] == 3) {
                    contents.push((*column, key.to_vec(), value.to_vec()));
                }
                Ok(ControlFlow::Continue(()))
            });
            visited.unwrap();
        }
        contents
    }

    fn open(dir: &Path) -> Storage {
        Storage::open(dir, &StorageOptions::default()).unwrap()
    }

    fn stream(number: usize) -> StreamName {
        StreamName::new(format!("stream-{number}")).unwrap()
    }

    fn frozen(item: ItemId) -> FrozenFeatures {
        FrozenFeatures {
            model: ModelId(1),
            version: VersionId(2),
            item,
            offset: 0.5,
            features: vec![1.0, 2.0],
            origin: FeatureOrigin::Attributes,
            attributes: None,
        }
    }

    /// A random event of a user among those of these kinds.
    async fn step(storage: &Storage, rng: &mut ChaCha8Rng, time: i64, kinds: &[RecordKind], items: u64) {
        let (stream, user) =
            (stream(rng.random_range(0..2)), UserId::new(format!("u{}", rng.random_range(0..9))).unwrap());
        let epoch = storage.histories().last_epoch(&stream, &user).unwrap().next();
        let history = storage.histories().of(&stream, &user).unwrap();
        let observed = history.iter().filter(|(_, record)| record.kind == RecordKind::Observe).map(|(at, _)| *at);
        let target = observed.collect::<Vec<Sequence>>().choose(rng).copied();
        let mut kind = *kinds.choose(rng).unwrap();
        if target.is_none() && kind != RecordKind::Erase {
            kind = RecordKind::Observe;
        }
        let observes = kind == RecordKind::Observe;
        let item = ItemId::new(format!("item-{}", rng.random_range(0..items))).unwrap();
        let id = rng.random_bool(0.5).then(|| ObservationId::new(format!("o-{time}")).unwrap());
        let record = Record {
            kind,
            user,
            user_epoch: epoch,
            item: observes.then(|| item.clone()),
            label: rng.random_range(0..9) as f32,
            first_label: None,
            weight: 1.0,
            feedback: None,
            timestamp: Timestamp(time),
            observation_id: id.filter(|_| observes),
            decision: None,
            context: None,
            predictions: Vec::new(),
            targets: if observes || kind == RecordKind::Erase { Vec::new() } else { target.into_iter().collect() },
        };
        let frozen = if observes { vec![frozen(item)] } else { Vec::new() };
        let append = Append { stream, record, frozen, notes_item: observes, source: None, ack: AckMode::Wait };
        match storage.log().append(append).unwrap() {
            Appended::New(placed) => placed.durable().await.unwrap(),
            Appended::Existing(existing) => panic!("{existing:?}"),
        };
    }

    const ALL: [RecordKind; 8] = {
        use RecordKind::{Correct, Erase, Observe, Retract};
        [Observe, Observe, Observe, Observe, Correct, Correct, Retract, Erase]
    };

    /// A store with events of all kinds up to a point, and of these after it; and what it was like at the point.
    async fn store(dir: &Path, seed: u64, later: &[RecordKind]) -> (Contents, Position) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let storage = open(dir);
        for time in 0..300 {
            step(&storage, &mut rng, time, &ALL, 5).await;
        }
        let before = (contents(&storage), storage.position());
        for time in 300..600 {
            step(&storage, &mut rng, time, later, 9).await;
        }
        storage.close().unwrap();
        before
    }

    #[tokio::test]
    async fn a_store_is_to_the_bit_what_it_was_at_the_point() {
        for seed in 0..4 {
            let dir = tempfile::tempdir().unwrap();
            let later = [RecordKind::Observe, RecordKind::Observe, RecordKind::Correct];
            let (before, position) = store(dir.path(), seed, &later).await;
            let copy = tempfile::tempdir().unwrap();
            let copied = open(dir.path()).copy_for_backup(copy.path()).unwrap();
            assert!(copied != position && copied == open(dir.path()).position());
            for (dir, at) in [
                (dir.path(), CutAt::Position(position.clone())),
                (copy.path(), CutAt::Time { time: Timestamp(299), kept: Position::new() }),
            ] {
                let done = Storage::cut(dir, &StorageOptions::default(), &at).unwrap();
                assert_eq!((done.removed, done.erasures), (300, 0));
                assert!(done.uncorrected > 0);
                let storage = open(dir);
                storage.verify().unwrap();
                assert_eq!(storage.position(), position);
                assert!(contents(&storage) == before, "seed {seed}: it differs");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_copy_made_under_load_opens_at_its_position() {
        let dir = tempfile::tempdir().unwrap();
        let storage = open(dir.path());
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (writing, stopping) = (storage.clone(), stop.clone());
        let writer = tokio::spawn(async move {
            let mut rng = ChaCha8Rng::seed_from_u64(30);
            let mut time = 0;
            while !stopping.load(std::sync::atomic::Ordering::Relaxed) {
                step(&writing, &mut rng, time, &ALL, 9).await;
                time += 1;
            }
        });
        let copies = tempfile::tempdir().unwrap();
        let mut last = 0;
        for number in 0..8 {
            let (from, folder) = (storage.clone(), copies.path().join(number.to_string()));
            let copy = move || {
                let before: u64 = from.position().values().map(Watermark::records).sum();
                let position = from.copy_for_backup(&folder).unwrap();
                let copy = Storage::open_existing(&folder, &StorageOptions::default()).unwrap();
                copy.verify().unwrap();
                assert_eq!(copy.position(), position);
                (before, position.values().map(Watermark::records).sum::<u64>())
            };
            let (before, records) = tokio::task::spawn_blocking(copy).await.unwrap();
            assert!(records >= before && records > last, "what was durable before is in the copy");
            last = records;
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn what_was_erased_or_retracted_after_the_point_stays_so() {
        for seed in 10..14 {
            let dir = tempfile::tempdir().unwrap();
            let (before, position) = store(dir.path(), seed, &ALL).await;
            let at = CutAt::Position(position.clone());
            let done = Storage::cut(dir.path(), &StorageOptions::default(), &at).unwrap();
            assert!(done.erasures > 0);
            let storage = open(dir.path());
            storage.verify().unwrap();
            let kept: u64 = position.values().map(Watermark::records).sum();
            assert_eq!(done.records, kept + done.erasures);
            let histories = |contents: &Contents| -> Vec<(Vec<u8>, Vec<u8>)> {
                let of = contents.iter().filter(|(column, ..)| *column == Column::History);
                of.map(|(_, key, value)| (key.clone(), value.clone())).collect()
            };
            let (before, now) = (histories(&before), histories(&contents(&storage)));
            assert!(now.len() < before.len() && now.iter().all(|entry| before.contains(entry)), "seed {seed}");
            // Every blank has its reason, and the store goes on.
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            for time in 1_000..1_200 {
                step(&storage, &mut rng, time, &ALL, 9).await;
            }
            storage.verify().unwrap();
        }
    }

    #[tokio::test]
    async fn what_a_backup_had_before_stays_whatever_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let (before, position) = store(dir.path(), 20, &[RecordKind::Observe]).await;
        let at = CutAt::Time { time: Timestamp(100), kept: position.clone() };
        Storage::cut(dir.path(), &StorageOptions::default(), &at).unwrap();
        let storage = open(dir.path());
        assert_eq!(storage.position(), position);
        assert!(contents(&storage) == before);
        drop(storage);
        let nothing = CutAt::Position(Position::new());
        let done = Storage::cut(dir.path(), &StorageOptions::default(), &nothing).unwrap();
        assert_eq!(done.records, 0);
        assert!(open(dir.path()).position().values().all(|end| end.records() == 0));
    }
}
