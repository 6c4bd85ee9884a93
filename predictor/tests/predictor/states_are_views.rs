//! User states are views of the log and of the users' attributes: whatever is evicted from memory, they equal the replay of
//! the observations, bit for bit.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use celeris_features::{AttributeEncoder, ColdItem, Theta, UserMap};
use celeris_model::{
    Example, ItemId, ModelId, ModelName, Observation, Prior, RecentBias, StreamName, Timestamp, UserId, UserModel,
    VersionId,
};
use celeris_predictor::{
    ItemChange, PredictRequest, Predictor, PredictorOptions, ServingSettings, ServingVersion, Warmed,
};
use celeris_storage::{Storage, StorageOptions};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

const DIM: usize = 6;
const TRAINED: usize = 30;
const USERS: usize = 60;

fn model() -> ModelName {
    ModelName::new("films").unwrap()
}

fn item(index: usize) -> ItemId {
    ItemId::new(format!("film {index}")).unwrap()
}

fn user(index: usize) -> UserId {
    UserId::new(format!("user {index}")).unwrap()
}

fn vector(rng: &mut ChaCha8Rng) -> Vec<f32> {
    let mut features: Vec<f32> = (0..DIM).map(|_| rng.random_range(-1.5..1.5)).collect();
    features[DIM - 1] = 1.0;
    features
}

fn attributes(kind: usize, age: usize) -> Map<String, Value> {
    json!({ "kind": format!("kind {kind}"), "age": age }).as_object().unwrap().clone()
}

/// The map from attributes of users of a version; the first version has none.
fn user_map(id: u64) -> Option<UserMap> {
    let described: Vec<_> = (0..40).map(|n| attributes(n % 4, 20 + n)).collect();
    let encoder = AttributeEncoder::learn(&described);
    let mut rng = ChaCha8Rng::seed_from_u64(100 + id);
    let coefficients = (0..encoder.width() * DIM).map(|_| rng.random_range(-0.5..0.5)).collect();
    (id > 1).then(|| UserMap::new(encoder, (vector(&mut rng), coefficients), 1.0).unwrap())
}

/// A version whose features and prior depend on its number.
fn version(id: u64) -> ServingVersion {
    let mut rng = ChaCha8Rng::seed_from_u64(id);
    let items = (0..TRAINED).map(item).collect();
    let offsets = (0..TRAINED).map(|_| rng.random_range(2.0..4.0)).collect();
    let features = (0..TRAINED).flat_map(|_| vector(&mut rng)).collect();
    let cold = ColdItem { offset: 3.0, features: vector(&mut rng) };
    // Under every third version users have a recent bias.
    let recent_bias = id.is_multiple_of(3).then(|| RecentBias::new(0.8, 4.0).unwrap());
    let prior = Prior::isotropic(DIM, 2.0 + id as f64, 0.7).unwrap().with_recent_bias(recent_bias);
    // Every second version has choice vectors.
    let choices = if id.is_multiple_of(2) { (0..TRAINED).flat_map(|_| vector(&mut rng)).collect() } else { Vec::new() };
    let theta = Theta::new(items, offsets, features, cold).unwrap().with_choices(prior.pulls(&choices)).unwrap();
    let version = ServingVersion::new((model(), ModelId(1)), VersionId(id), theta, prior.into()).unwrap();
    version.with_user_map(user_map(id).map(Arc::new))
}

/// The observations by user, and the weights computed from them.
#[derive(Default)]
struct Oracle {
    learnt: HashMap<usize, Vec<(usize, f32, f32)>>,
    described: HashMap<usize, Map<String, Value>>,
}

impl Oracle {
    fn weights(&self, version: &ServingVersion, user: usize) -> Vec<u64> {
        let examples: Vec<Example> = self
            .learnt
            .get(&user)
            .into_iter()
            .flatten()
            .map(|(film, label, weight)| {
                let row = version.theta.get(&item(*film)).unwrap_or_else(|| version.theta.cold_item());
                Example {
                    features: row.features,
                    offset: row.offset,
                    label: *label,
                    weight: *weight,
                    timestamp: Timestamp(0),
                    taken_before: None,
                    choice: row.choice,
                }
            })
            .collect();
        let shift = self.described.get(&user).and_then(|attributes| user_map(version.id.0)?.shift(attributes));
        let pull = shift.map(|shift| version.learning.prior().pulls(&shift).into());
        let model = UserModel::rebuild(&version.learning, examples.as_slice(), examples.len() as u64).unwrap();
        let model = model.with_profile(&version.learning, pull);
        model.weights().iter().map(|w| w.to_bits()).collect()
    }
}

