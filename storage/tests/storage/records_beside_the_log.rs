//! Items, features, frozen features, registry documents and decisions.

use crate::scenario::{
    append, crash_image, files, fill, flip, item, model, model_name, new, observation, open, stream, user,
};
use celeris_model::{
    Decision, DecisionId, FeatureOrigin, GramSums, InputsDigest, RecordedCandidates, Shard, ShownSlot, Timestamp,
    UserEpoch, VersionId,
};
use celeris_storage::{
    Append, FrozenFeatures, ItemWrite, RegistryBatch, RegistryKey, Snapshot, Storage, StorageError, StorageOptions,
    Watermark,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

fn attributes(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Describes an item and returns the revision.
fn describe(storage: &Storage, of: &str, name: &str, value: &Value) -> u64 {
    storage.items().write(&stream(of), [ItemWrite::Describe(&item(name), &attributes(value))]).unwrap()
}

/// Sets an item's features for the model with the stream's name and returns the revision.
fn give(storage: &Storage, of: &str, name: &str, features: &[f32]) -> u64 {
    storage.items().write(&stream(of), [ItemWrite::Give(model(of), &item(name), features)]).unwrap()
}

fn frozen(version: u64) -> FrozenFeatures {
    FrozenFeatures {
        model: model("films"),
        version: VersionId(version),
        item: item("m1"),
        offset: 3.5,
        origin: FeatureOrigin::StandIn,
        features: vec![0.25, 1.0],
        attributes: None,
    }
}

fn decision(id: &str) -> Decision {
    Decision {
        id: DecisionId::new(id).unwrap(),
        model: model_name("films"),
        model_id: model("films"),
        version: VersionId(1),
        user: user("alice"),
        user_epoch: UserEpoch(4),
        timestamp: Timestamp(1),
        seed: 7,
        seed_given: false,
        policy: r#"{"name":"greedy"}"#.to_owned(),
        pool_share: Some(0.01),
        pool: false,
        shown: vec![ShownSlot {
            item: item("m1"),
            score: 4.0,
            std_error: 0.5,
            propensity: Some(1.0),
            propensity_std_error: None,
            explored: false,
        }],
        candidates: RecordedCandidates::Full(vec![item("m1"), item("m2")]),
        inputs: InputsDigest::default(),
        selection: None,
        context: None,
    }
}

#[test]
fn revisions_of_an_item_grow_even_across_its_deletion() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let films = stream("films");
    let first = describe(&storage, "films", "m1", &json!({"title": "M", "year": 1931}));
    let second = describe(&storage, "films", "m1", &json!({"title": "M"}));
    storage.items().write(&films, [ItemWrite::Delete(&item("m1"), &[])]).unwrap();
    assert_eq!(storage.items().get(&films, &item("m1")).unwrap(), None);
    drop(storage);
    let storage = open(dir.path());
    let third = describe(&storage, "films", "m1", &json!({}));
    assert!(first < second && second < third, "{first}, {second}, {third}");
    assert_eq!(storage.items().get(&films, &item("m1")).unwrap().unwrap().revision, third);
    let put = give(&storage, "films", "m1", &[0.5, 1.0]);
    assert!(put > third);
    let features = storage.items().given_features(model("films"), &item("m1")).unwrap().unwrap();
    assert_eq!((features.features, features.revision), (vec![0.5, 1.0], put));
    storage.items().write(&films, [ItemWrite::Delete(&item("m1"), &[model("films")])]).unwrap();
    assert_eq!(storage.items().given_features(model("films"), &item("m1")).unwrap(), None);
}

#[test]
fn a_tombstone_is_found_by_sweeps_and_not_by_readers() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let films = stream("films");
    for name in ["a", "b", "c"] {
        describe(&storage, "films", name, &json!({"title": name}));
    }
    // Also for an item that was never described, and for one that is described again.
    let deleted = ["a", "b", "trained"].map(item);
    storage.items().write(&films, deleted.iter().map(|item| ItemWrite::Delete(item, &[]))).unwrap();
    describe(&storage, "films", "b", &json!({"title": "back"}));
    describe(&storage, "filmss", "d", &json!({}));
    drop(storage);
    let storage = open(dir.path());
    let listed: Vec<_> = storage.items().list(&films, None, 10).unwrap().into_iter().map(|(item, _)| item).collect();
    assert_eq!(listed, ["b", "c"].map(item));
    assert_eq!(storage.items().get(&films, &item("a")).unwrap(), None);
    let mut swept = Vec::new();
    storage
        .items()
        .sweep(&films, 3, |part| {
            swept.push(part.iter().map(|swept| swept.read().unwrap()).collect::<Vec<_>>());
            Ok::<_, StorageError>(())
        })
        .unwrap();
    let title = |title: &str| Some(attributes(&json!({"title": title})));
    assert_eq!(swept.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);
    let all = [(item("a"), None), (item("b"), title("back")), (item("c"), title("c")), (item("trained"), None)];
    assert_eq!(swept.concat(), all);
}

