//! A selection's state is a view of the log: it equals a simple replay, in any order, bit for bit.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use celeris_bandits::selection::{
    Exp4, HalfLifeRecords, Layout, LossScale, Objective, Outcome, Place, State, Strategy as _, StrategySpec,
};
use celeris_features::{ColdItem, Theta};
use celeris_model::ids::PARTITIONS;
use celeris_model::{
    ItemId, LabelRange, ModelId, ModelName, Observation, ObservationId, Partition, Prior, Record, RecordKind, Sequence,
    StreamName, UserId, VersionId,
};
use celeris_predictor::{
    Predictor, PredictorOptions, RankingDefaults, Scope, SelectionRule, ServingSettings, ServingVersion,
};
use celeris_storage::{LogRange, Storage, StorageOptions, Watermark};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use xxhash_rust::xxh3::xxh3_64;

const DIM: usize = 4;
const ITEMS: usize = 20;
const USERS: usize = 25;
const ARMS: [&str; 3] = ["one", "two", "three"];
/// In records; short, so that most of the log no longer counts at the end.
const HALF_LIVES: [Option<u64>; 2] = [Some(40), None];

fn name(text: &str) -> ModelName {
    ModelName::new(text).unwrap()
}

fn stream() -> StreamName {
    StreamName::new("films").unwrap()
}

fn user(index: usize) -> UserId {
    UserId::new(format!("user {index}")).unwrap()
}

/// A version with its own features.
fn version(model: &str, seed: u64) -> ServingVersion {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut vector = || -> Vec<f32> { (1..DIM).map(|_| rng.random_range(-1.0..1.0)).chain([1.0]).collect() };
    let items = (0..ITEMS).map(|item| ItemId::new(format!("film {item}")).unwrap()).collect();
    let features = (0..ITEMS).flat_map(|_| vector()).collect();
    let cold = ColdItem { offset: 3.0, features: vector() };
    let theta = Theta::new(items, vec![3.0; ITEMS], features, cold).unwrap();
    let prior = Prior::isotropic(DIM, 1.0, 1.0).unwrap();
    ServingVersion::new((name(model), ModelId(seed)), VersionId(1), theta, prior.into()).unwrap()
}

fn rule(scope: Scope, half_life: Option<u64>) -> SelectionRule {
    SelectionRule {
        name: name(&format!("{}-{}", if scope == Scope::User { "user" } else { "all" }, half_life.unwrap_or(0))),
        id: ModelId(10 + half_life.unwrap_or(0) + u64::from(scope == Scope::Global)),
        stream: stream(),
        arms: ARMS.map(name).into(),
        arm_ids: vec![ModelId(1), ModelId(2), ModelId(3)],
        strategy: StrategySpec::Exp4(Exp4::default()),
        scope,
        scale: LossScale { objective: Objective::Error, range: LabelRange::new(1.0, 5.0).unwrap() },
        half_life: half_life.map(|records| HalfLifeRecords::new(records).unwrap()),
        defaults: RankingDefaults::default(),
        begins: Watermark::start(),
    }
}

fn open(dir: &Path) -> (Storage, Predictor) {
    let (storage, predictor) = open_arms(dir);
    for half_life in HALF_LIVES {
        predictor.models().put_selection(rule(Scope::Global, half_life));
        predictor.models().put_selection(rule(Scope::User, half_life));
    }
    (storage, predictor)
}

fn open_arms(dir: &Path) -> (Storage, Predictor) {
    let storage = Storage::open(dir, &StorageOptions::default()).unwrap();
    let (predictor, _losses) = Predictor::new(storage.clone(), &PredictorOptions::default());
    for (seed, arm) in (1..).zip(ARMS) {
        predictor.activation().activate(&stream(), ServingSettings::default(), version(arm, seed)).unwrap();
    }
    (storage, predictor)
}

