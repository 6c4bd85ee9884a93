//! An erased user leaves no trace on the disk.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::scenario::{
    amendment, append, assert_consistent, crash_image, fill, id, item, model, model_name, new, observation, open,
    stream, user,
};
use celeris_model::{
    Decision, DecisionId, GramSums, InputsDigest, ModelId, Partition, Record, RecordKind, RecordedCandidates, Sequence,
    Timestamp, UserEpoch, UserId, VersionId,
};
use celeris_storage::{Lookup, Snapshot, Storage, StorageError, StorageOptions};

/// Texts that only one user has, long enough not to occur by chance.
const SECRETS: [&str; 4] =
    ["user-of-the-erased", "item-of-the-erased", "observation-of-the-erased", "attribute-of-the-erased"];

/// The user's first epoch: late enough for snapshots.
const FIRST_EPOCH: u64 = 5_000;

fn private(epoch: u64) -> Record {
    Record {
        item: Some(item(&format!("{}-{epoch}", SECRETS[1]))),
        observation_id: Some(id(&format!("{}-{epoch}", SECRETS[2]))),
        ..observation(&user(SECRETS[0]), epoch)
    }
}

/// Sets attributes of the user; removes them if there is no text.
async fn describe(storage: &Storage, text: Option<&str>) {
    let attributes = text.map(|text| ("city".to_owned(), text.into())).into_iter().collect();
    let ticket = storage.user_attributes().put(&stream("films"), &user(SECRETS[0]), &attributes).unwrap();
    ticket.durable().await.unwrap();
}

async fn put(storage: &Storage, record: Record) -> Sequence {
    new(storage.log().append(append(record)).unwrap()).durable().await.unwrap().sequence
}

/// The files under `dir` that contain one of the texts.
fn traces(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        // A file deleted between the two calls counts as one without the texts.
        let data = std::fs::read(&path).unwrap_or_default();
        for secret in SECRETS {
            if data.windows(secret.len()).any(|window| window == secret.as_bytes()) {
                found.push(format!("{secret} in {}", path.display()));
            }
        }
    }
    found
}

/// Writes observations of the user to several files; some are corrected or retracted.
async fn write_history(dir: &Path, options: &StorageOptions) -> Storage {
    let mut storage = Storage::open(dir, options).unwrap();
    for life in 0..3 {
        fill(&storage, life * 100..(life + 1) * 100).await;
        let epochs = FIRST_EPOCH + 10 * life;
        for epoch in epochs + 1..=epochs + 8 {
            put(&storage, private(epoch)).await;
        }
        describe(&storage, Some(&format!("{}-{life}", SECRETS[3]))).await;
        let who = user(SECRETS[0]);
        let (first, second) = history_places(&storage, &who);
        put(&storage, amendment(RecordKind::Correct, &who, epochs + 9, Some(first))).await;
        put(&storage, amendment(RecordKind::Retract, &who, epochs + 10, Some(second))).await;
        let epoch = UserEpoch(epochs + 10);
        let snapshot =
            Snapshot { version: VersionId(1), rule: 1, epoch, amended: UserEpoch(0), sums: GramSums::empty(2) };
        storage.histories().keep_snapshot(&stream("films"), model("liking"), &who, &snapshot).unwrap();
        if life < 2 {
            storage.close().unwrap();
            drop(storage);
            storage = Storage::open(dir, options).unwrap();
        }
    }
    storage
}

fn history_places(storage: &Storage, who: &UserId) -> (Sequence, Sequence) {
    let history = storage.histories().of(&stream("films"), who).unwrap();
    let observed: Vec<Sequence> =
        history.iter().filter(|(_, record)| record.kind == RecordKind::Observe).map(|(at, _)| *at).collect();
    (observed[0], observed[1])
}

fn assert_erased(storage: &Storage) {
    let who = user(SECRETS[0]);
    assert!(storage.histories().of(&stream("films"), &who).unwrap().is_empty());
    assert_eq!(storage.histories().snapshot(&stream("films"), model("liking"), &who).unwrap(), None);
    assert_eq!(storage.histories().last_epoch(&stream("films"), &who).unwrap(), UserEpoch(FIRST_EPOCH + 31));
    assert_eq!(storage.user_attributes().get(&stream("films"), &who).unwrap(), None);
    for epoch in [1, 2, 8, 28].map(|epoch| FIRST_EPOCH + epoch) {
        let name = id(&format!("{}-{epoch}", SECRETS[2]));
        assert_eq!(storage.log().observation(&stream("films"), &who, &name).unwrap(), Lookup::Forgotten, "{name}");
        let again =
            storage.log().append(append(Record { observation_id: Some(name), ..observation(&who, FIRST_EPOCH + 32) }));
        assert!(matches!(again, Err(StorageError::ObservationForgotten { .. })), "{again:?}");
    }
    let erasures = storage.log().erasures(&stream("films")).unwrap();
    assert_eq!(erasures.len(), 1);
    assert_eq!((erasures[0].partition, erasures[0].observations), (Partition::of(&who), 21));
    assert_consistent(storage, &stream("films"));
}

#[tokio::test]
async fn an_erased_user_leaves_the_disk_when_the_store_closes() {
    let dir = tempfile::tempdir().unwrap();
    let storage = write_history(dir.path(), &StorageOptions::default()).await;
    assert!(!traces(&dir.path().join("db")).is_empty());
    put(&storage, amendment(RecordKind::Erase, &user(SECRETS[0]), FIRST_EPOCH + 31, None)).await;
    assert_erased(&storage);
    storage.close().unwrap();
    assert_eq!(traces(&dir.path().join("db")), Vec::<String>::new());
    drop(storage);
    let storage = open(dir.path());
    assert_erased(&storage);
    assert_eq!(traces(&dir.path().join("db")), Vec::<String>::new());
}