#[test]
fn pages_of_items_cover_the_stream_once_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let names: Vec<_> = (0..25).map(|n| item(&format!("{n}"))).collect();
    let title = attributes(&json!({"title": "T"}));
    storage.items().write(&stream("films"), names.iter().map(|name| ItemWrite::Describe(name, &title))).unwrap();
    describe(&storage, "filmss", "other", &json!({"title": "T"}));
    describe(&storage, "filmt", "other", &json!({"title": "T"}));
    let mut listed = Vec::new();
    loop {
        let page = storage.items().list(&stream("films"), listed.last(), 10).unwrap();
        assert!(page.len() <= 10);
        if page.is_empty() {
            break;
        }
        assert!(page.iter().all(|(_, record)| record.attributes == title));
        listed.extend(page.into_iter().map(|(name, _)| name));
    }
    assert_eq!(listed, names, "shorter names first, then bytewise");
    assert!(storage.items().list(&stream("films"), None, 0).unwrap().is_empty());
}

#[tokio::test]
async fn features_freeze_in_the_write_of_their_record() {
    let live = tempfile::tempdir().unwrap();
    let storage = open(live.path());
    let with_frozen = |epoch| Append { frozen: vec![frozen(epoch)], ..append(observation(&user("u"), epoch)) };
    for version in 1..=3 {
        new(storage.log().append(with_frozen(version)).unwrap()).durable().await.unwrap();
    }
    let image = tempfile::tempdir().unwrap();
    crash_image(live.path(), image.path());
    let storage = open(image.path());
    for version in 1..=3 {
        let found =
            storage.items().frozen((model("films"), VersionId(version)), Shard::default(), &item("m1")).unwrap();
        assert_eq!(found, Some(frozen(version)));
    }
    assert_eq!(storage.items().frozen((model("films"), VersionId(4)), Shard::default(), &item("m1")).unwrap(), None);
}

#[tokio::test]
async fn watermarks_are_kept_as_one_number_for_each_partition() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    fill(&storage, 0..30).await;
    let watermark = storage.log().watermark(&stream("films"));
    assert_eq!(watermark.records(), 30);
    let text = serde_json::to_string(&watermark).unwrap();
    assert_eq!(serde_json::from_str::<Watermark>(&text).unwrap(), watermark);
    assert!(serde_json::from_str::<Watermark>("[1,2]").is_err());
}

