//! Amendments, reads, evictions, deletions, switches and crashes in any order, also between
//! queueing and sync: every state equals the one rebuilt from the log, bit for bit.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use celeris_features::{ColdItem, Theta};
use celeris_model::preference::Takings;
use celeris_model::{
    Example, ItemId, Learning, Loss, ModelId, ModelName, Observation, ObservationId, Prior, RecordKind, Shard,
    StreamName, UserEpoch, UserId, UserModel, VersionId,
};
use celeris_predictor::{
    ItemChange, PredictRequest, Predictor, PredictorError, PredictorOptions, ServingSettings, ServingVersion,
};
use celeris_storage::{AckMode, Storage, StorageError, StorageOptions};
use fail::FailGuard;
use futures_util::FutureExt as _;
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

/// Number of users; the first has a long history, covered by snapshots.
const USERS: usize = 3;
const LONG: usize = 4_090;
/// Items of every version's table, and all items.
const TRAINED: usize = 6;
const ITEMS: usize = 12;

#[derive(Debug, Clone)]
enum Step {
    Observe {
        user: usize,
        item: usize,
        label: f32,
    },
    /// Enough observations to pass a checkpoint of a long history.
    Burst {
        user: usize,
        count: usize,
    },
    /// Corrects an observation of the user, selected by its relative position `place`.
    Correct {
        user: usize,
        place: f64,
        label: f32,
    },
    Retract {
        user: usize,
        place: f64,
    },
    Erase {
        user: usize,
    },
    /// Supplies other features for an item.
    Give {
        item: usize,
        seed: u64,
    },
    Read {
        user: usize,
    },
    /// Blocks writes of the log's queue until the next release.
    Hold,
    Release,
    /// Opens and checks a copy of the disk, as after a kill.
    Crash,
    Restart,
    Switch {
        version: u64,
    },
    /// Deletes the model and creates another one of the same name.
    Recreate,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (user, item, label, place) = (0..USERS, 0..ITEMS, 0.5_f32..5.0, 0.0..1.0);
    let step = prop_oneof![
        4 => (user.clone(), item.clone(), label.clone())
            .prop_map(|(user, item, label)| Step::Observe { user, item, label }),
        2 => (user.clone(), 1_usize..12).prop_map(|(user, count)| Step::Burst { user, count }),
        4 => (user.clone(), place.clone(), label).prop_map(|(user, place, label)| Step::Correct { user, place, label }),
        3 => (user.clone(), place).prop_map(|(user, place)| Step::Retract { user, place }),
        1 => user.clone().prop_map(|user| Step::Erase { user }),
        3 => (item, any::<u64>()).prop_map(|(item, seed)| Step::Give { item, seed }),
        6 => user.prop_map(|user| Step::Read { user }),
        4 => Just(Step::Hold),
        3 => Just(Step::Release),
        1 => Just(Step::Crash),
        1 => Just(Step::Restart),
        2 => (1_u64..3).prop_map(|version| Step::Switch { version }),
        1 => Just(Step::Recreate),
    ];
    prop::collection::vec(step, 4..40)
}

fn name(text: &str) -> ModelName {
    ModelName::new(text).unwrap()
}

fn stream() -> StreamName {
    StreamName::new("feedback").unwrap()
}

fn user(index: usize) -> UserId {
    UserId::new(format!("user {index}")).unwrap()
}

fn item(index: usize) -> ItemId {
    ItemId::new(format!("item {index}")).unwrap()
}

fn vector(seed: u64, dim: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut features: Vec<f32> = (0..dim).map(|_| rng.random_range(-1.5..1.5)).collect();
    features[dim - 1] = 1.0;
    features
}

/// The serving models and their versions.
#[derive(Clone)]
struct Models {
    /// The id and version of the model that is deleted and created again; `steady` stays.
    films: (ModelId, u64),
    steady: ModelId,
}

impl Models {
    /// Later models of a name have another feature dimension and another loss.
    fn dim(id: ModelId) -> usize {
        3 + (id.0 % 3) as usize
    }

