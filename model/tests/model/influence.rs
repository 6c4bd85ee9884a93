//! The contribution of each observation to a score, compared with the score itself and with its
//! definition.

use celeris_model::{Example, HalfLife, History, Influence, Learning, Loss, Prior, Timestamp, UserModel};
use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DIM: usize = 6;

/// Terms are computed in `f64` from a state that is rounded to `f32`, with an error of up to 3e-6
/// of the whole (`ridge_oracle.rs`).
const ROUNDING: f64 = 1e-5;

struct TestHistory(Vec<([f32; DIM], f32, i64, [f32; DIM])>);

impl History for TestHistory {
    fn example(&self, index: u64) -> Example<'_> {
        let (features, label, timestamp, choice) = &self.0[usize::try_from(index).unwrap()];
        Example {
            features,
            label: *label,
            offset: 0.3,
            weight: 1.5,
            timestamp: Timestamp(*timestamp),
            taken_before: None,
            choice,
        }
    }
}

fn features(rng: &mut ChaCha8Rng) -> [f32; DIM] {
    let mut row = [1.0; DIM];
    row[..DIM - 1].fill_with(|| rng.random_range(-1.5..1.5));
    row
}

/// Labels that are valid under every loss, at times that are not in order.
fn test_history(rng: &mut ChaCha8Rng, count: usize) -> TestHistory {
    TestHistory(
        (0..count)
            .map(|_| (features(rng), f32::from(rng.random_bool(0.6)), rng.random_range(0..90_000), features(rng)))
            .collect(),
    )
}

fn learning(loss: Loss, half_life: Option<f64>) -> Learning {
    let mut precision = DMatrix::from_element(DIM, DIM, 0.4);
    precision.fill_diagonal(3.0);
    let mean = (0..DIM).map(|i| 0.2 * i as f64 - 0.5).collect();
    let prior = Prior::new(mean, precision.as_slice().to_vec(), 0.7).unwrap();
    Learning::new(prior, loss, half_life.map(|seconds| HalfLife::from_seconds(seconds).unwrap()))
}

fn influence(learning: &Learning, history: &TestHistory, item: &[f32]) -> (UserModel, Influence) {
    let state = UserModel::rebuild(learning, history, history.0.len() as u64).unwrap();
    let influence = state.influence(learning, history, 0.25, item).unwrap();
    (state, influence)
}

#[test]
fn the_terms_sum_to_the_score_under_every_loss_with_and_without_forgetting() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for loss in [Loss::Squared, Loss::Implicit, Loss::Logistic] {
        for half_life in [None, Some(30.0)] {
            // Below, at and beyond checkpoints, and beyond the last one that reads the whole
            // history.
            for count in [0, 1, 2, 3, 64, 100, 900, 5_000] {
                if half_life.is_some() && count > 100 {
                    continue;
                }
                let (learning, history) = (learning(loss, half_life), test_history(&mut rng, count));
                let item = features(&mut rng);
                let (state, influence) = influence(&learning, &history, &item);
                let score = f64::from(state.estimate(&learning, 0.25, &item).score);
                assert_eq!(influence.contributions.len(), count);
                assert_eq!(influence.choices.len(), if loss == Loss::Squared { count } else { 0 });
                let terms = influence.contributions.iter().chain(&influence.choices);
                let sum = influence.prior + terms.sum::<f64>();
                let size = 1.0 + influence.contributions.iter().map(|term| term.abs()).sum::<f64>();
                let case = format!("{loss:?}, half-life {half_life:?}, {count} observations");
                assert!((sum - score).abs() < ROUNDING * size, "{case}: the terms sum to {sum}, the score is {score}");
            }
        }
    }
}

#[test]
fn a_term_is_the_weight_of_the_observation_in_the_posterior() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let (learning, history, item) = (learning(Loss::Squared, None), test_history(&mut rng, 40), features(&mut rng));
    let (_, influence) = influence(&learning, &history, &item);
    let column = |row: &[f32]| DVector::from_iterator(DIM, row.iter().map(|x| f64::from(*x)));
    let mut a = DMatrix::from_row_slice(DIM, DIM, learning.prior().precision());
    for (x, ..) in &history.0 {
        a.ger(1.5, &column(x), &column(x), 1.0);
    }
    let w0 = DVector::from_column_slice(learning.prior().mean());
    let towards = a.try_inverse().unwrap() * column(&item);
    assert!((influence.prior - (0.25 + w0.dot(&column(&item)))).abs() < 1e-12);
    for ((x, label, ..), term) in history.0.iter().zip(&influence.contributions) {
        let difference = f64::from(*label) - f64::from(0.3_f32) - w0.dot(&column(x));
        let expected = towards.dot(&column(x)) * 1.5 * difference;
        assert!((term - expected).abs() < ROUNDING, "{term} instead of {expected}");
    }
}

#[test]
fn another_label_moves_the_score_by_the_change_of_its_own_term() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for half_life in [None, Some(30.0)] {
        let (learning, item) = (learning(Loss::Squared, half_life), features(&mut rng));
        let mut history = test_history(&mut rng, 30);
        let (before, terms) = influence(&learning, &history, &item);
        history.0[7].1 += 2.0;
        let (after, changed) = influence(&learning, &history, &item);
        let score = |state: &UserModel| f64::from(state.estimate(&learning, 0.25, &item).score);
        let moved = changed.contributions[7] - terms.contributions[7];
        assert!((score(&after) - score(&before) - moved).abs() < ROUNDING, "half-life {half_life:?}");
        assert!(moved.abs() > 10.0 * ROUNDING, "the change exceeds rounding: {moved}");
        for (index, (before, after)) in terms.contributions.iter().zip(&changed.contributions).enumerate() {
            assert!(index == 7 || (before - after).abs() < ROUNDING, "the term of {index} is unchanged");
        }
    }
}

#[test]
fn decayed_observations_contribute_nothing() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    for loss in [Loss::Squared, Loss::Logistic] {
        let (learning, item) = (learning(loss, Some(1.0)), features(&mut rng));
        // A hundred half-lives before the others.
        let mut history = test_history(&mut rng, 20);
        history.0.iter_mut().for_each(|(_, _, time, _)| *time = 100_000);
        history.0[0].2 = 0;
        let (_, terms) = influence(&learning, &history, &item);
        assert!(terms.contributions[0].abs() < 1e-20, "{loss:?}: {}", terms.contributions[0]);
        assert!(terms.contributions[1..].iter().any(|term| term.abs() > 1e-3), "{loss:?}");
    }
}