#[test]
fn registry_changes_are_atomic_and_lists_match_whole_parts() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let key = |parts: &[&str]| RegistryKey::new(parts.iter().copied()).unwrap();
    let mut batch = RegistryBatch::new();
    batch.put(key(&["model", "a"]), &json!({"dim": 1})).unwrap();
    batch.put(key(&["model", "b"]), &json!({"dim": 2})).unwrap();
    batch.put(key(&["models", "c"]), &json!({"dim": 3})).unwrap();
    batch.put(key(&["version", "a", "1"]), &json!({"n": 1})).unwrap();
    storage.registry().commit(&batch).unwrap();
    let mut batch = RegistryBatch::new();
    batch.delete(key(&["model", "a"])).put(key(&["model", "b"]), &json!({"dim": 5})).unwrap();
    storage.registry().commit(&batch).unwrap();
    drop(storage);
    let storage = open(dir.path());
    let listed: Vec<(RegistryKey, Value)> = storage
        .registry()
        .list(&key(&["model"]))
        .unwrap()
        .into_iter()
        .map(|(key, document)| (key, document.unwrap()))
        .collect();
    assert_eq!(listed, [(key(&["model", "b"]), json!({"dim": 5}))]);
    assert_eq!(storage.registry().get::<Value>(&key(&["model", "a"])).unwrap(), None);
    assert_eq!(storage.registry().get(&key(&["version", "a", "1"])).unwrap(), Some(json!({"n": 1})));
    assert!(matches!(storage.registry().get::<u64>(&key(&["model", "b"])), Err(StorageError::Document { .. })));
    assert!(matches!(RegistryKey::new(["model", ""]), Err(StorageError::RegistryKey { .. })));
    assert!(matches!(RegistryKey::new(["x".repeat(257)]), Err(StorageError::RegistryKey { .. })));
    assert!(matches!(RegistryKey::new(Vec::<String>::new()), Err(StorageError::RegistryKey { .. })));
}

#[test]
fn decisions_are_readable_after_a_flush_and_after_the_process_ends() {
    let live = tempfile::tempdir().unwrap();
    let storage = open(live.path());
    for n in 0..1000 {
        assert!(storage.decisions().record(decision(&format!("d-{n}")), None));
    }
    storage.decisions().flush();
    let image = tempfile::tempdir().unwrap();
    crash_image(live.path(), image.path());
    let storage = open(image.path());
    for n in 0..1000 {
        let expected = decision(&format!("d-{n}"));
        assert_eq!(storage.decisions().get(model("films"), &expected.id).unwrap().as_deref(), Some(&expected));
    }
    assert_eq!(storage.decisions().counters().dropped(), 0);
    storage.close().unwrap();
    assert!(!storage.decisions().record(decision("late"), None));
    assert_eq!(storage.decisions().counters().dropped(), 1);
}

#[test]
fn a_damaged_end_of_the_decisions_does_not_keep_the_store_from_opening() {
    let live = tempfile::tempdir().unwrap();
    let storage = open(live.path());
    for n in 0..10 {
        assert!(storage.decisions().record(decision(&format!("d-{n}")), None));
        storage.decisions().flush();
    }
    let image = tempfile::tempdir().unwrap();
    crash_image(live.path(), image.path());
    let wal = files(&image.path().join("decisions"), "log").pop().unwrap();
    let middle = usize::try_from(std::fs::metadata(&wal).unwrap().len()).unwrap() / 2;
    flip(&wal, 8 * middle);
    let storage = open(image.path());
    let found = |n: u64| storage.decisions().get(model("films"), &decision(&format!("d-{n}")).id).unwrap();
    assert_eq!(found(0).as_deref(), Some(&decision("d-0")));
    assert_eq!(found(9), None);
}

#[test]
fn rejected_decisions_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let options = StorageOptions { decision_queue_max: 1, ..StorageOptions::default() };
    let storage = Storage::open(dir.path(), &options).unwrap();
    let accepted: Vec<usize> =
        (0..5000).filter(|n| storage.decisions().record(decision(&format!("d-{n}")), None)).collect();
    storage.decisions().flush();
    assert_eq!(storage.decisions().counters().dropped() as usize, 5000 - accepted.len());
    assert!(storage.decisions().counters().dropped() > 0);
    for n in accepted {
        let id = DecisionId::new(format!("d-{n}")).unwrap();
        assert!(storage.decisions().get(model("films"), &id).unwrap().is_some());
    }
}