/// Every record, the last first.
fn backwards(storage: &Storage) -> Vec<(Partition, Sequence, Record)> {
    let watermark = storage.log().watermark(&stream());
    let mut records = Vec::new();
    for partition in Partition::all() {
        let range = LogRange { stream: stream(), partition, after: Sequence(0), up_to: watermark.get(partition) };
        let _: ControlFlow<()> = storage
            .log()
            .scan(&range, |sequence, record| {
                records.push((partition, sequence, record));
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    records.reverse();
    records
}

/// The losses of the arms by the record, on labels from 1 to 5.
fn losses(record: &Record) -> Vec<Option<f64>> {
    let predicted = |arm: &&str| {
        let id = ModelId(ARMS.iter().position(|known| known == arm).unwrap() as u64 + 1);
        record.predictions.iter().find(|prediction| prediction.model == id)
    };
    let loss = |arm: &&str| {
        let error = f64::from(predicted(arm)?.predicted) - f64::from(record.label);
        Some((error.abs() / 4.0).min(1.0))
    };
    ARMS.iter().map(loss).collect()
}

fn add(state: &mut State, lane: usize, position: u64, record: &Record) {
    if record.kind == RecordKind::Observe {
        let sums = Exp4::default().observe(Outcome::Every(&losses(record)));
        state.add(Place { lane, position, group: 0 }, &sums);
    }
}

fn replayed(storage: &Storage, half_life: Option<u64>) -> u64 {
    let half_life = half_life.map(|records| HalfLifeRecords::new(records).unwrap());
    let mut state = State::new(Layout { arms: 3, groups: 1, lanes: usize::from(PARTITIONS), half_life });
    let watermark = storage.log().watermark(&stream());
    state.advance(&Partition::all().map(|partition| watermark.get(partition).0).collect::<Vec<_>>());
    for (partition, sequence, record) in backwards(storage) {
        add(&mut state, usize::from(partition.index()), sequence.0, &record);
    }
    xxh3_64(&state.canonical_bytes(0))
}

fn replayed_of(storage: &Storage, user: &UserId, half_life: Option<u64>) -> u64 {
    let half_life = half_life.map(|records| HalfLifeRecords::new(records).unwrap());
    let mut state = State::new(Layout { arms: 3, groups: 1, lanes: 1, half_life });
    state.advance(&[storage.histories().last_epoch(&stream(), user).unwrap().0]);
    for (_, record) in storage.histories().of(&stream(), user).unwrap().into_iter().rev() {
        add(&mut state, 0, record.user_epoch.0, &record);
    }
    xxh3_64(&state.canonical_bytes(0))
}

async fn assert_views(storage: &Storage, predictor: &Predictor) {
    for half_life in HALF_LIVES {
        let report = predictor.selections().report(&rule(Scope::Global, half_life).name, None, None).await.unwrap();
        assert_eq!(report.state_hash, replayed(storage, half_life), "half-life {half_life:?}");
        let of_user = rule(Scope::User, half_life).name;
        for user in (0..USERS).map(user) {
            let report = predictor.selections().report(&of_user, Some(&user), None).await.unwrap();
            assert_eq!(report.state_hash, replayed_of(storage, &user, half_life), "{user}, half-life {half_life:?}");
        }
    }
}

/// Observations, corrections, retractions and erasures in random order, checked now and then, with
/// restarts from states that were stored at the end or, as before a crash, earlier.
#[tokio::test(flavor = "multi_thread")]
async fn states_equal_a_replay_of_the_log_after_amendments() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(31);
    let mut observed: BTreeMap<ObservationId, usize> = BTreeMap::new();
    for life in 0..5 {
        let (storage, predictor) = open(dir.path());
        let model = name(ARMS[0]);
        for round in 0..300 {
            let who = (rng.random_range(0.0_f64..1.0).powi(2) * USERS as f64) as usize;
            let any = (!observed.is_empty()).then(|| rng.random_range(0..observed.len()));
            let any = any.and_then(|at| observed.keys().nth(at)).cloned();
            match (rng.random_range(0..40), any) {
                (0, Some(id)) => {
                    drop(predictor.ingest().correct(&model, None, &id, rng.random_range(1.0..5.0)).await.unwrap());
                }
                (1, Some(id)) => {
                    predictor.ingest().forget(&model, None, &id).await.unwrap();
                    observed.remove(&id);
                }
                (2, Some(_)) if round % 5 == 0 => {
                    predictor.erase(&model, &user(who)).await.unwrap();
                    observed.retain(|_, of| *of != who);
                }
                _ => {
                    let observation = Observation {
                        user: user(who),
                        item: ItemId::new(format!("film {}", rng.random_range(0..ITEMS))).unwrap(),
                        label: rng.random_range(1.0..5.0),
                        weight: 1.0,
                        timestamp: None,
                        observation_id: None,
                        feedback: None,
                        context: None,
                        decision: None,
                    };
                    let observed_now = predictor.ingest().observe(&model, observation).await.unwrap();
                    observed.insert(observed_now.observation_id, who);
                }
            }
            if round % 60 == 7 {
                assert_views(&storage, &predictor).await;
            }
            if round == 140 {
                predictor.selections().store().unwrap();
            }
        }
        assert_views(&storage, &predictor).await;
        if life % 2 == 0 {
            predictor.selections().store().unwrap();
        }
        drop(predictor);
        storage.close().unwrap();
    }
}

fn observation(number: usize) -> Observation {
    Observation {
        user: user(number % USERS),
        item: ItemId::new(format!("film {}", number % ITEMS)).unwrap(),
        label: 1.0 + (number % 9) as f32 / 2.0,
        weight: 1.0,
        timestamp: None,
        observation_id: None,
        feedback: None,
        decision: None,
        context: None,
    }
}

/// Adds the observations to the log; returns the open store and the hash of a selection's state.
async fn observed(dir: &Path, observations: Range<usize>) -> (Storage, Predictor, u64) {
    let (storage, predictor) = open(dir);
    for number in observations {
        drop(predictor.ingest().observe(&name(ARMS[0]), observation(number)).await.unwrap());
    }
    let report = predictor.selections().report(&rule(Scope::Global, None).name, None, None).await.unwrap();
    (storage, predictor, report.state_hash)
}

/// As [`observed`], with the states stored, as by a clean stop.
async fn store_after(dir: &Path, observations: Range<usize>) -> u64 {
    let (storage, predictor, hash) = observed(dir, observations).await;
    predictor.selections().store().unwrap();
    storage.close().unwrap();
    hash
}

/// The hash of the state of this selection after a start.
async fn hash_after_start(dir: &Path, rule: SelectionRule) -> u64 {
    let (storage, predictor) = open_arms(dir);
    let name = rule.name.clone();
    predictor.models().put_selection(rule);
    let report = predictor.selections().report(&name, None, None).await.unwrap();
    storage.close().unwrap();
    report.state_hash
}

async fn assert_equals_log(dir: &Path) {
    let (storage, predictor) = open(dir);
    assert_views(&storage, &predictor).await;
    storage.close().unwrap();
}

fn stored_state(dir: &Path) -> PathBuf {
    dir.join("selections").join(rule(Scope::Global, None).id.to_string())
}

/// Whether a start uses a file shows with the file of another log of the same users.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_reads_the_stored_state_instead_of_the_log_unless_it_is_damaged() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let of_log = store_after(dir.path(), 0..200).await;
    let stored = store_after(other.path(), USERS..USERS + 200).await;
    assert_ne!(of_log, stored);
    let (file, intact) = (stored_state(dir.path()), fs::read(stored_state(other.path())).unwrap());
    fs::write(&file, &intact).unwrap();
    assert_eq!(hash_after_start(dir.path(), rule(Scope::Global, None)).await, stored);
    let mut flipped = intact.clone();
    flipped[intact.len() / 2] ^= 1;
    let of_another = fs::read(file.with_file_name(rule(Scope::Global, Some(40)).id.to_string())).unwrap();
    for damaged in [&flipped[..], &intact[..intact.len() - 1], &[], &of_another] {
        fs::write(&file, damaged).unwrap();
        assert_eq!(hash_after_start(dir.path(), rule(Scope::Global, None)).await, of_log);
        assert_equals_log(dir.path()).await;
    }
}

/// As after the database was restored from a backup.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_state_of_a_longer_log_is_ignored_and_deleted() {
    let (longer, shorter) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let stored = store_after(longer.path(), USERS..USERS + 200).await;
    let of_log = store_after(shorter.path(), 0..150).await;
    fs::copy(stored_state(longer.path()), stored_state(shorter.path())).unwrap();
    assert_eq!(hash_after_start(shorter.path(), rule(Scope::Global, None)).await, of_log);
    // The log has reached the position of the other one.
    let (storage, predictor, continued) = observed(shorter.path(), 150..260).await;
    drop(predictor);
    storage.close().unwrap();
    drop(storage);
    assert_ne!(continued, stored);
    assert_eq!(hash_after_start(shorter.path(), rule(Scope::Global, None)).await, continued);
}

