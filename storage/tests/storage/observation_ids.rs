//! An observation id is unique for a user.

use crate::scenario::{
    amendment, append, assert_consistent, crash_image, existing, found, id, log_of, new, observation, open, stream,
    user,
};
use celeris_model::{Partition, Record, RecordKind, Sequence, UserEpoch};
use celeris_storage::{Append, Appended, Lookup, Storage, StorageError};

fn named(user_name: &str, epoch: u64, text: &str) -> Record {
    Record { observation_id: Some(id(text)), ..observation(&user(user_name), epoch) }
}

#[tokio::test]
async fn a_repeated_id_returns_the_first_record_pending_or_committed() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let first = new(storage.log().append(append(named("alice", 1, "o-1"))).unwrap());
    // Whether it is committed by now or not, the result is the same.
    let again = || Record { label: -7.0, ..named("alice", 2, "o-1") };
    let repeat = existing(storage.log().append(append(again())).unwrap());
    assert_eq!(repeat.record, named("alice", 1, "o-1"));
    assert_eq!(repeat.placed.durable().await.unwrap(), first.durable().await.unwrap());
    let repeat = existing(storage.log().append(append(again())).unwrap());
    assert_eq!(repeat.record, named("alice", 1, "o-1"));
    assert!(repeat.placed.ticket().is_durable());
    // Ids are unique within a stream only.
    let elsewhere = Append { stream: stream("books"), ..append(again()) };
    new(storage.log().append(elsewhere).unwrap()).durable().await.unwrap();
    drop(storage);
    let storage = open(dir.path());
    let repeat = existing(storage.log().append(append(again())).unwrap());
    assert_eq!(repeat.record, named("alice", 1, "o-1"));
    assert_eq!(repeat.placed.durable().await.unwrap(), first.durable().await.unwrap());
    assert_eq!(storage.log().watermark(&stream("films")).records(), 1);
}

#[tokio::test]
async fn users_of_one_partition_and_of_others_use_the_same_id() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let of_alice = Partition::of(&user("alice"));
    let name_of = |number: u32| format!("user-{number}");
    let beside = (0..).map(name_of).find(|name| Partition::of(&user(name)) == of_alice).unwrap();
    let elsewhere = (0..).map(name_of).find(|name| Partition::of(&user(name)) != of_alice).unwrap();
    let names = ["alice", &beside, &elsewhere];
    let look_up = |name: &str| storage.log().observation(&stream("films"), &user(name), &id("o-1")).unwrap();
    let of_any = || storage.log().observation_of_any_user(&stream("films"), &id("o-1"));
    for name in names {
        assert_eq!(look_up(name), Lookup::Unknown, "{name}");
        new(storage.log().append(append(named(name, 1, "o-1"))).unwrap()).durable().await.unwrap();
        assert_eq!(found(look_up(name)).2, named(name, 1, "o-1"));
    }
    assert!(matches!(of_any(), Err(StorageError::AmbiguousId { id }) if id == "o-1"));
    for name in [&beside, &elsewhere] {
        let erasure = amendment(RecordKind::Erase, &user(name), 2, None);
        new(storage.log().append(append(erasure)).unwrap()).durable().await.unwrap();
        assert_eq!(look_up(name), Lookup::Forgotten, "{name}");
    }
    // The one that is left is not ambiguous, and was not forgotten with the others.
    assert_eq!(found(of_any().unwrap()).2, named("alice", 1, "o-1"));
    assert_eq!(found(look_up("alice")).2, named("alice", 1, "o-1"));
}

#[test]
fn of_many_concurrent_appends_of_one_id_one_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    for round in 0..200 {
        let text = format!("o-{round}");
        let news = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4_u8)
                .map(|writer| {
                    let (storage, text) = (&storage, &text);
                    scope.spawn(move || {
                        let record = Record { label: f32::from(writer), ..named("alice", round + 1, text) };
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
    let films = stream("films");
    let by_place = || storage.log().observation_of_any_user(&films, &committed.observation_id).unwrap();
    assert_eq!(found(by_place()), (committed.partition, committed.sequence, record.clone()));
    let of = |name| storage.log().observation(&films, &user(name), &committed.observation_id).unwrap();
    assert_eq!(of("alice"), by_place());
    assert_eq!(of("bob"), Lookup::Unknown);
    // A client repeats its observation under the id assigned by the server.
    let repeated = Record { observation_id: Some(committed.observation_id.clone()), ..record.clone() };
    let repeat = existing(storage.log().append(append(repeated)).unwrap());
    assert_eq!((repeat.record, repeat.placed.durable().await.unwrap()), (record, committed.clone()));
    for taken in ["~0-999", "~", "~x"] {
        let error = storage.log().append(append(named("alice", 2, taken))).unwrap_err();
        assert!(matches!(&error, StorageError::ReservedId { id } if id == taken), "{error}");
        assert_eq!(storage.log().observation_of_any_user(&films, &id(taken)).unwrap(), Lookup::Unknown);
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
    assert_eq!(found(storage.log().observation(&stream("films"), &user("alice"), &id("o-1")).unwrap()).2, corrected);
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
    let repeat = existing(storage.log().append(append(named("alice", 4, "o-1"))).unwrap());
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
        let films = stream("films");
        let by_place = format!("~{}-1", Partition::of(&user("alice")).index());
        for (name, text) in [("alice", "o-1"), ("bob", "o-2"), ("alice", &by_place)] {
            assert_eq!(storage.log().observation(&films, &user(name), &id(text)).unwrap(), Lookup::Forgotten, "{text}");
            assert_eq!(storage.log().observation_of_any_user(&films, &id(text)).unwrap(), Lookup::Forgotten, "{text}");
            let error = storage.log().append(append(named(name, 3, text))).unwrap_err();
            assert!(matches!(&error, StorageError::ObservationForgotten { id } if id == text), "{error}");
        }
        assert_eq!(storage.log().observation(&films, &user("alice"), &id("o-3")).unwrap(), Lookup::Unknown);
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