#[tokio::test]
async fn deleting_a_model_leaves_the_stream_and_other_models() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let other = FrozenFeatures { model: model("other"), ..frozen(1) };
    let record = Append { frozen: vec![frozen(1), other.clone()], ..append(observation(&user("u"), 1)) };
    new(storage.log().append(record).unwrap()).durable().await.unwrap();
    give(&storage, "films", "m1", &[1.0]);
    assert!(storage.decisions().record(decision("d"), None));
    let snapshot = Snapshot {
        version: VersionId(1),
        rule: 7,
        epoch: UserEpoch(5_000),
        amended: UserEpoch(0),
        sums: GramSums::empty(2),
    };
    for name in ["films", "other"] {
        storage.histories().keep_snapshot(&stream("films"), model(name), &user("u"), &snapshot).unwrap();
    }
    // After the snapshots in the queue.
    new(storage.log().append(append(observation(&user("u"), 2))).unwrap()).durable().await.unwrap();
    storage.delete_model(model("films")).unwrap();
    assert_eq!(storage.histories().snapshot(&stream("films"), model("films"), &user("u")).unwrap(), None);
    assert_eq!(storage.histories().snapshot(&stream("films"), model("other"), &user("u")).unwrap(), Some(snapshot));
    assert_eq!(storage.items().frozen((model("films"), VersionId(1)), Shard::default(), &item("m1")).unwrap(), None);
    assert_eq!(storage.items().given_features(model("films"), &item("m1")).unwrap(), None);
    assert_eq!(storage.decisions().get(model("films"), &DecisionId::new("d").unwrap()).unwrap(), None);
    assert_eq!(
        storage.items().frozen((model("other"), VersionId(1)), Shard::default(), &item("m1")).unwrap(),
        Some(other)
    );
    assert_eq!(storage.log().watermark(&stream("films")).records(), 2);
}

#[test]
fn an_unreadable_document_is_not_written_and_does_not_hide_others() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Figures {
        loss: f64,
    }
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let key = |name: &str| RegistryKey::new(["figures", name]).unwrap();
    let mut batch = RegistryBatch::new();
    for loss in [f64::NAN, f64::INFINITY] {
        let refused = batch.put(key("a"), &Figures { loss }).map(drop);
        assert!(matches!(&refused, Err(StorageError::Document { key, .. }) if key == "figures/a"), "{refused:?}");
    }
    batch.put(key("b"), &Figures { loss: 0.5 }).unwrap();
    batch.put(key("c"), &json!({"loss": null})).unwrap();
    storage.registry().commit(&batch).unwrap();
    let listed = storage.registry().list::<Figures>(&RegistryKey::new(["figures"]).unwrap()).unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!(*listed[0].1.as_ref().unwrap(), Figures { loss: 0.5 });
    assert!(matches!(&listed[1].1, Err(StorageError::Document { key, .. }) if key == "figures/c"), "{listed:?}");
    assert_eq!(storage.registry().keys(&RegistryKey::new(["figures"]).unwrap()).unwrap(), [key("b"), key("c")]);
}

#[tokio::test]
async fn observed_items_are_noted_where_asked_for_and_belong_to_the_stream() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let noted = |of: &str, epoch, name: &str, notes_item| {
        let mut append = append(observation(&user("u"), epoch));
        append.record.item = Some(item(name));
        Append { stream: stream(of), notes_item, ..append }
    };
    for append in [
        noted("films", 1, "b", true),
        noted("films", 2, "a", true),
        noted("films", 3, "b", true),
        noted("films", 4, "not asked for", false),
        noted("filmss", 1, "other", true),
    ] {
        new(storage.log().append(append).unwrap()).durable().await.unwrap();
    }
    drop(storage);
    let storage = open(dir.path());
    let listed = |of: &str| {
        let mut listed = Vec::new();
        storage.items().sweep_observed(&stream(of), |item| listed.push(item)).unwrap();
        listed
    };
    assert_eq!(listed("films"), ["a", "b"].map(item));
    assert_eq!(listed("filmss"), [item("other")]);
}