    fn version(model: &str, id: ModelId, version: u64) -> ServingVersion {
        let dim = Self::dim(id);
        let seed = id.0 * 100 + version * 10;
        let features = (0..TRAINED as u64).flat_map(|place| vector(seed + place, dim)).collect();
        let cold = ColdItem { offset: 3.0, features: vector(seed + 99, dim) };
        let theta = Theta::new((0..TRAINED).map(item).collect(), vec![2.0; TRAINED], features, cold).unwrap();
        // The loss of `steady` also depends on which observation of an item is the first.
        let loss = match id.0 {
            1 => Loss::Implicit,
            even if even % 2 == 0 => Loss::Squared,
            _ => Loss::Logistic,
        };
        let learning = Learning::new(Prior::isotropic(dim, 2.0, 0.7).unwrap(), loss, None);
        ServingVersion::new((name(model), id), VersionId(version), theta, learning).unwrap()
    }

    fn serving(&self) -> [(&'static str, ServingVersion); 2] {
        let (films, version) = self.films;
        [("films", Self::version("films", films, version)), ("steady", Self::version("steady", self.steady, 1))]
    }
}

type Outcome = Pin<Box<dyn Future<Output = Result<Option<(usize, UserEpoch)>, PredictorError>>>>;

struct Node {
    storage: Storage,
    predictor: Arc<Predictor>,
}

impl Node {
    fn open(dir: &Path, models: &Models) -> Self {
        let storage = Storage::open(dir, &StorageOptions::default()).unwrap();
        // Room for hardly any user: states are evicted as soon as no request uses them.
        let options = PredictorOptions { user_bytes_max: 64 * 1_000, ..PredictorOptions::default() };
        let (predictor, _losses) = Predictor::new(storage.clone(), &options);
        for (_, version) in models.serving() {
            predictor.activation().activate(&stream(), ServingSettings::default(), version).unwrap();
        }
        Self { storage, predictor: Arc::new(predictor) }
    }

    /// Compares every state with the batch solve over the log's records.
    async fn check(&self, models: &Models, moment: &str) {
        for (model, version) in models.serving() {
            for who in 0..USERS {
                let view = self.predictor.explainer().user(&name(model), &user(who), 0).await.unwrap();
                let expected = self.replayed(&version, who);
                assert_eq!(view.state_hash, expected, "user {who} of {model} {moment}");
            }
        }
    }

    fn replayed(&self, version: &ServingVersion, who: usize) -> u64 {
        let history = self.storage.histories().of(&stream(), &user(who)).unwrap();
        let observed = history.iter().filter(|(_, record)| record.kind == RecordKind::Observe);
        let mut frozen = HashMap::new();
        for (_, record) in observed.clone() {
            let item = record.item.clone().unwrap();
            if version.theta.get(&item).is_none() {
                let features =
                    self.storage.items().frozen((version.model_id, version.id), Shard::default(), &item).unwrap();
                let features = features.expect("features that a state has learnt from are frozen");
                frozen.insert(item, features);
            }
        }
        let mut takings = Takings::default();
        let examples: Vec<Example> = observed
            .map(|(_, record)| {
                let item = record.item.as_ref().unwrap();
                let (offset, features) = match version.theta.get(item) {
                    Some(row) => (row.offset, row.features),
                    None => (frozen[item].offset, &*frozen[item].features),
                };
                let (label, weight, timestamp) = (record.label, record.weight, record.timestamp);
                let taken_before = takings.next(item, label, timestamp);
                Example { features, label, offset, weight, timestamp, taken_before, choice: &[] }
            })
            .collect();
        UserModel::rebuild(&version.learning, examples.as_slice(), examples.len() as u64).unwrap().hash()
    }
}

/// A node, the observations sent to it, and the epochs that it acknowledged.
struct Scene {
    /// The log's pause; dropped before the node, which waits for the log.
    held: Option<FailGuard>,
    dir: tempfile::TempDir,
    node: Option<Node>,
    models: Models,
    /// Ids of the observations sent, by user.
    sent: [Vec<ObservationId>; USERS],
    count: usize,
    waiting: RefCell<Vec<Outcome>>,
    acknowledged: [UserEpoch; USERS],
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let models = Models { films: (ModelId(2), 1), steady: ModelId(1) };
        let node = Some(Node::open(dir.path(), &models));
        let (sent, acknowledged) = (Default::default(), [UserEpoch(0); USERS]);
        Self { dir, node, models, sent, count: 0, waiting: RefCell::default(), acknowledged, held: None }
    }

    fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }

    fn observe(&mut self, who: usize, film: usize, label: f32) {
        let id = ObservationId::new(format!("o{}", self.count)).unwrap();
        self.count += 1;
        let observation = Observation {
            user: user(who),
            item: item(film),
            label: if label > 2.5 { 1.0 } else { 0.0 },
            weight: label,
            timestamp: None,
            observation_id: Some(id.clone()),
            feedback: None,
            decision: None,
            context: None,
        };
        let predictor = Arc::clone(&self.node().predictor);
        let pending = predictor.ingest().begin_observe(&name("steady"), None, &observation, AckMode::Gather).unwrap();
        self.sent[who].push(id);
        self.wait(async move {
            let observed = predictor.ingest().finish_observe(pending).await?;
            Ok(Some((who, observed.user_epoch)))
        });
    }

    /// Polls the work once, so that it runs as far as possible without a sync.
    fn wait(&self, work: impl Future<Output = Result<Option<(usize, UserEpoch)>, PredictorError>> + 'static) {
        let mut work: Outcome = Box::pin(work);
        match (&mut work).now_or_never() {
            None => self.waiting.borrow_mut().push(work),
            Some(done) => self.waiting.borrow_mut().push(Box::pin(std::future::ready(done))),
        }
    }

    async fn release(&mut self) {
        self.held = None;
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        for done in waiting {
            match done.await {
                Ok(Some((who, epoch))) => self.acknowledged[who] = self.acknowledged[who].max(epoch),
                Ok(None) => {}
                // The observation was retracted or erased before, or is not durable yet.
                Err(PredictorError::Storage(StorageError::ObservationForgotten { .. })) => {}
                Err(PredictorError::UnknownObservation { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Pauses the log before its next write.
    fn hold(&self) -> FailGuard {
        FailGuard::new(format!("commit {}", self.dir.path().join("db").display()), "pause").unwrap()
    }

    /// Starts a node on a copy of the disk and checks it; returns the last epochs on the disk.
    async fn crash(&mut self) -> [UserEpoch; USERS] {
        let copy = tempfile::tempdir().unwrap();
        copy_dir(self.dir.path(), copy.path());
        let node = Node::open(copy.path(), &self.models);
        let reached = std::array::from_fn(|who| node.storage.histories().last_epoch(&stream(), &user(who)).unwrap());
        for (reached, acknowledged) in reached.iter().zip(&self.acknowledged) {
            assert!(reached >= acknowledged, "what was acknowledged is on the disk");
        }
        node.check(&self.models, "after a crash").await;
        node.storage.close().unwrap();
        reached
    }

    async fn restart(&mut self) {
        self.release().await;
        let node = self.node.take().unwrap();
        node.storage.close().unwrap();
        drop(node);
        self.node = Some(Node::open(self.dir.path(), &self.models));
    }

    fn serve(&self) {
        let [(_, films), _] = self.models.serving();
        self.node().predictor.activation().activate(&stream(), ServingSettings::default(), films).unwrap();
    }

    /// An observation of the user, selected by its relative position among those sent.
    fn sent(&self, who: usize, place: f64) -> Option<ObservationId> {
        let sent = &self.sent[who];
        sent.get((place * sent.len() as f64) as usize).cloned()
    }

    async fn take(&mut self, step: Step) {
        if matches!(step, Step::Restart) {
            // Before the node is borrowed, since a restart drops it.
            return self.restart().await;
        }
        let predictor = Arc::clone(&self.node().predictor);
        match step {
            Step::Observe { user, item, label } => self.observe(user, item, label),
            Step::Burst { user, count } => (0..count).for_each(|n| self.observe(user, n % ITEMS, 1.0 + n as f32 / 3.0)),
            Step::Correct { user: who, place, label } => {
                let Some(id) = self.sent(who, place) else { return };
                let label = if label > 2.0 { 1.0 } else { 0.0 };
                self.wait(async move {
                    let amended = predictor.ingest().correct(&name("steady"), None, &id, label).await?;
                    Ok(Some((who, amended.user_epoch)))
                });
            }
            Step::Retract { user: who, place } => {
                let Some(id) = self.sent(who, place) else { return };
                self.wait(async move {
                    let amended = predictor.ingest().forget(&name("steady"), None, &id).await?;
                    Ok(Some((who, amended.user_epoch)))
                });
            }
            Step::Erase { user: who } => self.wait(async move {
                let erased = predictor.erase(&name("steady"), &user(who)).await?;
                Ok(Some((who, erased.user_epoch)))
            }),
            Step::Give { item: film, seed } => {
                let dim = Models::dim(self.models.films.0);
                let change = ItemChange { features: Some(vector(seed, dim)), attributes: None };
                predictor.catalog().put_item(&name("films"), &item(film), change).unwrap();
            }
            Step::Read { user: who } => {
                for model in ["films", "steady"] {
                    let predictor = Arc::clone(&predictor);
                    self.wait(async move {
                        let items = (0..ITEMS).map(item).collect();
                        let request = PredictRequest {
                            model: name(model),
                            user: user(who),
                            items,
                            min_epoch: None,
                            segment: None,
                            context: None,
                        };
                        predictor.predict(&request).await?;
                        Ok(None)
                    });
                }
            }
            Step::Hold if self.held.is_none() => self.held = Some(self.hold()),
            Step::Hold => {}
            Step::Release => {
                self.release().await;
                self.node().check(&self.models, "after a release").await;
            }
            Step::Crash => drop(self.crash().await),
            Step::Restart => unreachable!("it was taken above"),
            Step::Switch { version } => {
                self.models.films.1 = version;
                self.serve();
            }
            Step::Recreate => {
                predictor.activation().remove(&name("films"));
                self.node().storage.delete_model(self.models.films.0).unwrap();
                self.models.films = (self.models.films.0.next().next(), 1);
                self.serve();
            }
        }
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        max_shrink_iters: 200,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(18),
        ..ProptestConfig::default()
    })]

    #[test]
    fn states_equal_the_log_for_any_interleaving_of_queueing_and_sync(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut scene = Scene::new();
            (0..LONG).for_each(|n| scene.observe(0, n % TRAINED, 1.0 + (n % 7) as f32 / 2.0));
            scene.release().await;
            for step in steps {
                scene.take(step).await;
            }
            scene.release().await;
            scene.node().check(&scene.models, "at the end").await;
            scene.restart().await;
            scene.node().check(&scene.models, "after a restart").await;
        });
    }
}