struct Open {
    storage: Storage,
    predictor: Predictor,
}

fn open(dir: &Path, user_bytes_max: usize, active: u64) -> Open {
    let storage = Storage::open(dir, &StorageOptions::default()).unwrap();
    let options = PredictorOptions { user_bytes_max, prediction_items_max: usize::MAX, ..PredictorOptions::default() };
    let (predictor, _losses) = Predictor::new(storage.clone(), &options);
    activate(&predictor, active);
    Open { storage, predictor }
}

fn activate(predictor: &Predictor, id: u64) {
    predictor.activation().activate(&StreamName::of_model(&model()), ServingSettings::default(), version(id)).unwrap();
}

async fn observe_some(predictor: &Predictor, oracle: &mut Oracle, rng: &mut ChaCha8Rng, count: usize) {
    for _ in 0..count {
        if rng.random_bool(0.2) {
            let (who, kind) = (rng.random_range(0..USERS), rng.random_range(0..5));
            let described = if kind < 4 { attributes(kind, rng.random_range(20..60)) } else { Map::new() };
            let epoch = predictor.ingest().describe_user(&model(), &user(who), described.clone()).await.unwrap();
            assert_eq!(epoch.0, oracle.learnt.get(&who).map_or(0, Vec::len) as u64, "attributes are no event");
            oracle.described.insert(who, described);
        }
        // The power makes a few users heavy, so that several checkpoints are passed.
        let who = (rng.random_range(0.0_f64..1.0).powi(3) * USERS as f64) as usize;
        // A third of the films came after training.
        let film = rng.random_range(0..TRAINED * 3 / 2);
        let (label, weight) = (rng.random_range(0.5_f32..5.0), rng.random_range(0.5_f32..2.0));
        let observation = Observation {
            user: user(who),
            item: item(film),
            label,
            weight,
            timestamp: None,
            observation_id: None,
            feedback: None,
            decision: None,
            context: None,
        };
        let observed = predictor.ingest().observe(&model(), observation).await.unwrap();
        let learnt = oracle.learnt.entry(who).or_default();
        learnt.push((film, label, weight));
        assert_eq!(observed.user_epoch.0, learnt.len() as u64);
    }
}

