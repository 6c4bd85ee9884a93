//! Shared helpers of the tests: users and items, and the files of a store.

use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use celeris_model::{
    ItemId, ModelId, ModelName, ObservationId, Partition, Prediction, Record, RecordKind, Sequence, StreamName,
    Timestamp, UserEpoch, UserId, VersionId,
};
use celeris_storage::{
    AckMode, Append, Appended, Event, Events, Existing, HistorySpan, LogRange, Lookup, Placed, Storage, StorageOptions,
};

pub fn stream(name: &str) -> StreamName {
    StreamName::new(name).unwrap()
}

/// The id of the model with this name.
pub fn model(name: &str) -> ModelId {
    let names = ["films", "books", "other", "liking"];
    ModelId(names.iter().position(|known| *known == name).unwrap() as u64 + 1)
}

pub fn model_name(name: &str) -> ModelName {
    ModelName::new(name).unwrap()
}

pub fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

pub fn item(name: &str) -> ItemId {
    ItemId::new(name).unwrap()
}

pub fn id(text: &str) -> ObservationId {
    ObservationId::new(text).unwrap()
}

/// A typical observation: no client-given id, one prediction by the stream's own model.
pub fn observation(user: &UserId, epoch: u64) -> Record {
    Record {
        kind: RecordKind::Observe,
        user: user.clone(),
        user_epoch: UserEpoch(epoch),
        item: Some(item(&format!("item-{}", epoch % 97))),
        label: 0.5 + (epoch % 10) as f32 / 2.0,
        weight: 1.0,
        feedback: None,
        timestamp: Timestamp(1_700_000_000_000 + i64::try_from(epoch).unwrap()),
        observation_id: None,
        decision: None,
        context: None,
        predictions: vec![Prediction { model: model("films"), version: VersionId(1), predicted: 3.5 }],
        first_label: None,
        targets: Vec::new(),
    }
}

pub fn append(record: Record) -> Append {
    Append { stream: stream("films"), record, frozen: Vec::new(), notes_item: false, source: None, ack: AckMode::Wait }
}

pub fn new(appended: Appended) -> Placed {
    match appended {
        Appended::New(placed) => placed,
        Appended::Existing(existing) => panic!("{existing:?} was there already"),
    }
}

pub fn existing(appended: Appended) -> Existing {
    match appended {
        Appended::Existing(existing) => existing,
        Appended::New(ticket) => panic!("{ticket:?} is a second one"),
    }
}

pub fn open(dir: &Path) -> Storage {
    Storage::open(dir, &StorageOptions::default()).unwrap()
}

/// Appends typical observations of a few users, by running number, and waits for each.
pub async fn fill(storage: &Storage, numbers: Range<u64>) {
    for n in numbers {
        let record = observation(&user(&format!("user-{}", n % 5)), n / 5 + 1);
        new(storage.log().append(append(record)).unwrap()).durable().await.unwrap();
    }
}

/// All records of a stream by partition, in sequence order.
pub fn log_of(storage: &Storage, stream: &StreamName) -> Vec<(Partition, Sequence, Record)> {
    let mut records = Vec::new();
    for partition in Partition::all() {
        let range = LogRange { stream: stream.clone(), partition, after: Sequence(0), up_to: Sequence(u64::MAX) };
        let outcome = storage
            .log()
            .scan(&range, |sequence, record| {
                records.push((partition, sequence, record));
                ControlFlow::<()>::Continue(())
            })
            .unwrap();
        assert!(outcome.is_continue());
    }
    records
}

/// Checks that partial reads of a user's history equal parts of the whole.
fn assert_parts(storage: &Storage, stream: &StreamName, user: &UserId, whole: &[(Sequence, Record)]) {
    let epoch = |index: usize| whole[index].1.user_epoch;
    let (middle, last) = (epoch(whole.len() / 2), epoch(whole.len() - 1));
    let spans =
        [(UserEpoch(0), last), (UserEpoch(0), middle), (middle, last), (middle, middle), (last, UserEpoch(u64::MAX))];
    for (after, up_to) in spans {
        let mut found = Vec::new();
        let span = HistorySpan { after, up_to };
        storage.histories().scan(stream, user, span, |sequence, record| found.push((sequence, record))).unwrap();
        let within = |(_, record): &&(Sequence, Record)| after < record.user_epoch && record.user_epoch <= up_to;
        assert!(found.iter().eq(whole.iter().filter(within)), "{span:?} of {user}");
    }
    for (up_to, max) in [(last, 0), (last, 1), (last, 3), (middle, 2), (UserEpoch(u64::MAX), whole.len() + 1)] {
        let latest = storage.histories().latest(stream, user, up_to, max).unwrap();
        let expected = whole.iter().rev().filter(|(_, record)| record.user_epoch <= up_to).take(max);
        assert!(latest.iter().eq(expected), "the last {max} events of {user} up to {up_to}");
    }
}