/// Queues a correction, a retraction or an erasure of a user with a snapshot, and reads the user
/// before it is durable: the stored sums are those of the history before the amendment.
#[tokio::test(flavor = "multi_thread")]
async fn reads_during_a_queued_amendment_do_not_restore_amended_records() {
    for observations in [4_100, 8_192] {
        for amendment in 0..3 {
            let mut scene = Scene::new();
            (0..observations).for_each(|n| scene.observe(0, n % TRAINED, 1.0 + (n % 7) as f32 / 2.0));
            scene.release().await;
            scene.node().check(&scene.models, "before").await;
            scene.take(Step::Hold).await;
            let step = match amendment {
                0 => {
                    Step::Correct { user: 0, place: 0.01, label: if scene.count.is_multiple_of(2) { 5.0 } else { 0.5 } }
                }
                1 => Step::Retract { user: 0, place: 0.01 },
                _ => Step::Erase { user: 0 },
            };
            scene.take(step).await;
            scene.take(Step::Read { user: 0 }).await;
            scene.take(Step::Observe { user: 0, item: 1, label: 3.0 }).await;
            scene.take(Step::Read { user: 0 }).await;
            let durable = scene.crash().await[0];
            assert_eq!(durable, UserEpoch(observations as u64), "nothing is written while the log is paused");
            scene.take(Step::Release).await;
            // Past the next checkpoint, where the sums are stored.
            (0..5_000).for_each(|n| scene.observe(0, n % TRAINED, 2.0));
            scene.take(Step::Release).await;
            scene.restart().await;
            scene.node().check(&scene.models, "after a restart").await;
        }
    }
}

/// Features that a state has learnt from when it was built, not by an observation, are frozen.
#[tokio::test(flavor = "multi_thread")]
async fn features_of_a_rebuilt_state_are_frozen() {
    let late = TRAINED + 1;
    let mut scene = Scene::new();
    scene.observe(1, late, 4.0);
    scene.release().await;
    // Neither the other version nor the other model served when the observation was made.
    for step in [Step::Switch { version: 2 }, Step::Recreate] {
        scene.take(step).await;
        scene.take(Step::Give { item: late, seed: 1 }).await;
        let state = |scene: &Scene| {
            let predictor = Arc::clone(&scene.node().predictor);
            async move { predictor.explainer().user(&name("films"), &user(1), 0).await.unwrap().state_hash }
        };
        let before = state(&scene).await;
        scene.take(Step::Give { item: late, seed: 2 }).await;
        scene.restart().await;
        assert_eq!(state(&scene).await, before);
        scene.node().check(&scene.models, "after a restart").await;
    }
}
