//! States of long histories are resumed from snapshots, and equal the replay of all observations,
//! bit for bit.

use std::path::Path;
use std::time::{Duration, Instant};

use celeris_features::{ColdItem, Theta};
use celeris_model::preference::Takings;
use celeris_model::{
    Example, HalfLife, ItemId, Learning, Loss, ModelId, ModelName, Observation, ObservationId, Prior, StreamName,
    Timestamp, UserEpoch, UserId, UserModel, VersionId,
};
use celeris_predictor::{Predictor, PredictorOptions, ServingSettings, ServingVersion};
use celeris_storage::{AckMode, Snapshot, Storage, StorageOptions};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DIM: usize = 5;
const ITEMS: usize = 40;
const NAMES: [&str; 5] = ["graded", "clicks", "fading", "plays", "fading-plays"];

fn name(model: &str) -> ModelName {
    ModelName::new(model).unwrap()
}

fn model_id(model: &str) -> ModelId {
    let place = NAMES.iter().position(|known| *known == model);
    ModelId(place.unwrap_or(NAMES.len()) as u64 + 1)
}

fn stream() -> StreamName {
    StreamName::new("feedback").unwrap()
}

fn user() -> UserId {
    UserId::new("heavy").unwrap()
}

fn item(index: usize) -> ItemId {
    ItemId::new(format!("item {index}")).unwrap()
}

fn version(model: &str, id: u64) -> ServingVersion {
    let mut rng = ChaCha8Rng::seed_from_u64(id);
    let mut row = || {
        let mut features: Vec<f32> = (0..DIM).map(|_| rng.random_range(-1.0..1.0)).collect();
        features[DIM - 1] = 1.0;
        features
    };
    let features = (0..ITEMS).flat_map(|_| row()).collect();
    let cold = ColdItem { offset: 0.1, features: row() };
    let theta = Theta::new((0..ITEMS).map(item).collect(), vec![0.2; ITEMS], features, cold).unwrap();
    let loss = match model {
        "clicks" => Loss::Logistic,
        "plays" | "fading-plays" => Loss::Implicit,
        _ => Loss::Squared,
    };
    let half_life = model.starts_with("fading").then(|| HalfLife::from_seconds(900.0).unwrap());
    let learning = Learning::new(Prior::isotropic(DIM, 2.0, 0.5).unwrap(), loss, half_life);
    ServingVersion::new((name(model), model_id(model)), VersionId(id), theta, learning).unwrap()
}

struct Open {
    storage: Storage,
    predictor: Predictor,
}

impl Open {
    fn at(dir: &Path, models: &[&str], id: u64) -> Self {
        let storage = Storage::open(dir, &StorageOptions::default()).unwrap();
        let (predictor, _losses) = Predictor::new(storage.clone(), &PredictorOptions::default());
        let open = Self { storage, predictor };
        models.iter().for_each(|model| open.activate(model, id));
        open
    }

    fn activate(&self, model: &str, id: u64) {
        self.predictor.activation().activate(&stream(), ServingSettings::default(), version(model, id)).unwrap();
    }

    fn again(self, dir: &Path, models: &[&str], id: u64) -> Self {
        self.storage.close().unwrap();
        drop(self);
        Self::at(dir, models, id)
    }

    /// Number of observations covered by the snapshot, or 0 without one.
    fn summed(&self, model: &str) -> u64 {
        let found = self.storage.histories().snapshot(&stream(), model_id(model), &user()).unwrap();
        found.map_or(0, |snapshot| snapshot.sums.observations())
    }
}

/// An observation that was not retracted.
#[derive(Clone)]
struct Observed {
    id: usize,
    item: usize,
    label: f32,
    weight: f32,
    timestamp: Timestamp,
}

struct Scene {
    observed: Vec<Observed>,
    count: usize,
    rng: ChaCha8Rng,
}

impl Scene {
    fn id(index: usize) -> ObservationId {
        ObservationId::new(format!("o{index}")).unwrap()
    }

    async fn observe(&mut self, open: &Open, count: usize) {
        let mut pending = Vec::with_capacity(count);
        for _ in 0..count {
            let observed = Observed {
                id: self.count,
                item: self.rng.random_range(0..ITEMS),
                label: f32::from(u8::from(self.rng.random_bool(0.4))),
                weight: self.rng.random_range(0.5..1.5),
                // Mostly in order.
                timestamp: Timestamp(self.count as i64 * 1_000 - self.rng.random_range(0..5_000)),
            };
            let observation = Observation {
                user: user(),
                item: item(observed.item),
                label: observed.label,
                weight: observed.weight,
                timestamp: Some(observed.timestamp),
                observation_id: Some(Self::id(observed.id)),
                feedback: None,
                decision: None,
                context: None,
            };
            pending.push(
                open.predictor.ingest().begin_observe(&name(NAMES[0]), None, &observation, AckMode::Gather).unwrap(),
            );
            self.count += 1;
            self.observed.push(observed);
        }
        for pending in pending {
            open.predictor.ingest().finish_observe(pending).await.unwrap();
        }
    }

