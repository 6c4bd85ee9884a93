//! Properties of versions trained on clicks and on implicit feedback.

use std::num::NonZeroUsize;

use celeris_model::preference::Takings;
use celeris_model::{Example, HalfLife, Learning, Loss, Timestamp, UserModel};
use celeris_retrain::prior_fit::CONDITION_MAX;
use celeris_retrain::{Pinned, Rating, Ratings, RetrainError, Silent, TrainSettings, Trained, train};
use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

const USERS: usize = 300;
const ITEMS: usize = 80;

fn trained(ratings: &Ratings, settings: &TrainSettings) -> Trained {
    train(ratings, settings, &Pinned::default(), &Silent).unwrap()
}

fn normal(random: &mut ChaCha8Rng, deviation: f64) -> f64 {
    let z: f64 = StandardNormal.sample(random);
    deviation * z
}

fn sigmoid(score: f64) -> f64 {
    1.0 / (1.0 + (-score).exp())
}

/// Every user is shown twice `shown` random items, and the second half is held out. The log-odds of
/// a click are `-2 + b_i + c_u + w_u·x_i`, so about one in five shown items is clicked.
fn clicks(shown: usize) -> (Ratings, Vec<Rating>) {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let items: Vec<[f64; 3]> =
        (0..ITEMS).map(|_| [normal(&mut random, 1.0), normal(&mut random, 1.0), normal(&mut random, 0.7)]).collect();
    let (mut observed, mut kept) = (Vec::new(), Vec::new());
    for user in 0..USERS {
        let weights = [normal(&mut random, 0.7), normal(&mut random, 0.7), normal(&mut random, 0.5)];
        for k in 0..2 * shown {
            let item = random.random_range(0..ITEMS);
            let [x1, x2, bias] = items[item];
            let log_odds = -2.0 + bias + weights[0] * x1 + weights[1] * x2 + weights[2];
            let label = f32::from(random.random::<f64>() < sigmoid(log_odds));
            let rating = Rating { user: user as u32, item: item as u32, label, weight: 1.0 };
            if k < shown { observed.push(rating) } else { kept.push(rating) }
        }
    }
    (Ratings::new(USERS, ITEMS, observed).unwrap(), kept)
}

/// Users take items from one of four shelves, and occasionally from any shelf.
fn purchases() -> Ratings {
    let mut random = ChaCha8Rng::seed_from_u64(12);
    let mut list = Vec::new();
    for user in 0..USERS {
        for _ in 0..12 {
            let any = random.random_range(0..ITEMS);
            let item = if random.random::<f64>() < 0.85 { any / 4 * 4 + user % 4 } else { any };
            let label = f32::from(random.random_range(1_u8..4));
            list.push(Rating { user: user as u32, item: item as u32, label, weight: 1.0 });
        }
    }
    Ratings::new(USERS, ITEMS, list).unwrap()
}

fn features(version: &Trained, item: u32) -> DVector<f64> {
    let row = &version.item_features[item as usize * version.dim..][..version.dim];
    DVector::from_iterator(version.dim, row.iter().map(|x| f64::from(*x)))
}

fn precision(version: &Trained) -> DMatrix<f64> {
    DMatrix::from_row_slice(version.dim, version.dim, version.prior.precision())
}

#[test]
fn an_implicit_posterior_is_the_users_row_of_the_factorisation() {
    let ratings = purchases();
    let settings = TrainSettings { loss: Loss::Implicit, ..TrainSettings::new(6, 2) };
    let version = trained(&ratings, &settings);
    assert!(version.item_offsets.iter().all(|offset| *offset == 0.0));
    assert!(version.prior.mean().iter().all(|mean| *mean == 0.0));

    // The prior is the posterior of taking nothing in the whole catalog: Y^T Y plus a constant on
    // the diagonal.
    let mut rest = precision(&version);
    for item in 0..ITEMS as u32 {
        let y = features(&version, item);
        rest -= &y * y.transpose();
    }
    let lambda = rest.trace() / 6.0;
    assert!(lambda > 0.0);
    let off = (rest - DMatrix::identity(6, 6) * lambda).abs().max();
    // Sums of 80 products of numbers near 1 in f64.
    assert!(off < 1e-9, "{off}");

    for user in [0_u32, 7, 299] {
        let mut confidence = vec![0.0; ITEMS];
        for rating in ratings.list().iter().filter(|rating| rating.user == user) {
            confidence[rating.item as usize] += f64::from(rating.label * rating.weight);
        }
        let (mut matrix, mut moment) = (precision(&version), DVector::zeros(6));
        for (item, beyond) in confidence.iter().enumerate().filter(|(_, beyond)| **beyond > 0.0) {
            let y = features(&version, item as u32);
            // A served state absorbs label c / (c - 1) with weight c - 1.
            let label = (1.0 + beyond) / beyond;
            matrix += &y * y.transpose() * *beyond;
            moment += &y * (beyond * label);
        }
        let posterior = matrix.cholesky().unwrap().solve(&moment);
        for (own, exact) in version.own_weights(user).iter().zip(&posterior) {
            // The trainer's own weights are rounded to f32.
            assert!((f64::from(*own) - exact).abs() < 1e-6 * exact.abs().max(1.0), "{own} is not {exact}");
        }
    }
}

