//! Under implicit loss each user-item pair is one preference, in whatever way its observations are
//! added, corrected, retracted, evicted or read again. Compared with a dense solve over all pairs,
//! and bit for bit with a replay.

use std::path::Path;

use celeris_features::{ColdItem, Theta};
use celeris_model::preference::Takings;
use celeris_model::{
    Example, HalfLife, ItemId, Learning, Loss, ModelId, ModelName, Observation, ObservationId, Prior, StreamName,
    Timestamp, UserId, UserModel, VersionId,
};
use celeris_predictor::{Predictor, PredictorOptions, ServingSettings, ServingVersion, WhyRequest};
use celeris_storage::{Storage, StorageOptions};
use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DIM: usize = 5;
const ITEMS: usize = 8;
const USERS: usize = 3;
const REGULARIZATION: f64 = 0.8;
const HOUR_MS: i64 = 3_600_000;
const HALF_LIFE_HOURS: f64 = 20.0;
const NAMES: [&str; 2] = ["plays", "fading"];

fn name(model: &str) -> ModelName {
    ModelName::new(model).unwrap()
}

fn stream() -> StreamName {
    StreamName::new("listening").unwrap()
}

fn user(index: usize) -> UserId {
    UserId::new(format!("user {index}")).unwrap()
}

fn item(index: usize) -> ItemId {
    // Longer than an inline id, so that ids are shared and counted.
    ItemId::new(format!("a song of a long name {index}")).unwrap()
}

fn rows() -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(21);
    (0..ITEMS * DIM).map(|at| if at % DIM == DIM - 1 { 1.0 } else { rng.random_range(-1.5..1.5) }).collect()
}

fn items() -> DMatrix<f64> {
    let rows = rows();
    DMatrix::from_fn(ITEMS, DIM, |item, j| f64::from(rows[item * DIM + j]))
}

fn half_life(model: &str) -> Option<f64> {
    (model == "fading").then_some(HALF_LIFE_HOURS)
}

fn version(model: &str) -> ServingVersion {
    let precision = items().transpose() * items() + DMatrix::identity(DIM, DIM) * REGULARIZATION;
    let prior = Prior::new(vec![0.0; DIM], precision.as_slice().to_vec(), 1.0).unwrap();
    let half_life = half_life(model).map(|hours| HalfLife::from_seconds(hours * 3600.0).unwrap());
    let theta = Theta::new((0..ITEMS).map(item).collect(), vec![0.0; ITEMS], rows(), ColdItem::blank(DIM)).unwrap();
    let id = if model == NAMES[0] { ModelId(1) } else { ModelId(2) };
    let learning = Learning::new(prior, Loss::Implicit, half_life);
    ServingVersion::new((name(model), id), VersionId(1), theta, learning).unwrap()
}

/// An observation that was not retracted, in the order of the log.
#[derive(Debug, Clone)]
struct Observed {
    id: ObservationId,
    item: usize,
    label: f32,
    weight: f32,
    hour: i64,
}

/// The weights `(Y^T C Y + lambda I)^-1 Y^T C p`; for a faded pair, the remainder of its preference
/// of 1 is added to the preference of 0 that it started with.
fn batch(observed: &[Observed], half_life_hours: Option<f64>) -> DVector<f64> {
    let latest = observed.iter().map(|observed| observed.hour).max().unwrap_or(0);
    let left = |hour: i64| half_life_hours.map_or(1.0, |life| 0.5_f64.powf((latest - hour) as f64 / life));
    let (mut confidence, mut zero) = (DVector::zeros(ITEMS), DVector::from_element(ITEMS, 1.0));
    for item in 0..ITEMS {
        let taken = observed.iter().filter(|observed| observed.item == item && observed.label > 0.0);
        let preferred = taken.clone().map(|observed| left(observed.hour)).fold(0.0, f64::max);
        let excess: f64 =
            taken.map(|observed| left(observed.hour) * f64::from(observed.weight) * f64::from(observed.label)).sum();
        confidence[item] = preferred + excess;
        zero[item] = 1.0 - preferred;
    }
    let all = DMatrix::from_diagonal(&(&confidence + zero));
    let a = items().transpose() * all * items() + DMatrix::identity(DIM, DIM) * REGULARIZATION;
    a.lu().solve(&(items().transpose() * confidence)).unwrap()
}

fn replayed(model: &str, observed: &[Observed]) -> u64 {
    let version = version(model);
    let mut takings = Takings::default();
    let example = |observed: &Observed| {
        let row = version.theta.row(observed.item);
        let timestamp = Timestamp(observed.hour * HOUR_MS);
        let taken_before = takings.next(observed.item, observed.label, timestamp);
        let Observed { label, weight, .. } = *observed;
        Example { features: row.features, offset: row.offset, label, weight, timestamp, taken_before, choice: &[] }
    };
    let examples: Vec<Example> = observed.iter().map(example).collect();
    UserModel::rebuild(&version.learning, examples.as_slice(), examples.len() as u64).unwrap().hash()
}

struct Open {
    storage: Storage,
    predictor: Predictor,
}

