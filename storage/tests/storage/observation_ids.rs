//! Observation ids are unique.

use crate::scenario::{
    amendment, append, assert_consistent, crash_image, existing, found, id, log_of, new, observation, open, stream,
    user,
};
use celeris_model::{Partition, Record, RecordKind, Sequence, UserEpoch};
use celeris_storage::{AckMode, Append, Appended, Lookup, Storage, StorageError};

fn named(user_name: &str, epoch: u64, text: &str) -> Record {
    Record { observation_id: Some(id(text)), ..observation(&user(user_name), epoch) }
}

#[tokio::test]
async fn a_repeated_id_returns_the_first_record_pending_or_committed() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let first = new(storage.log().append(append(named("alice", 1, "o-1"))).unwrap());
    // Whether it is committed by now or not, the result is the same.
    let repeat = existing(storage.log().append(append(named("bob", 1, "o-1"))).unwrap());
    assert_eq!(repeat.record, named("alice", 1, "o-1"));
    assert_eq!(repeat.placed.durable().await.unwrap(), first.durable().await.unwrap());
    let repeat = existing(storage.log().append(append(named("bob", 1, "o-1"))).unwrap());
    assert_eq!(repeat.record, named("alice", 1, "o-1"));
    assert!(repeat.placed.ticket().is_durable());
    // Ids are unique within a stream only.
    let elsewhere = Append {
        stream: stream("books"),
        record: named("bob", 1, "o-1"),
        frozen: Vec::new(),
        notes_item: false,
        ack: AckMode::Wait,
    };
    new(storage.log().append(elsewhere).unwrap()).durable().await.unwrap();
    drop(storage);
    let storage = open(dir.path());
    let repeat = existing(storage.log().append(append(named("bob", 1, "o-1"))).unwrap());
    assert_eq!(repeat.record, named("alice", 1, "o-1"));
    assert_eq!(repeat.placed.durable().await.unwrap(), first.durable().await.unwrap());
    assert_eq!(storage.log().watermark(&stream("films")).records(), 1);
}

#[test]
fn of_many_concurrent_appends_of_one_id_one_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    for round in 0..200 {
        let text = format!("o-{round}");
        let news = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let (storage, text) = (&storage, &text);
                    scope.spawn(move || {
                        let record = named(&format!("user-{writer}"), round + 1, text);
                        matches!(storage.log().append(append(record)).unwrap(), Appended::New(_))
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).filter(|new| *new).count()
        });
        assert_eq!(news, 1, "round {round}");
    }
    storage.close().unwrap();
    assert_eq!(log_of(&storage, &stream("films")).len(), 200);
}

#[tokio::test]
async fn server_ids_name_the_record_and_cannot_be_used_by_clients() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let record = observation(&user("alice"), 1);
    let committed = new(storage.log().append(append(record.clone())).unwrap()).durable().await.unwrap();
    assert_eq!(committed.observation_id, id(&format!("~{}-1", committed.partition.index())));
    let by_place = found(storage.log().observation(&stream("films"), &committed.observation_id).unwrap());
    assert_eq!(by_place, (committed.partition, committed.sequence, record.clone()));
    // A client repeats its observation under the id assigned by the server.
    let repeated = Record { observation_id: Some(committed.observation_id.clone()), ..record.clone() };
    let repeat = existing(storage.log().append(append(repeated)).unwrap());
    assert_eq!((repeat.record, repeat.placed.durable().await.unwrap()), (record, committed));
    for taken in ["~0-999", "~", "~x"] {
        let error = storage.log().append(append(named("alice", 2, taken))).unwrap_err();
        assert!(matches!(&error, StorageError::ReservedId { id } if id == taken), "{error}");
        assert_eq!(storage.log().observation(&stream("films"), &id(taken)).unwrap(), Lookup::Unknown);
    }
    assert_eq!(storage.log().watermark(&stream("films")).records(), 1);
}

#[tokio::test]
async fn a_correction_has_no_id_and_changes_the_record_of_the_id() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    new(storage.log().append(append(named("alice", 1, "o-1"))).unwrap()).durable().await.unwrap();
    let correct =
        |epoch, label| Record { label, ..amendment(RecordKind::Correct, &user("alice"), epoch, Some(Sequence(1))) };
    for (epoch, label) in [(2, 1.0), (3, -2.0)] {
        new(storage.log().append(append(correct(epoch, label))).unwrap()).durable().await.unwrap();
    }
    let first = named("alice", 1, "o-1");
    let corrected = Record { label: -2.0, first_label: Some(first.label), ..first.clone() };
    assert_eq!(found(storage.log().observation(&stream("films"), &id("o-1")).unwrap()).2, corrected);
    let filled_in = |epoch, label| Record {
        item: first.item.clone(),
        observation_id: first.observation_id.clone(),
        ..correct(epoch, label)
    };
    let history = storage.histories().of(&stream("films"), &user("alice")).unwrap();
    assert_eq!(
        history.into_iter().map(|(_, record)| record).collect::<Vec<_>>(),
        [corrected.clone(), filled_in(2, 1.0), filled_in(3, -2.0)]
    );
    let repeat = existing(storage.log().append(append(named("bob", 1, "o-1"))).unwrap());
    assert_eq!(repeat.record, corrected);
    assert_consistent(&storage, &stream("films"));
}

#[tokio::test]
async fn the_id_of_a_removed_observation_cannot_be_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    for (name, text) in [("alice", "o-1"), ("bob", "o-2")] {
        new(storage.log().append(append(named(name, 1, text))).unwrap()).durable().await.unwrap();
    }
    let retraction = amendment(RecordKind::Retract, &user("alice"), 2, Some(Sequence(1)));
    new(storage.log().append(append(retraction)).unwrap()).durable().await.unwrap();
    let erasure = amendment(RecordKind::Erase, &user("bob"), 2, None);
    new(storage.log().append(append(erasure)).unwrap()).durable().await.unwrap();
    for storage in [storage, open_copy(&dir)] {
        for text in ["o-1", "o-2", &format!("~{}-1", Partition::of(&user("alice")).index())] {
            assert_eq!(storage.log().observation(&stream("films"), &id(text)).unwrap(), Lookup::Forgotten, "{text}");
            let error = storage.log().append(append(named("carol", 1, text))).unwrap_err();
            assert!(matches!(&error, StorageError::ObservationForgotten { id } if id == text), "{error}");
        }
        assert_eq!(storage.log().observation(&stream("films"), &id("o-3")).unwrap(), Lookup::Unknown);
        assert_eq!(storage.histories().last_epoch(&stream("films"), &user("bob")).unwrap(), UserEpoch(2));
        assert_consistent(&storage, &stream("films"));
    }
}

/// The store as a crash at this moment would leave it.
fn open_copy(dir: &tempfile::TempDir) -> Storage {
    let image = dir.path().join("image");
    crash_image(&dir.path().join("db"), &image.join("db"));
    std::fs::copy(dir.path().join("FORMAT"), image.join("FORMAT")).unwrap();
    open(&image)
}
