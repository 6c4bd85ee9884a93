//! States whose prior mean is moved by a profile, compared with states under a prior with that mean.

use std::sync::Arc;

use celeris_model::{Example, GramSums, HalfLife, History, Learning, Loss, Prior, Timestamp, UserModel};
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DIM: usize = 5;

struct Seen {
    features: [f32; DIM],
    label: f32,
    timestamp: i64,
    /// `Lambda y`; empty for an item without a choice vector.
    choice: Vec<f32>,
}

struct SeenItems(Vec<Seen>);

impl History for SeenItems {
    fn example(&self, index: u64) -> Example<'_> {
        let Seen { features, label, timestamp, choice } = &self.0[usize::try_from(index).unwrap()];
        let timestamp = Timestamp(*timestamp);
        Example { features, label: *label, offset: 0.2, weight: 1.0, timestamp, taken_before: None, choice }
    }
}

fn prior(moved: &[f32]) -> Prior {
    let mut precision = DMatrix::from_element(DIM, DIM, 0.5);
    precision.fill_diagonal(4.0);
    let mean = (0..DIM).map(|i| 0.3 - 0.1 * i as f64 + moved.get(i).map_or(0.0, |entry| f64::from(*entry)));
    Prior::new(mean.collect(), precision.as_slice().to_vec(), 0.6).unwrap()
}

fn learning(prior: Prior, half_life: Option<f64>) -> Learning {
    Learning::new(prior, Loss::Squared, half_life.map(|seconds| HalfLife::from_seconds(seconds).unwrap()))
}

fn seen(rng: &mut ChaCha8Rng, count: usize) -> SeenItems {
    let prior = prior(&[]);
    let one = |_| {
        let mut features = [1.0; DIM];
        features[..DIM - 1].fill_with(|| rng.random_range(-1.5..1.5));
        let choice: Vec<f32> = (0..DIM).map(|_| rng.random_range(-1.0..1.0)).collect();
        let choice = if rng.random_bool(0.5) { prior.pulls(&choice) } else { Vec::new() };
        Seen { features, label: rng.random_range(-2.0..2.0), timestamp: rng.random_range(0..90_000), choice }
    };
    SeenItems((0..count).map(one).collect())
}

fn moved(rng: &mut ChaCha8Rng) -> (Vec<f32>, Option<Arc<[f32]>>) {
    let moved: Vec<f32> = (0..DIM).map(|_| rng.random_range(-1.0..1.0)).collect();
    let pull = prior(&[]).pulls(&moved);
    (moved, Some(pull.into()))
}

#[test]
fn a_profile_moves_the_prior_mean() {
    let mut rng = ChaCha8Rng::seed_from_u64(21);
    for half_life in [None, Some(40.0)] {
        for count in [0, 1, 3, 7, 64, 100] {
            let (items, (by, pull)) = (seen(&mut rng, count), moved(&mut rng));
            let (usual, shifted) = (learning(prior(&[]), half_life), learning(prior(&by), half_life));
            let with = UserModel::rebuild(&usual, &items, count as u64).unwrap().with_profile(&usual, pull);
            let expected = UserModel::rebuild(&shifted, &items, count as u64).unwrap();
            for (weight, expected) in with.weights().iter().zip(expected.weights()) {
                // The error of a state in `f32`, as in `ridge_oracle.rs`.
                let close = (weight - expected).abs() <= 1e-5 * (1.0 + expected.abs());
                assert!(close, "half-life {half_life:?}, {count} observations: {weight} is not {expected}");
            }
            assert_eq!(with.gram_inverse(), expected.gram_inverse(), "the covariance stays");
        }
    }
}

#[test]
fn the_time_at_which_a_profile_becomes_known_does_not_change_a_bit() {
    let mut rng = ChaCha8Rng::seed_from_u64(22);
    for half_life in [None, Some(40.0)] {
        let count = if half_life.is_some() { 90 } else { 4_300 };
        let (learning, items, (_, pull)) = (learning(prior(&[]), half_life), seen(&mut rng, count), moved(&mut rng));
        let mut live = UserModel::from_prior(&learning).unwrap().with_profile(&learning, pull.clone());
        let mut stored: Option<Vec<u8>> = None;
        for learnt in 1..=count as u64 {
            live.absorb(&learning, &items).unwrap();
            if learnt.is_multiple_of(30) || learnt > 4_090 && learnt.is_multiple_of(7) {
                let rebuilt = UserModel::rebuild(&learning, &items, learnt).unwrap();
                assert_eq!(live, rebuilt.clone().with_profile(&learning, pull.clone()), "after {learnt}");
                assert_eq!(rebuilt, live.clone().with_profile(&learning, None), "without it, after {learnt}");
                if let Some(bytes) = &stored {
                    let sums = GramSums::from_bytes(bytes).unwrap();
                    let resumed = UserModel::resume(&learning, sums, &items, learnt).unwrap();
                    assert_eq!(live, resumed.with_profile(&learning, pull.clone()), "after {learnt}");
                }
                stored = live.sums().map(GramSums::to_bytes).or(stored);
            }
        }
        assert!(stored.is_some(), "sums are kept");
    }
}

#[test]
fn what_a_profile_adds_is_a_term_of_the_score() {
    let mut rng = ChaCha8Rng::seed_from_u64(23);
    for count in [0, 1, 20, 100] {
        let (learning, items, (_, pull)) = (learning(prior(&[]), None), seen(&mut rng, count), moved(&mut rng));
        let state = UserModel::rebuild(&learning, &items, count as u64).unwrap().with_profile(&learning, pull);
        let features = seen(&mut rng, 1).0.remove(0).features;
        let terms = state.influence(&learning, &items, 0.2, &features).unwrap();
        let of_profile = terms.profile.unwrap();
        let sum = terms.prior + of_profile + terms.contributions.iter().chain(&terms.choices).sum::<f64>();
        let score = f64::from(state.estimate(&learning, 0.2, &features).score);
        // As in `influence.rs`.
        assert!((sum - score).abs() <= 1e-5 * (1.0 + score.abs()), "{count} observations: {sum} is not {score}");
        let without = state.with_profile(&learning, None);
        let change = score - f64::from(without.estimate(&learning, 0.2, &features).score);
        assert!((of_profile - change).abs() <= 1e-5, "{count} observations: {of_profile} is not {change}");
        assert_eq!(without.influence(&learning, &items, 0.2, &features).unwrap().profile, None);
    }
}
