//! Maps on synthetic users whose weights depend on their attributes.

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
const USERS: usize = 400;
const ITEMS: usize = 60;
const KINDS: usize = 5;

/// Standard deviations of the part of the weights that attributes explain, and of the other.
const EXPLAINED: f64 = 0.7;
const OTHER: f64 = 0.4;
const NOISE: f64 = 0.5;

/// The mean of all users.
const MEAN: [f64; DIM] = [0.3, -0.2, 0.1, 0.2];

struct World {
    trained: Trained,
    ratings: Ratings,
    attributes: Vec<Option<Map<String, Value>>>,
    /// `q` of each kind of user.
    shifts: Vec<[f64; DIM]>,
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}

fn trained(rng: &mut ChaCha8Rng) -> Trained {
    let feature = |at: usize, rng: &mut ChaCha8Rng| if at % DIM == DIM - 1 { 1.0 } else { normal(rng) as f32 };
    // That of the deviations, in units of the noise.
    let precision = (NOISE / OTHER).powi(2);
    let mut lambda = vec![0.0; DIM * DIM];
    (0..DIM).for_each(|i| lambda[i * DIM + i] = precision);
    Trained {
        dim: DIM,
        item_offsets: (0..ITEMS).map(|_| 3.0 + 0.3 * normal(rng) as f32).collect(),
        item_features: (0..ITEMS * DIM).map(|at| feature(at, rng)).collect(),
        user_weights: Vec::new(),
        choices: Vec::new(),
        variances: Vec::new(),
        cold_variance: 0.0,
        pulls: Vec::new(),
        prior: Prior::new(MEAN.to_vec(), lambda, NOISE * NOISE).unwrap(),
        cold_item: ColdItem::blank(DIM),
        label_range: (-20.0, 20.0),
        metrics: Metrics {
            ratings: 0,
            users: USERS,
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
            noise_variance: NOISE * NOISE,
            prior_condition: 1.0,
        },
        state: None,
    }
}

/// Users with `count` ratings each, whose weights have a part that is that of their kind.
fn world(seed: u64, count: usize) -> World {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let trained = trained(&mut rng);
    let mut shifts: Vec<[f64; DIM]> =
        (0..KINDS).map(|_| std::array::from_fn(|_| EXPLAINED * normal(&mut rng))).collect();
    // The mean of all users is that of the prior.
    for at in 0..DIM {
        let mean = shifts.iter().map(|shift| shift[at]).sum::<f64>() / KINDS as f64;
        shifts.iter_mut().for_each(|shift| shift[at] -= mean);
    }
    let (mut list, mut attributes) = (Vec::new(), Vec::new());
    for user in 0..USERS {
        let kind = user % KINDS;
        let weights: Vec<f64> = (0..DIM).map(|at| MEAN[at] + shifts[kind][at] + OTHER * normal(&mut rng)).collect();
        for _ in 0..count {
            let item = rng.random_range(0..ITEMS);
            let features = &trained.item_features[item * DIM..][..DIM];
            let score: f64 = weights.iter().zip(features).map(|(w, x)| w * f64::from(*x)).sum();
            let label = f64::from(trained.item_offsets[item]) + score + NOISE * normal(&mut rng);
            list.push(Rating { user: user as u32, item: item as u32, label: label as f32, weight: 1.0 });
        }
        attributes
            .push(json!({ "kind": format!("kind {kind}"), "secret": format!("only of {user}") }).as_object().cloned());
    }
    World { trained, ratings: Ratings::new(USERS, ITEMS, list).unwrap(), attributes, shifts }
}

fn input(world: &World) -> UserMapInput<'_> {
    let World { trained, ratings, attributes, .. } = world;
    UserMapInput { trained, loss: Loss::Squared, ratings, attributes, ridge: None }
}

/// Mean over kinds of the squared distance to the true `q`, as a share of its squared length.
fn unexplained(world: &World, map: &UserMap) -> f64 {
    let (mut distance, mut length) = (0.0, 0.0);
    for (kind, shift) in world.shifts.iter().enumerate() {
        let found = map.shift(json!({ "kind": format!("kind {kind}") }).as_object().unwrap()).unwrap();
        distance += shift.iter().zip(&found).map(|(a, b)| (a - f64::from(*b)).powi(2)).sum::<f64>();
        length += shift.iter().map(|entry| entry * entry).sum::<f64>();
    }
    distance / length
}

#[test]
fn the_map_finds_what_kinds_of_users_have_in_common() {
    for count in [4, 30] {
        let world = world(5, count);
        let fitted = fit_user_map(&input(&world)).unwrap();
        assert_eq!(fitted.users, USERS);
        let [without, with] = fitted.rmse_of_new;
        assert!(with < 0.75 * without, "{count} ratings a user: {with} with a map, {without} without");
        // 80 users of a kind: 80 deviations and the noise of their labels leave a few percent.
        let rest = unexplained(&world, &fitted.map.unwrap());
        assert!(rest < 0.1, "{count} ratings a user: {rest} of the squared length is wrong");
    }
}

#[test]
fn attributes_without_meaning_make_no_map() {
    let mut world = world(6, 10);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for attributes in &mut world.attributes {
        *attributes = json!({ "kind": rng.random_range(0..KINDS).to_string(), "age": rng.random_range(18..80) })
            .as_object()
            .cloned();
    }
    let fitted = fit_user_map(&input(&world)).unwrap();
    let [without, with] = fitted.rmse_of_new;
    assert!(fitted.map.is_none(), "{with} with a map, {without} without");
}

#[test]
fn a_search_from_an_earlier_ridge_ends_where_the_first_did_and_threads_change_nothing() {
    let world = world(8, 10);
    let first = fit_user_map(&input(&world)).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    assert_eq!(pool.install(|| fit_user_map(&input(&world))), Some(first.clone()));
    for ridge in [first.ridge, 1e-9, 1e9] {
        let found = fit_user_map(&UserMapInput { ridge: Some(ridge), ..input(&world) }).unwrap();
        // Errors of neighbouring ridges may have several minima, which hardly differ.
        let [error, of_first] = [&found, &first].map(|fitted| fitted.rmse_of_new[1]);
        assert!((error - of_first).abs() < 0.01 * of_first, "{error} from {ridge}, {of_first}");
    }
    let again = fit_user_map(&UserMapInput { ridge: Some(first.ridge), ..input(&world) });
    assert_eq!(again, Some(first));
}

#[test]
fn fields_of_single_users_and_too_few_users_are_left_out() {
    let mut world = world(9, 10);
    for user in 0..FIELD_USERS_MIN - 1 {
        world.attributes[user].as_mut().unwrap().insert("allergy".to_owned(), "nuts".into());
    }
    let map = fit_user_map(&input(&world)).unwrap().map.unwrap();
    let (text, _) = map.files();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("\"kind\"") && text.contains("\"secret\""), "{text}");
    assert!(!text.contains("allergy") && !text.contains("only of"), "{text}");
    assert_eq!(map.shift(json!({ "allergy": "nuts" }).as_object().unwrap()), None);
    world.attributes.iter_mut().skip(USERS_MIN - 1).for_each(|attributes| *attributes = None);
    assert_eq!(fit_user_map(&input(&world)), None);
    let world = self::world(9, 10);
    assert_eq!(fit_user_map(&UserMapInput { loss: Loss::Logistic, ..input(&world) }), None);
}