/// After a restored backup, an id can be given to another selection.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_state_of_another_selection_with_the_same_id_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let stored = store_after(dir.path(), 0..200).await;
    let scale = LossScale { objective: Objective::Error, range: LabelRange::new(-20.0, 20.0).unwrap() };
    let other = || SelectionRule { scale, ..rule(Scope::Global, None) };
    let hash = hash_after_start(dir.path(), other()).await;
    assert_ne!(hash, stored);
    assert!(!stored_state(dir.path()).exists());
    assert_eq!(hash_after_start(dir.path(), other()).await, hash, "the same as read from the log");
}

/// The losses of an amended record leave the disk although few records have come since the state
/// was stored.
#[tokio::test(flavor = "multi_thread")]
async fn an_amendment_has_the_state_stored_again() {
    let dir = tempfile::tempdir().unwrap();
    let (storage, predictor) = open(dir.path());
    let model = name(ARMS[0]);
    let observe = |number| predictor.ingest().observe(&model, observation(number));
    let first = observe(0).await.unwrap().observation_id;
    let store_if_due = || {
        predictor.selections().follow_log().unwrap();
        predictor.selections().store_if_due().unwrap();
        fs::read(stored_state(dir.path())).ok()
    };
    assert_eq!(store_if_due(), None);
    predictor.selections().store().unwrap();
    let before = store_if_due().unwrap();
    drop(observe(1).await.unwrap());
    assert_eq!(store_if_due().as_ref(), Some(&before), "one record is not enough");
    predictor.ingest().forget(&model, None, &first).await.unwrap();
    assert_ne!(store_if_due().unwrap(), before);
    storage.close().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_a_deleted_selection_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let (storage, predictor) = open(dir.path());
    drop(predictor.ingest().observe(&name(ARMS[0]), observation(0)).await.unwrap());
    predictor.selections().store().unwrap();
    assert!(stored_state(dir.path()).exists());
    let rule = rule(Scope::Global, None);
    predictor.models().remove_selection(&rule.name);
    storage.delete_model(rule.id).unwrap();
    assert!(!stored_state(dir.path()).exists());
    storage.close().unwrap();
}
