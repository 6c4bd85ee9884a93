//! Maps on synthetic items whose features depend on their attributes.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use celeris_features::ColdItem;
use celeris_model::Prior;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde_json::json;

use super::*;
use crate::trained::Metrics;

const DIM: usize = 4;
const ITEMS: usize = 600;
const GENRES: usize = 8;

/// Standard deviation of the part of each target that is independent of the attributes.
const RESIDUALS: [f64; DIM] = [0.5, 0.2, 0.8, 0.3];

struct World {
    trained: Trained,
    observed: Vec<u32>,
    attributes: Vec<Option<Map<String, Value>>>,
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}

/// Targets are a sum over an item's genres, plus a residual.
fn world() -> World {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let effects: Vec<[f64; DIM]> = (0..GENRES).map(|_| std::array::from_fn(|_| normal(&mut rng))).collect();
    let (mut item_features, mut item_offsets, mut attributes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ITEMS {
        let genres: Vec<usize> = (0..GENRES).filter(|_| rng.random_bool(0.3)).collect();
        let target = |at: usize, rng: &mut ChaCha8Rng| {
            let known: f64 = genres.iter().map(|genre| effects[*genre][at]).sum();
            (known + RESIDUALS[at] * normal(rng)) as f32
        };
        for at in 0..DIM - 1 {
            item_features.push(target(at, &mut rng));
        }
        item_features.push(1.0);
        item_offsets.push(3.0 + target(DIM - 1, &mut rng));
        let names: Vec<String> = genres.iter().map(|genre| format!("genre {genre}")).collect();
        attributes.push(json!({ "genres": names }).as_object().cloned());
    }
    let user_weights = (0..200 * DIM).map(|_| normal(&mut rng) as f32).collect();
    let trained = Trained {
        dim: DIM,
        item_offsets,
        item_features,
        user_weights,
        choices: Vec::new(),
        variances: Vec::new(),
        cold_variance: 0.0,
        pulls: Vec::new(),
        prior: Prior::isotropic(DIM, 1.0, 1.0).unwrap(),
        cold_item: ColdItem::blank(DIM),
        label_range: (0.0, 5.0),
        metrics: Metrics {
            ratings: 0,
            users: 0,
            items: ITEMS,
            regularization: 0.0,
            iterations: 0,
            prior_scale: 1.0,
            validation_rmse: None,
            validation_percentile_rank: None,
            validation_recall_at_10: None,
            validation_log_loss: None,
            base_rate_log_loss: None,
            train_rmse: 0.0,
            noise_variance: 1.0,
            prior_condition: 1.0,
        },
        state: None,
    };
    World { trained, observed: vec![50; ITEMS], attributes }
}

impl World {
    fn input(&self) -> ColdMapInput<'_> {
        ColdMapInput { trained: &self.trained, observed: &self.observed, attributes: &self.attributes, ridge: None }
    }
}

#[test]
fn the_map_finds_the_effects_of_attributes_and_the_residual_covariance() {
    let world = world();
    let fitted = fit_cold_map(&world.input()).unwrap();
    // With 600 items for some dozen columns, the error of a variance estimate is some 6 %, and that
    // of the fit 4 % more.
    let text: Value = serde_json::from_slice(&fitted.map.files().0).unwrap();
    assert!(text["ridge"].as_f64().unwrap() < 100.0, "{text}");
    let expected: f64 = RESIDUALS.iter().map(|deviation| deviation * deviation).sum();
    let found = fitted.score_variance;
    assert!((0.85..1.2).contains(&(found / expected)), "users' weights have unit variance: {found} of {expected}");
    assert!(fitted.score_variance_of_average > 2.0 * found, "{}", fitted.score_variance_of_average);
    assert_eq!(fitted.items, ITEMS);
}

#[test]
fn a_new_item_gets_features_close_to_those_of_similar_items() {
    let world = world();
    let fitted = fit_cold_map(&world.input()).unwrap();
    let mut squares = [0.0; DIM];
    for (item, attributes) in world.attributes.iter().enumerate() {
        let ColdItem { offset, features } = fitted.map.map(attributes.as_ref().unwrap());
        assert!((features[DIM - 1] - 1.0).abs() < f32::EPSILON, "the constant");
        let row = &world.trained.item_features[item * DIM..][..DIM];
        for at in 0..DIM - 1 {
            squares[at] += f64::from(row[at] - features[at]).powi(2);
        }
        squares[DIM - 1] += f64::from(world.trained.item_offsets[item] - offset).powi(2);
    }
    for (at, square) in squares.iter().enumerate() {
        let deviation = (square / ITEMS as f64).sqrt();
        assert!((deviation / RESIDUALS[at] - 1.0).abs() < 0.1, "target {at}: {deviation}, not {}", RESIDUALS[at]);
    }
}

#[test]
fn uninformative_attributes_give_the_average_and_a_large_ridge() {
    let mut world = world();
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    for attributes in &mut world.attributes {
        *attributes = json!({"shelf": rng.random_range(0..40).to_string()}).as_object().cloned();
    }
    let fitted = fit_cold_map(&world.input()).unwrap();
    assert!(fitted.map.ridge() > 100.0, "{}", fitted.map.ridge());
    assert!((fitted.score_variance / fitted.score_variance_of_average - 1.0).abs() < 0.02);
}

#[test]
fn the_map_does_not_depend_on_the_number_of_threads() {
    let world = world();
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| fit_cold_map(&world.input())).unwrap()
    };
    assert_eq!(with(1), with(4));
}

#[test]
fn too_few_items_with_attributes_give_no_map() {
    let mut world = world();
    for attributes in world.attributes.iter_mut().skip(ITEMS_MIN - 1) {
        *attributes = None;
    }
    assert_eq!(fit_cold_map(&world.input()), None);
}

#[test]
fn an_item_with_few_observations_has_little_weight() {
    let mut world = world();
    // Every second item has features far away, as an item with few observations may have.
    for item in (0..ITEMS).step_by(2) {
        world.observed[item] = 1;
        world.trained.item_offsets[item] += 10.0;
    }
    for count in world.observed.iter_mut().skip(1).step_by(2) {
        *count = 1000;
    }
    let fitted = fit_cold_map(&world.input()).unwrap();
    let offsets = |items: &mut dyn Iterator<Item = usize>| {
        let error = |item: usize| {
            let mapped = fitted.map.map(world.attributes[item].as_ref().unwrap());
            f64::from(world.trained.item_offsets[item] - mapped.offset)
        };
        let errors: Vec<f64> = items.map(error).collect();
        errors.iter().sum::<f64>() / errors.len() as f64
    };
    let known = offsets(&mut (1..ITEMS).step_by(2));
    assert!(known.abs() < 0.3, "1 % of the weight pulls by 10 upwards: {known}");
}