impl Open {
    /// A node whose user cache holds hardly any user, or all of them.
    fn at(dir: &Path, user_bytes_max: usize) -> Self {
        let storage = Storage::open(dir, &StorageOptions::default()).unwrap();
        let options = PredictorOptions { user_bytes_max, ..PredictorOptions::default() };
        let (predictor, _losses) = Predictor::new(storage.clone(), &options);
        for model in NAMES {
            predictor.activation().activate(&stream(), ServingSettings::default(), version(model)).unwrap();
        }
        Self { storage, predictor }
    }

    async fn observe(&self, who: usize, observed: &Observed) {
        let observation = Observation {
            user: user(who),
            item: item(observed.item),
            label: observed.label,
            weight: observed.weight,
            timestamp: Some(Timestamp(observed.hour * HOUR_MS)),
            observation_id: Some(observed.id.clone()),
            feedback: None,
            decision: None,
            context: None,
        };
        self.predictor.ingest().observe(&name(NAMES[0]), observation).await.unwrap();
    }

    async fn check(&self, who: usize, observed: &[Observed], moment: &str) {
        for model in NAMES {
            let view = self.predictor.explainer().user(&name(model), &user(who), 0).await.unwrap();
            assert_eq!(view.observations, observed.len() as u64, "{model} {moment}");
            assert_eq!(view.state_hash, replayed(model, observed), "{model} {moment}");
            let (weights, exact) = (DVector::from_vec(view.weights), batch(observed, half_life(model)));
            // The guaranteed accuracy of states: 1e-4 of the weights.
            let error = (&weights - &exact).norm() / exact.norm().max(1e-3);
            assert!(error <= 1e-4, "{model} {moment}: {error:e} of {observed:?}");
            let request = WhyRequest {
                model: name(model),
                user: user(who),
                item: item(0),
                limit: 1000,
                min_epoch: None,
                context: None,
            };
            let why = self.predictor.explainer().why(&request).await.unwrap();
            let sum = why.prior + why.others + why.because.iter().map(|because| because.contribution).sum::<f64>();
            assert!((sum - f64::from(why.estimate.score)).abs() <= 1e-4, "{model} {moment}: {sum} of {why:?}");
        }
    }
}

fn label(rng: &mut ChaCha8Rng) -> f32 {
    [0.0, 1.0, 1.0, rng.random_range(0.1..4.0)][rng.random_range(0..4)]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pair_is_one_preference_through_amendments_evictions_and_restarts() {
    for seed in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut open = Open::at(dir.path(), usize::MAX);
        let mut observed: Vec<Vec<Observed>> = vec![Vec::new(); USERS];
        for step in 0..160 {
            let who = rng.random_range(0..USERS);
            let moment = format!("seed {seed} step {step}");
            match rng.random_range(0..20) {
                0 => {
                    open.storage.close().unwrap();
                    drop(open);
                    open = Open::at(dir.path(), if rng.random_bool(0.5) { 1 } else { usize::MAX });
                }
                1..4 if !observed[who].is_empty() => {
                    let place = rng.random_range(0..observed[who].len());
                    let label = label(&mut rng);
                    let of_user = &mut observed[who][place];
                    open.predictor.ingest().correct(&name(NAMES[0]), None, &of_user.id, label).await.unwrap();
                    of_user.label = label;
                }
                4..6 if !observed[who].is_empty() => {
                    // Often the first of its pair.
                    let place = if rng.random_bool(0.5) { 0 } else { rng.random_range(0..observed[who].len()) };
                    let retracted = observed[who].remove(place);
                    open.predictor.ingest().forget(&name(NAMES[0]), None, &retracted.id).await.unwrap();
                }
                _ => {
                    let next = Observed {
                        id: ObservationId::new(format!("o{seed}-{step}")).unwrap(),
                        item: rng.random_range(0..ITEMS),
                        label: label(&mut rng),
                        weight: rng.random_range(0.2..2.0),
                        hour: step + rng.random_range(-12..12),
                    };
                    open.observe(who, &next).await;
                    observed[who].push(next);
                }
            }
            if step % 4 == 0 {
                open.check(who, &observed[who], &moment).await;
            }
        }
        for (who, observed) in observed.iter().enumerate() {
            open.check(who, observed, "at the end").await;
        }
        open.storage.close().unwrap();
    }
}

/// The first play carries the preference: when it is retracted, the second one does.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_first_play_is_retracted_the_next_one_is_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path(), usize::MAX);
    let play = |id: usize, item, label| Observed {
        id: ObservationId::new(format!("o{id}")).unwrap(),
        item,
        label,
        weight: 1.0,
        hour: id as i64,
    };
    let mut observed = vec![play(0, 1, 1.0), play(1, 1, 2.0), play(2, 3, 1.0), play(3, 1, 0.5)];
    for observed in &observed {
        open.observe(0, observed).await;
    }
    open.check(0, &observed, "after four").await;
    open.predictor.ingest().forget(&name("plays"), None, &observed[0].id).await.unwrap();
    observed.remove(0);
    open.check(0, &observed, "without the first").await;
    // Corrected to 0, it is no longer a play.
    open.predictor.ingest().correct(&name("plays"), None, &observed[0].id, 0.0).await.unwrap();
    observed[0].label = 0.0;
    open.check(0, &observed, "with an empty second").await;
    open.predictor.ingest().correct(&name("plays"), None, &observed[0].id, 3.0).await.unwrap();
    observed[0].label = 3.0;
    open.check(0, &observed, "with a full second").await;
}