/// Checks that the log, the history index, the watermark and the ids of records agree; missing
/// records must have been removed.
pub fn assert_consistent(storage: &Storage, stream: &StreamName) {
    let log = log_of(storage, stream);
    let watermark = storage.log().watermark(stream);
    let named = |record: &&Record| record.kind != RecordKind::Erase;
    let mut users: Vec<UserId> = log.iter().map(|(.., r)| r).filter(named).map(|record| record.user.clone()).collect();
    users.sort();
    users.dedup();
    for user in users {
        let expected: Vec<(Sequence, Record)> = log
            .iter()
            .filter(|(.., record)| record.user == user)
            .map(|(_, sequence, record)| (*sequence, record.clone()))
            .collect();
        assert_eq!(storage.histories().last_epoch(stream, &user).unwrap(), expected.last().unwrap().1.user_epoch);
        assert!(
            storage.histories().of(stream, &user).unwrap() == expected,
            "the history of {user} differs from the log"
        );
        assert_parts(storage, stream, &user, &expected);
        for after in [UserEpoch(0), expected[expected.len() / 2].1.user_epoch] {
            let later = expected.iter().map(|(_, record)| record).filter(|record| record.user_epoch > after);
            let events = Events {
                last: later.clone().map(|record| record.user_epoch).max(),
                amended: later
                    .clone()
                    .filter(|record| record.kind != RecordKind::Observe)
                    .map(|record| record.user_epoch)
                    .max()
                    .unwrap_or_default(),
                observations: later.cloned().filter_map(Event::of).collect(),
            };
            assert_eq!(storage.histories().events_after(stream, &user, after).unwrap(), events, "the events of {user}");
        }
    }
    let mut places = log.iter().map(|(partition, sequence, _)| (*partition, *sequence)).peekable();
    for partition in Partition::all() {
        for sequence in (1..=watermark.get(partition).0).map(Sequence) {
            if places.next_if_eq(&(partition, sequence)).is_none() {
                let by_place = id(&format!("~{}-{sequence}", partition.index()));
                let found = storage.log().observation_of_any_user(stream, &by_place).unwrap();
                assert_eq!(found, Lookup::Forgotten, "a gap at {partition:?} {sequence}");
            }
        }
    }
    assert_eq!(places.next(), None, "a record beyond the watermark");
}

/// The position and record of a found id.
pub fn found(lookup: Lookup) -> (Partition, Sequence, Record) {
    match lookup {
        Lookup::Found { partition, sequence, record } => (partition, sequence, record),
        other => panic!("{other:?}"),
    }
}

/// A correction, retraction or erasure of the record at `target`.
pub fn amendment(kind: RecordKind, user: &UserId, epoch: u64, target: Option<Sequence>) -> Record {
    Record {
        kind,
        item: None,
        context: None,
        predictions: Vec::new(),
        targets: target.into_iter().collect(),
        ..observation(user, epoch)
    }
}

/// A copy of the directory as a crash at this moment would leave it, without the lock.
pub fn crash_image(dir: &Path, image: &Path) {
    fs::create_dir_all(image).unwrap();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let target = image.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            crash_image(&entry.path(), &target);
        } else if entry.file_name() != "LOCK" {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The files of the main database with this extension that are not empty, oldest first.
pub fn database_files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    files(&dir.join("db"), extension)
}

/// The files in `dir` with this extension that are not empty, oldest first.
pub fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .filter(|path| fs::metadata(path).unwrap().len() > 0)
        .collect();
    files.sort();
    files
}

pub fn flip(path: &Path, bit: usize) {
    let mut data = fs::read(path).unwrap();
    data[bit / 8] ^= 1 << (bit % 8);
    fs::write(path, data).unwrap();
}