/// Several observations of a pair have the same effect in a training and in online learning.
#[test]
fn trainer_and_learner_agree_on_repeated_pairs() {
    let mut random = ChaCha8Rng::seed_from_u64(13);
    let list: Vec<Rating> = purchases()
        .list()
        .iter()
        .flat_map(|rating| {
            let times = random.random_range(1..5);
            std::iter::repeat_n(*rating, times).map(|rating| Rating { weight: 0.7, ..rating }).collect::<Vec<_>>()
        })
        .collect();
    let ratings = Ratings::new(USERS, ITEMS, list).unwrap();
    let version = trained(&ratings, &TrainSettings { loss: Loss::Implicit, ..TrainSettings::new(6, 2) });
    // Without passing time there is no decay, for any half-life.
    for half_life in [None, Some(HalfLife::from_seconds(60.0).unwrap())] {
        let learning = Learning::new(version.prior.clone(), Loss::Implicit, half_life);
        for user in [0_u32, 7, 299] {
            let mut takings = Takings::default();
            let examples: Vec<Example> = ratings
                .list()
                .iter()
                .filter(|rating| rating.user == user)
                .map(|rating| {
                    let taken_before = takings.next(rating.item, rating.label, Timestamp::default());
                    Example { taken_before, ..version.example(rating) }
                })
                .collect();
            assert!(examples.iter().any(|example| example.taken_before.is_some()));
            let mut learner = UserModel::from_prior(&learning).unwrap();
            for _ in &examples {
                learner.absorb(&learning, examples.as_slice()).unwrap();
            }
            for (own, learnt) in version.own_weights(user).iter().zip(learner.weights()) {
                // The documented accuracy of states.
                assert!((f64::from(*own) - learnt).abs() < 1e-4 * learnt.abs().max(1.0), "{own} is not {learnt}");
            }
        }
    }
}

#[test]
fn implicit_feedback_ranks_what_users_take_first() {
    let version = trained(&purchases(), &TrainSettings { loss: Loss::Implicit, ..TrainSettings::new(6, 2) });
    let metrics = version.metrics.by_name();
    // Of 80 items, a user's shelf contains 20: a ranking by shelf only puts 85 % of the taken items
    // at an expected 0.125 and the rest at 0.56, which is 0.19.
    let rank = metrics["validation_percentile_rank"];
    assert!((0.1..0.25).contains(&rank), "{rank}");
    assert!(metrics["validation_recall_at_10"] > 0.3, "{metrics:?}");
    assert!(version.prior.condition() <= CONDITION_MAX);
    assert!(version.item_features.chunks_exact(6).all(|row| row[5].to_bits() == 1.0_f32.to_bits()));
    assert_eq!(version.cold_item.features[5].to_bits(), 1.0_f32.to_bits());
}

/// The mode of a user's posterior under the logistic loss, by plain Newton steps in `f64`.
fn served_weights(version: &Trained, observed: &[Rating]) -> DVector<f64> {
    let (precision, mean) = (precision(version), DVector::from_column_slice(version.prior.mean()));
    let mut weights = mean.clone();
    for _ in 0..30 {
        let (mut gradient, mut curvature) = (&precision * (&weights - &mean), precision.clone());
        for rating in observed {
            let x = features(version, rating.item);
            let chance = sigmoid(f64::from(version.item_offsets[rating.item as usize]) + weights.dot(&x));
            gradient += &x * (chance - f64::from(rating.label));
            curvature += &x * x.transpose() * (chance * (1.0 - chance));
        }
        weights -= curvature.cholesky().unwrap().solve(&gradient);
    }
    weights
}