#[tokio::test]
async fn an_erased_user_leaves_the_disk_of_a_running_store_and_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let storage = write_history(dir.path(), &StorageOptions::default()).await;
    put(&storage, amendment(RecordKind::Erase, &user(SECRETS[0]), FIRST_EPOCH + 31, None)).await;
    let image = tempfile::tempdir().unwrap();
    crash_image(dir.path(), image.path());
    storage.scrub().unwrap();
    assert_eq!(traces(&dir.path().join("db")), Vec::<String>::new());

    // The background thread continues the work of the crashed process.
    assert!(!traces(&image.path().join("db")).is_empty());
    let storage = Storage::open(image.path(), &StorageOptions { scrub_delay: Duration::ZERO, ..Default::default() });
    let storage = storage.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !traces(&image.path().join("db")).is_empty() {
        assert!(Instant::now() < deadline, "{:?}", traces(&image.path().join("db")));
        tokio::task::yield_now().await;
    }
    assert_eq!(storage.unscrubbed(), 0);
    assert_erased(&storage);
}

#[tokio::test]
async fn an_erased_user_can_return_and_be_erased_again() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let who = user("alice");
    for round in 0..3 {
        let epoch = storage.histories().last_epoch(&stream("films"), &who).unwrap().0;
        assert_eq!(epoch, 3 * round);
        put(&storage, observation(&who, epoch + 1)).await;
        put(&storage, observation(&who, epoch + 2)).await;
        assert_eq!(storage.histories().of(&stream("films"), &who).unwrap().len(), 2);
        put(&storage, amendment(RecordKind::Erase, &who, epoch + 3, None)).await;
    }
    let erasures = storage.log().erasures(&stream("films")).unwrap();
    assert_eq!(
        erasures.iter().map(|erasure| (erasure.first.0, erasure.at.0)).collect::<Vec<_>>(),
        [(1, 3), (4, 6), (7, 9)]
    );
    assert_consistent(&storage, &stream("films"));
}

#[tokio::test]
async fn only_an_observation_of_that_user_can_be_amended() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let who = user("alice");
    let first = put(&storage, observation(&who, 1)).await;
    let correction = put(&storage, amendment(RecordKind::Correct, &who, 2, Some(first))).await;
    for kind in [RecordKind::Correct, RecordKind::Retract] {
        for target in [correction, Sequence(99)] {
            let error = storage.log().append(append(amendment(kind, &who, 3, Some(target)))).unwrap_err();
            assert!(matches!(error, StorageError::NotAnObservation { .. }), "{error}");
        }
    }
    put(&storage, amendment(RecordKind::Retract, &who, 3, Some(first))).await;
    let error = storage.log().append(append(amendment(RecordKind::Correct, &who, 4, Some(first)))).unwrap_err();
    let name = format!("~{}-{first}", Partition::of(&who).index());
    assert!(matches!(&error, StorageError::ObservationForgotten { id } if *id == name), "{error}");
    let left = storage.histories().of(&stream("films"), &who).unwrap();
    assert_eq!(left.len(), 1, "only the retraction; the correction was removed with its observation");
    assert_eq!(left[0].1.targets, [first, correction]);
}

#[test]
fn an_erased_users_decisions_go_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let decide = |who: &str, of: &str, n: u64| Decision {
        id: DecisionId::new(format!("d-{who}-{n}")).unwrap(),
        model: model_name(of),
        model_id: model(of),
        version: VersionId(1),
        user: user(who),
        user_epoch: UserEpoch(1),
        timestamp: Timestamp(1),
        seed: 1,
        seed_given: false,
        policy: "{}".to_owned(),
        pool_share: None,
        pool: false,
        shown: Vec::new(),
        candidates: RecordedCandidates::Count(1),
        inputs: InputsDigest::default(),
        selection: None,
        context: None,
    };
    for n in 0..50 {
        for (who, of) in [(SECRETS[0], "films"), (SECRETS[0], "books"), (SECRETS[0], "other"), ("bob", "films")] {
            assert!(storage.decisions().record(decide(who, of, n), None));
        }
    }
    let erase = |models: &[ModelId]| storage.decisions().erase(models, &user(SECRETS[0])).unwrap().finish(UserEpoch(2));
    assert_eq!(erase(&[model("films"), model("books")]), 100);
    let found = |who: &str, of: &str| storage.decisions().get(model(of), &decide(who, of, 7).id).unwrap().is_some();
    assert_eq!(
        [found(SECRETS[0], "films"), found(SECRETS[0], "books"), found(SECRETS[0], "other"), found("bob", "films")],
        [false, false, true, true]
    );
    assert_eq!(erase(&[model("other")]), 50);
    storage.close().unwrap();
    assert_eq!(traces(&dir.path().join("decisions")), Vec::<String>::new());
}

#[tokio::test]
async fn a_user_who_had_only_attributes_leaves_the_disk() {
    for removed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let storage = open(dir.path());
        fill(&storage, 0..100).await;
        describe(&storage, Some(SECRETS[3])).await;
        if removed {
            describe(&storage, None).await;
        }
        assert!(!traces(&dir.path().join("db")).is_empty());
        put(&storage, amendment(RecordKind::Erase, &user(SECRETS[0]), 1, None)).await;
        assert_eq!(storage.user_attributes().get(&stream("films"), &user(SECRETS[0])).unwrap(), None);
        assert_eq!(storage.user_attributes().list(&stream("films"), None, 10).unwrap(), Vec::new());
        storage.close().unwrap();
        assert_eq!(traces(&dir.path().join("db")), Vec::<String>::new(), "removed before: {removed}");
        drop(storage);
        open(dir.path()).verify().unwrap();
    }
}