    async fn check(&self, open: &Open, model: &str, id: u64, moment: &str) {
        let version = version(model, id);
        let mut takings = Takings::default();
        let example = |observed: &Observed| {
            let row = version.theta.row(observed.item);
            let Observed { label, weight, timestamp, .. } = *observed;
            let taken_before = takings.next(observed.item, label, timestamp);
            Example { features: row.features, offset: row.offset, label, weight, timestamp, taken_before, choice: &[] }
        };
        // `observed` outlives the examples, whose features are the table's.
        let examples: Vec<Example> = self.observed.iter().map(example).collect();
        let replayed = UserModel::rebuild(&version.learning, examples.as_slice(), examples.len() as u64).unwrap();
        let view = open.predictor.explainer().user(&name(model), &user(), 0).await.unwrap();
        assert_eq!(view.observations, self.observed.len() as u64, "{model} {moment}");
        assert_eq!(view.state_hash, replayed.hash(), "{model} {moment}");
    }

    async fn check_all(&self, open: &Open, id: u64, moment: &str) {
        for model in NAMES {
            self.check(open, model, id, moment).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_states_equal_a_replay_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    let mut scene = Scene { observed: Vec::new(), count: 0, rng: ChaCha8Rng::seed_from_u64(3) };
    let open = Open::at(dir.path(), &NAMES, 1);
    scene.observe(&open, 8_500).await;
    scene.check_all(&open, 1, "while warm").await;
    assert_eq!(NAMES.map(|model| open.summed(model)), [8_192; 5]);

    let open = open.again(dir.path(), &NAMES, 1);
    scene.check_all(&open, 1, "after a restart").await;
    scene.observe(&open, 4_000).await;
    scene.check_all(&open, 1, "past the next checkpoint").await;
    assert_eq!(NAMES.map(|model| open.summed(model)), [12_288; 5]);

    // Amend records that the snapshots cover, while most of the history is not in memory.
    let open = open.again(dir.path(), &NAMES, 1);
    open.predictor.ingest().correct(&name("graded"), None, &Scene::id(70), 0.25).await.unwrap();
    scene.observed[70].label = 0.25;
    scene.check_all(&open, 1, "after a correction").await;
    open.predictor.ingest().forget(&name("graded"), None, &Scene::id(4_000)).await.unwrap();
    assert_eq!(NAMES.map(|model| open.summed(model)), [0; 5], "snapshots do not contain retracted observations");
    scene.observed.retain(|observed| observed.id != 4_000);
    let open = open.again(dir.path(), &NAMES, 1);
    scene.check_all(&open, 1, "after a retraction and a restart").await;
    // A rebuilt state leaves a snapshot again, which is written with the log's next write.
    let (started, expected) = (Instant::now(), [12_288, 12_288, 12_499, 12_288, 12_499]);
    while NAMES.map(|model| open.summed(model)) != expected {
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", NAMES.map(|model| open.summed(model)));
        tokio::task::yield_now().await;
    }

    // Another version, and back.
    NAMES.iter().for_each(|model| open.activate(model, 2));
    scene.check_all(&open, 2, "after a switch").await;
    let open = open.again(dir.path(), &NAMES, 1);
    scene.check_all(&open, 1, "after going back").await;

    // A model added later has no snapshot, and the history in memory does not start at the
    // beginning.
    let open = open.again(dir.path(), &NAMES[..1], 1);
    scene.check(&open, NAMES[0], 1, "alone").await;
    open.activate("late", 1);
    scene.check(&open, "late", 1, "with another model").await;

    open.predictor.erase(&name("graded"), &user()).await.unwrap();
    assert_eq!(NAMES.map(|model| open.summed(model)), [0; 5]);
    scene.observed.clear();
    scene.check(&open, NAMES[0], 1, "after the erasure").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_state_uses_only_the_snapshot_of_its_version_and_rule() {
    let dir = tempfile::tempdir().unwrap();
    let models = &NAMES[..1];
    let mut scene = Scene { observed: Vec::new(), count: 0, rng: ChaCha8Rng::seed_from_u64(4) };
    let open = Open::at(dir.path(), models, 1);
    scene.observe(&open, 4_500).await;
    let kept = open.storage.histories().snapshot(&stream(), model_id("graded"), &user()).unwrap().unwrap();
    assert_eq!((kept.version, kept.epoch, kept.sums.observations()), (VersionId(1), UserEpoch(4_096), 4_096));

    // Sums that no replay produces, so that their use is visible.
    let mut bytes = kept.sums.to_bytes();
    let last = bytes.len() - 8;
    bytes[last..].copy_from_slice(&1e6_f64.to_le_bytes());
    let sums = celeris_model::GramSums::from_bytes(&bytes).unwrap();
    let replayed = open.predictor.explainer().user(&name("graded"), &user(), 0).await.unwrap().state_hash;
    let mut open = open;
    for (version, rule, used) in
        [(kept.version, kept.rule, true), (VersionId(2), kept.rule, false), (kept.version, !kept.rule, false)]
    {
        let other = Snapshot { version, rule, epoch: kept.epoch, amended: kept.amended, sums: sums.clone() };
        open.storage.histories().keep_snapshot(&stream(), model_id("graded"), &user(), &other).unwrap();
        open = open.again(dir.path(), models, 1);
        let resumed = open.predictor.explainer().user(&name("graded"), &user(), 0).await.unwrap().state_hash;
        assert_eq!(resumed != replayed, used, "a snapshot of version {version} and rule {rule}");
    }
}
