//! Trainings on weights, labels and pinned features anywhere within their bounds produce versions
//! of finite numbers.

use celeris_features::table::FEATURE_ABS_MAX;
use celeris_model::Loss;
use celeris_model::observation::{LABEL_ABS_MAX, WEIGHT_MAX};
use celeris_retrain::prior_fit::CONDITION_MAX;
use celeris_retrain::{Pinned, Rating, Ratings, Silent, TrainSettings, Trained, train};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const USERS: u32 = 12;
const ITEMS: u32 = 15;

/// Distribution of magnitudes in the training data.
#[derive(Debug, Clone, Copy)]
enum Magnitudes {
    Any,
    Largest,
    Smallest,
    /// A few values at the maximum among many values of 1.
    Spikes,
}

const ALL: [Magnitudes; 4] = [Magnitudes::Any, Magnitudes::Largest, Magnitudes::Smallest, Magnitudes::Spikes];

impl Magnitudes {
    fn draw(self, rng: &mut ChaCha8Rng, largest: f32) -> f32 {
        let least = f32::from_bits(1);
        match self {
            Self::Any => 10_f32.powf(rng.random_range(-45.0..largest.log10())).max(least),
            Self::Largest => largest,
            Self::Smallest => least * f32::from(rng.random_range(1_u8..9)),
            Self::Spikes => {
                if rng.random_bool(0.02) {
                    largest
                } else {
                    1.0
                }
            }
        }
    }
}

fn ratings(rng: &mut ChaCha8Rng, (weights, labels): (Magnitudes, Magnitudes), count: usize) -> Ratings {
    let rating = |_| {
        let sign = if rng.random_bool(0.7) { 1.0 } else { -1.0 };
        Rating {
            user: rng.random_range(0..USERS),
            item: rng.random_range(0..ITEMS),
            label: sign * labels.draw(rng, LABEL_ABS_MAX),
            weight: weights.draw(rng, WEIGHT_MAX),
        }
    };
    Ratings::new(USERS as usize, ITEMS as usize, (0..count).map(rating).collect()).unwrap()
}

fn pinned(rng: &mut ChaCha8Rng, magnitudes: Magnitudes, dim: usize) -> Pinned {
    let items: Vec<u32> = (0..ITEMS).filter(|_| rng.random_bool(0.3)).collect();
    let row = |_: &u32| {
        let mut row: Vec<f32> = (1..dim)
            .map(|_| magnitudes.draw(rng, FEATURE_ABS_MAX) * if rng.random_bool(0.5) { 1.0 } else { -1.0 })
            .collect();
        row.push(1.0);
        row
    };
    let features = items.iter().flat_map(row).collect();
    Pinned { items, features }
}

fn check(version: &Trained, what: &str) {
    let numbers = version.item_features.iter().chain(&version.item_offsets).chain(&version.user_weights);
    assert!(numbers.into_iter().all(|value| value.is_finite()), "{what}");
    assert!(version.cold_item.features.iter().all(|value| value.is_finite()), "{what}");
    // Allows for rounding in the prior.
    assert!(version.prior.condition() <= CONDITION_MAX * 1.001, "{what}: {}", version.prior.condition());
    let metrics = version.metrics.by_name();
    assert!(metrics.values().all(|value| value.is_finite()), "{what}: {metrics:?}");
}

#[test]
fn extreme_weights_labels_and_pinned_features_train() {
    for loss in [Loss::Squared, Loss::Logistic, Loss::Implicit] {
        for weights in ALL {
            for labels in ALL {
                for (seed, magnitudes) in (0_u64..).zip(ALL) {
                    let mut rng = ChaCha8Rng::seed_from_u64(seed);
                    let (count, dim) = (rng.random_range(30..260), rng.random_range(2..7));
                    let ratings = ratings(&mut rng, (weights, labels), count);
                    let pinned = pinned(&mut rng, magnitudes, dim);
                    let what = format!("{loss:?}, weights {weights:?}, labels {labels:?}, pinned {magnitudes:?}");
                    let settings = TrainSettings { loss, ..TrainSettings::new(dim, 1) };
                    match train(&ratings, &settings, &pinned, &Silent) {
                        Ok(version) => check(&version, &what),
                        Err(error) => panic!("{what}: {error}"),
                    }
                }
            }
        }
    }
}

/// The product of weight and label is below the smallest float, and the target beyond the largest:
/// the pair still counts as taken.
#[test]
fn a_taken_pair_with_a_tiny_weight_counts_as_taken() {
    let rating = |user, item, label, weight| Rating { user, item, label, weight };
    let list = |label, weight| -> Vec<Rating> {
        (0..150_u32).map(|k| rating(k % 9, (k % 9 / 3) * 4 + k * 7 % 4, label, weight)).collect()
    };
    let settings = TrainSettings { loss: Loss::Implicit, ..TrainSettings::new(4, 1) };
    let trained = |label, weight| {
        let ratings = Ratings::new(9, 12, list(label, weight)).unwrap();
        let version = train(&ratings, &settings, &Pinned::default(), &Silent).unwrap();
        check(&version, &format!("label {label:e} of weight {weight:e}"));
        version
    };
    // The result for a tiny excess whose numbers are all far from the limits of `f32`.
    let expected = trained(1e-7, 1.0);
    for (label, weight) in [(1e-39, 1.0), (1e-20, 1e-20), (f32::from_bits(1), f32::from_bits(1)), (2.9e-39, 0.9)] {
        let version = trained(label, weight);
        for user in 0..9 {
            for (own, expected) in version.own_weights(user).iter().zip(expected.own_weights(user)) {
                assert!((own - expected).abs() <= 1e-3 * expected.abs().max(0.1), "{own} is not {expected}");
            }
        }
    }
}