#[test]
fn clicks_are_predicted_better_than_by_the_base_rate_or_items_only() {
    let (ratings, kept) = clicks(30);
    let version = trained(&ratings, &TrainSettings { loss: Loss::Logistic, ..TrainSettings::new(6, 2) });
    assert!((version.prior.noise_variance() - 1.0).abs() < 1e-12, "the precision is absolute");
    assert!(version.prior.condition() <= CONDITION_MAX);

    let rate = ratings.list().iter().map(|r| f64::from(r.label)).sum::<f64>() / ratings.list().len() as f64;
    let nobody = DVector::from_column_slice(version.prior.mean());
    let (mut served, mut prior, mut base, mut mean) = (0.0, 0.0, 0.0, 0.0);
    for user in 0..USERS as u32 {
        let of_user = |list: &[Rating]| -> Vec<Rating> { list.iter().filter(|r| r.user == user).copied().collect() };
        let weights = served_weights(&version, &of_user(ratings.list()));
        for rating in of_user(&kept) {
            let x = features(&version, rating.item);
            let offset = f64::from(version.item_offsets[rating.item as usize]);
            let loss = |chance: f64| if rating.label > 0.5 { -chance.ln() } else { -(1.0 - chance).ln() };
            served += loss(sigmoid(offset + weights.dot(&x)));
            prior += loss(sigmoid(offset + nobody.dot(&x)));
            base += loss(rate);
            mean += sigmoid(offset + weights.dot(&x));
        }
    }
    let count = kept.len() as f64;
    // 9000 held-out clicks determine a mean loss to about 0.005; the differences are several times
    // that.
    assert!(prior / count < base / count - 0.015, "items: {} against {}", prior / count, base / count);
    assert!(served / count < prior / count - 0.015, "users: {} against {}", served / count, prior / count);
    assert!((mean / count - rate).abs() < 0.03, "probabilities are calibrated on average: {} of {rate}", mean / count);
    let metrics = version.metrics.by_name();
    assert!(metrics["validation_log_loss"] < metrics["base_rate_log_loss"] - 0.03, "{metrics:?}");
    assert!((metrics["validation_log_loss"] - served / count).abs() < 0.03, "{metrics:?}");
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    let (clicked, _) = clicks(10);
    for (loss, ratings) in [(Loss::Logistic, clicked), (Loss::Implicit, purchases())] {
        let on = |threads: usize, seed: u64| {
            let threads = NonZeroUsize::new(threads).unwrap();
            trained(&ratings, &TrainSettings { threads, loss, ..TrainSettings::new(5, seed) })
        };
        let one = on(1, 5);
        assert_eq!(one, on(3, 5), "{loss:?}");
        assert_ne!(one.item_features, on(1, 6).item_features, "{loss:?}: the seed is used");
    }
}

#[test]
fn small_and_degenerate_feedback_trains() {
    let rating = |user, item, label| Rating { user, item, label, weight: 1.0 };
    let all_clicked: Vec<Rating> = (0..200).map(|k| rating(k % 7, k % 11, 1.0)).collect();
    let nothing_taken: Vec<Rating> = (0..200).map(|k| rating(k % 7, k % 11, 0.0)).collect();
    let one = vec![rating(0, 0, 1.0)];
    for loss in [Loss::Logistic, Loss::Implicit] {
        for list in [&all_clicked, &nothing_taken, &one] {
            for dim in [1, 2, 6] {
                let ratings = Ratings::new(7, 12, list.clone()).unwrap();
                let version = trained(&ratings, &TrainSettings { loss, ..TrainSettings::new(dim, 1) });
                let numbers = version.item_features.iter().chain(&version.item_offsets).chain(&version.user_weights);
                assert!(numbers.into_iter().all(|value| value.is_finite()), "{loss:?}, dim {dim}");
                assert!(version.prior.condition() <= CONDITION_MAX, "{loss:?}, dim {dim}");
            }
        }
    }
    let ratings = Ratings::new(7, 12, all_clicked).unwrap();
    let settings = TrainSettings { loss: Loss::Implicit, regularization: Some(0.0), ..TrainSettings::new(3, 1) };
    let refused = train(&ratings, &settings, &Pinned::default(), &Silent).unwrap_err();
    assert!(matches!(refused, RetrainError::Setting { what: "regularization", .. }), "{refused}");
}