async fn check(predictor: &Predictor, oracle: &Oracle, id: u64, moment: &str) {
    let version = version(id);
    for who in 0..USERS {
        let view = predictor.explainer().user(&model(), &user(who), 0).await.unwrap();
        let bits: Vec<u64> = view.weights.iter().map(|w| w.to_bits()).collect();
        assert_eq!(bits, oracle.weights(&version, who), "user {who} {moment}");
        assert_eq!(view.version, VersionId(id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn evicted_restarted_and_switched_states_equal_the_replay() {
    // Room for a handful of users a shard at first, then for one, so that states are evicted all
    // the time.
    for user_bytes_max in [1 << 30, 64 * 2_000] {
        let dir = tempfile::tempdir().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut oracle = Oracle::default();
        let node = open(dir.path(), user_bytes_max, 1);
        observe_some(&node.predictor, &mut oracle, &mut rng, 600).await;
        check(&node.predictor, &oracle, 1, "after observing").await;
        activate(&node.predictor, 2);
        check(&node.predictor, &oracle, 2, "after a switch").await;
        observe_some(&node.predictor, &mut oracle, &mut rng, 300).await;
        check(&node.predictor, &oracle, 2, "after observing under the second version").await;
        activate(&node.predictor, 1);
        check(&node.predictor, &oracle, 1, "after going back").await;
        node.storage.close().unwrap();
        drop(node);
        let node = open(dir.path(), user_bytes_max, 2);
        check(&node.predictor, &oracle, 2, "after a restart").await;
        observe_some(&node.predictor, &mut oracle, &mut rng, 100).await;
        check(&node.predictor, &oracle, 2, "after observing again").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn features_freeze_at_the_first_observation_until_the_next_version() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path(), 1 << 30, 1);
    let (late, mut rng) = (item(1_000), ChaCha8Rng::seed_from_u64(5));
    let (first, second) = (vector(&mut rng), vector(&mut rng));
    let give = |features: &[f32]| {
        let change = ItemChange { features: Some(features.to_vec()), attributes: None };
        node.predictor.catalog().put_item(&model(), &late, change).unwrap()
    };
    let served = || node.predictor.catalog().item(&model(), &late).unwrap().unwrap().features;
    assert_eq!(give(&second), celeris_predictor::Effective::Now);
    assert_eq!(served(), second);
    assert_eq!(give(&first), celeris_predictor::Effective::Now);
    assert_eq!(served(), first);
    let observation = Observation {
        user: user(1),
        item: late.clone(),
        label: 4.0,
        weight: 1.0,
        timestamp: None,
        observation_id: None,
        feedback: None,
        decision: None,
        context: None,
    };
    node.predictor.ingest().observe(&model(), observation).await.unwrap();
    assert_eq!(give(&second), celeris_predictor::Effective::NextVersion);
    assert_eq!(served(), first);
    let learnt = node.predictor.explainer().user(&model(), &user(1), 0).await.unwrap().weights;
    node.storage.close().unwrap();
    drop(node);
    let node = open(dir.path(), 1 << 30, 1);
    assert_eq!(node.predictor.explainer().user(&model(), &user(1), 0).await.unwrap().weights, learnt);
    activate(&node.predictor, 2);
    assert_eq!(node.predictor.catalog().item(&model(), &late).unwrap().unwrap().features, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_predictions_are_never_stale() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path(), 1 << 30, 1);
    let request = |who: usize, film: usize| PredictRequest {
        model: model(),
        user: user(who),
        items: vec![item(film)],
        min_epoch: None,
        segment: None,
        context: None,
    };
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut oracle = Oracle::default();
    for round in 0..40 {
        observe_some(&node.predictor, &mut oracle, &mut rng, 5).await;
        activate(&node.predictor, 1 + round % 2);
        let version = version(1 + round % 2);
        for _ in 0..10 {
            let (who, film) = (rng.random_range(0..USERS), rng.random_range(0..TRAINED));
            // Requested twice, so that the second answer can come from the cache.
            let first = node.predictor.predict(&request(who, film)).await.unwrap();
            let second = node.predictor.predict(&request(who, film)).await.unwrap();
            assert_eq!(first, second);
            let weights: Vec<f64> = oracle.weights(&version, who).into_iter().map(f64::from_bits).collect();
            let row = version.theta.row(film);
            let dot: f64 = weights.iter().zip(row.features).map(|(w, x)| w * f64::from(*x)).sum();
            // Weights and sums are f32 in the service: seven digits of a score below ten.
            assert!((f64::from(first.scores[0].estimate.score) - f64::from(row.offset) - dot).abs() < 1e-5);
        }
    }
}

/// Prepares a version while observations go on, and switches to it.
async fn switch_under_load(predictor: &Predictor, oracle: &mut Oracle, rng: &mut ChaCha8Rng, id: u64) -> Warmed {
    let hot = predictor.activation().hot(&model()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let prepared = std::thread::scope(|scope| {
        let preparing = scope.spawn(|| predictor.activation().prepare(hot, version(id), deadline).unwrap());
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(observe_some(predictor, oracle, rng, 150));
            preparing.join().unwrap()
        })
    });
    let warmed = prepared.warmed;
    predictor.activation().switch(ServingSettings::default(), prepared);
    warmed
}

/// States prepared for another version, caught up after the switch, kept for a rollback or evicted
/// meanwhile, equal the replay of the log.
#[tokio::test(flavor = "multi_thread")]
async fn states_prepared_under_load_equal_the_replay() {
    for user_bytes_max in [1 << 30, 64 * 4_000] {
        let dir = tempfile::tempdir().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(31);
        let mut oracle = Oracle::default();
        let node = open(dir.path(), user_bytes_max, 1);
        observe_some(&node.predictor, &mut oracle, &mut rng, 600).await;
        for (switch, id) in [2, 3, 2, 1, 3].into_iter().enumerate() {
            let warmed = switch_under_load(&node.predictor, &mut oracle, &mut rng, id).await;
            if user_bytes_max == 1 << 30 {
                assert!(warmed.users.of > USERS / 2 && warmed.users.prepared == warmed.users.of, "{warmed:?}");
                assert!(warmed.features.of > 0 && warmed.features.prepared == warmed.features.of, "{warmed:?}");
            }
            if switch % 2 == 0 {
                node.predictor.activation().release((&model(), ModelId(1)), &[VersionId(id)]);
            }
            check(&node.predictor, &oracle, id, &format!("after switch {switch} to version {id}")).await;
            observe_some(&node.predictor, &mut oracle, &mut rng, 50).await;
            check(&node.predictor, &oracle, id, &format!("after observing under version {id}")).await;
        }
    }
}

/// After a switch, entries that were in the caches are found without a rebuild or a read from the
/// store.
#[tokio::test(flavor = "multi_thread")]
async fn prepared_entries_are_found_after_a_switch() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(37);
    let mut oracle = Oracle::default();
    let node = open(dir.path(), 1 << 30, 1);
    observe_some(&node.predictor, &mut oracle, &mut rng, 300).await;
    let requests: Vec<PredictRequest> = (0..USERS)
        .map(|who| PredictRequest {
            model: model(),
            user: user(who),
            items: (0..TRAINED * 3 / 2).map(item).collect(),
            min_epoch: None,
            segment: None,
            context: None,
        })
        .collect();
    for request in &requests {
        node.predictor.predict(request).await.unwrap();
    }
    let hot = node.predictor.activation().hot(&model()).unwrap();
    let prepared =
        node.predictor.activation().prepare(hot, version(2), Instant::now() + Duration::from_secs(60)).unwrap();
    let warmed = prepared.warmed;
    assert_eq!(warmed.predictions.prepared, USERS * TRAINED * 3 / 2, "{warmed:?}");
    let others = TRAINED / 2;
    assert_eq!((warmed.features.prepared, warmed.features.of), (others, others), "{warmed:?}");
    node.predictor.activation().switch(ServingSettings::default(), prepared);
    let again = node.predictor.activation().hot(&model()).unwrap();
    let further = node.predictor.activation().prepare(again, version(2), Instant::now()).unwrap().warmed;
    assert_eq!(further.users.of, warmed.users.of);
    assert_eq!(
        (further.features.of, further.predictions.of),
        (warmed.features.of, warmed.predictions.of),
        "all is warm"
    );
    check(&node.predictor, &oracle, 2, "after the switch").await;
}

/// A shadow version predicts each observation from the state before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_version_predicts_from_the_state_before_each_observation() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(41);
    let mut oracle = Oracle::default();
    let node = open(dir.path(), 1 << 30, 1);
    observe_some(&node.predictor, &mut oracle, &mut rng, 200).await;
    let before: HashMap<usize, usize> = oracle.learnt.iter().map(|(who, learnt)| (*who, learnt.len())).collect();
    let samples = node.predictor.models().start_shadow(&model(), VersionId(2), 1000).unwrap();
    observe_some(&node.predictor, &mut oracle, &mut rng, 200).await;
    node.predictor.models().stop_shadow((&model(), ModelId(1)), VersionId(2));
    let other = version(2);
    let mut at = before;
    let mut seen = 0;
    for event in samples {
        let who: usize = event.user.as_str().strip_prefix("user ").unwrap().parse().unwrap();
        let count = at.entry(who).or_default();
        let learnt = [(who, oracle.learnt[&who][..*count].to_vec())].into();
        // Those that the user has when the shadow version is asked.
        let past = Oracle { learnt, described: oracle.described.clone() };
        let (film, label, _) = oracle.learnt[&who][*count];
        assert_eq!((event.label, event.version), (label, VersionId(1)));
        let row = other.theta.get(&item(film)).unwrap_or_else(|| other.theta.cold_item());
        let weights: Vec<f64> = past.weights(&other, who).into_iter().map(f64::from_bits).collect();
        let dot: f64 = weights.iter().zip(row.features).map(|(w, x)| w * f64::from(*x)).sum();
        let predicted = node.predictor.activation().shadow_prediction(&other, &event).unwrap().unwrap();
        // Weights and sums are f32 in the service: seven digits of a score below ten.
        assert!((f64::from(predicted) - f64::from(row.offset) - dot).abs() < 1e-5);
        *count += 1;
        seen += 1;
    }
    assert_eq!(seen, 200);
    check(&node.predictor, &oracle, 1, "while compared").await;
    activate(&node.predictor, 2);
    check(&node.predictor, &oracle, 2, "once the shadow version serves").await;
}
