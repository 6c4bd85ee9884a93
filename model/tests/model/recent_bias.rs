//! States of users with a recent bias, compared with a dense solution and with each other.

use celeris_model::{Example, GramSums, HalfLife, History, Learning, Loss, Prior, RecentBias, Timestamp, UserModel};
use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DIM: usize = 4;
const OFFSET: f32 = 0.25;

struct Rated {
    features: [f32; DIM],
    label: f32,
    weight: f32,
    timestamp: i64,
    /// `Lambda y`; empty for an item without a choice vector.
    choice: Vec<f32>,
}

struct Past(Vec<Rated>);

impl History for Past {
    fn example(&self, index: u64) -> Example<'_> {
        let Rated { features, label, weight, timestamp, choice } = &self.0[usize::try_from(index).unwrap()];
        let timestamp = Timestamp(*timestamp);
        Example { features, label: *label, offset: OFFSET, weight: *weight, timestamp, taken_before: None, choice }
    }
}

/// How items come: with choice vectors or without.
#[derive(Clone, Copy, PartialEq)]
enum Items {
    Plain,
    WithChoices,
}

fn past(rng: &mut ChaCha8Rng, count: usize, items: Items) -> Past {
    let rated = |_| {
        let mut features = [1.0; DIM];
        features[..DIM - 1].fill_with(|| rng.random_range(-1.5..1.5));
        let choice: Vec<f32> = (0..DIM).map(|_| rng.random_range(-1.0..1.0)).collect();
        let choice = if items == Items::WithChoices { choice } else { Vec::new() };
        let (label, weight) = (rng.random_range(-2.0..2.0), rng.random_range(0.5..2.0));
        Rated { features, label, weight, timestamp: rng.random_range(0..90_000), choice }
    };
    Past((0..count).map(rated).collect())
}

fn learning(loss: Loss, half_life: Option<f64>, recent_bias: Option<RecentBias>) -> Learning {
    let prior = Prior::isotropic(DIM, 3.0, 0.6).unwrap().with_recent_bias(recent_bias);
    Learning::new(prior, loss, half_life.map(|seconds| HalfLife::from_seconds(seconds).unwrap()))
}

fn rule() -> RecentBias {
    RecentBias::new(0.8, 4.0).unwrap()
}

fn state(learning: &Learning, past: &Past) -> UserModel {
    UserModel::rebuild(learning, past, past.0.len() as u64).unwrap()
}

#[test]
fn the_last_weight_has_the_shrunk_mean_of_the_latest_residuals_added() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for items in [Items::Plain, Items::WithChoices] {
        for half_life in [None, Some(40.0)] {
            for count in [1, 2, 3, 7, 64, 100] {
                let past = past(&mut rng, count, items);
                let without = state(&learning(Loss::Squared, half_life, None), &past);
                let with = state(&learning(Loss::Squared, half_life, Some(rule())), &past);
                let mut expected = DVector::from_vec(without.weights());
                let (mut sum, mut number) = (0.0, 0.0);
                for (age, rated) in past.0.iter().rev().enumerate() {
                    let x = DVector::from_iterator(DIM, rated.features.iter().map(|x| f64::from(*x)));
                    let weight = f64::from(rated.weight) * 0.8_f64.powi(i32::try_from(age).unwrap());
                    sum += weight * (f64::from(rated.label) - f64::from(OFFSET) - x.dot(&expected));
                    number += weight;
                }
                expected[DIM - 1] += sum / (4.0 + number);
                for (weight, expected) in with.weights().iter().zip(&expected) {
                    // Weights are held in `f32`.
                    assert!(
                        (weight - expected).abs() <= 1e-6 * (1.0 + expected.abs()),
                        "{count}: {weight}, {expected}"
                    );
                }
                assert_eq!(with.gram_inverse(), without.gram_inverse(), "what is uncertain does not change");
            }
        }
    }
}

#[test]
fn live_rebuilt_and_resumed_states_are_equal_to_the_bit() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for (items, half_life) in [(Items::Plain, None), (Items::WithChoices, None), (Items::WithChoices, Some(40.0))] {
        let count = if half_life.is_some() { 90 } else { 4_300 };
        let (learning, past) = (learning(Loss::Squared, half_life, Some(rule())), past(&mut rng, count, items));
        let mut live = UserModel::from_prior(&learning).unwrap();
        let mut stored: Option<Vec<u8>> = None;
        for learnt in 1..=count as u64 {
            live.absorb(&learning, &past).unwrap();
            if learnt.is_multiple_of(30) || learnt > 4_090 && learnt.is_multiple_of(7) {
                assert_eq!(live, UserModel::rebuild(&learning, &past, learnt).unwrap(), "after {learnt}");
                if let Some(bytes) = &stored {
                    let sums = GramSums::from_bytes(bytes).unwrap();
                    assert_eq!(live, UserModel::resume(&learning, sums, &past, learnt).unwrap(), "after {learnt}");
                }
                stored = live.sums().map(GramSums::to_bytes).or(stored);
            }
        }
        assert!(stored.is_some(), "sums are kept");
    }
}

#[test]
fn the_terms_of_an_explanation_sum_to_the_score() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for items in [Items::Plain, Items::WithChoices] {
        for half_life in [None, Some(40.0)] {
            for (count, heavier) in [(1, 1.0), (2, 1.0), (5, 1.0), (64, 1.0), (100, 1.0), (13, 1e6), (70, 1e6)] {
                let learning = learning(Loss::Squared, half_life, Some(rule()));
                let mut past = past(&mut rng, count, items);
                past.0.iter_mut().for_each(|rated| rated.weight *= heavier);
                let state = state(&learning, &past);
                let item = [0.4, -1.1, 0.7, 1.0];
                let influence = state.influence(&learning, &past, OFFSET, &item).unwrap();
                assert_eq!(influence.recent_bias.len(), count);
                let terms = influence.contributions.iter().chain(&influence.choices).chain(&influence.recent_bias);
                let (sum, size) =
                    terms.fold((influence.prior, 1.0), |(sum, size), term| (sum + term, size + term.abs()));
                let score = f64::from(state.estimate(&learning, OFFSET, &item).score);
                assert!((sum - score).abs() < 2e-6 * size, "{count}: the terms sum to {sum}, the score is {score}");
            }
        }
    }
}

#[test]
fn sums_of_both_kinds_are_told_apart_by_their_length() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let words = DIM + DIM * (DIM + 1) / 2;
    for items in [Items::Plain, Items::WithChoices] {
        for recent_bias in [None, Some(rule())] {
            let state = state(&learning(Loss::Squared, Some(40.0), recent_bias), &past(&mut rng, 20, items));
            let bytes = state.sums().unwrap().to_bytes();
            assert_eq!(&GramSums::from_bytes(&bytes).unwrap(), state.sums().unwrap());
            let choices = if items == Items::WithChoices { 1 + DIM } else { 0 };
            let recent = if recent_bias.is_some() { 2 + DIM } else { 0 };
            assert_eq!(bytes.len(), 8 * (4 + words + choices + recent));
            let whole = [0, 1 + DIM, 2 + DIM, 3 + 2 * DIM];
            for cut in (0..choices + recent).filter(|cut| !whole.contains(cut)) {
                assert!(GramSums::from_bytes(&bytes[..8 * (4 + words + cut)]).is_none(), "{cut} words more");
            }
        }
    }
}

#[test]
fn only_squared_loss_has_a_recent_bias() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut past = past(&mut rng, 40, Items::Plain);
    past.0.iter_mut().for_each(|rated| rated.label = rated.label.abs().min(1.0));
    for loss in [Loss::Logistic, Loss::Implicit] {
        let [with, without] = [Some(rule()), None].map(|bias| learning(loss, None, bias));
        assert_eq!(state(&with, &past), state(&without, &past), "{loss:?}");
        assert_eq!(with.fingerprint(), without.fingerprint(), "{loss:?}");
    }
    let [with, other, without] = [Some(rule()), Some(RecentBias::new(0.8, 5.0).unwrap()), None]
        .map(|bias| learning(Loss::Squared, None, bias).fingerprint());
    assert!(with != other && with != without, "stored states of another rule are not taken");
}

#[test]
fn the_rule_is_bounded() {
    for (retained, precision, named) in [
        (-0.1, 4.0, "retained"),
        (0.9999, 4.0, "retained"),
        (f64::NAN, 4.0, "retained"),
        (0.9, 0.0, "precision"),
        (0.9, f64::INFINITY, "precision"),
        (0.9, f64::NAN, "precision"),
    ] {
        let problem = RecentBias::new(retained, precision).unwrap_err().to_string();
        assert!(problem.contains(&format!("recent_bias.{named}")), "{problem}");
    }
    assert!(serde_json::from_str::<RecentBias>(r#"{"retained": 1.0, "precision": 4.0}"#).is_err());
    assert_eq!(serde_json::from_str::<RecentBias>(r#"{"retained": 0.8, "precision": 4}"#).unwrap(), rule());
}

#[test]
fn huge_labels_and_weights_leave_a_state_finite() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let mut past = past(&mut rng, 300, Items::WithChoices);
    for (number, rated) in past.0.iter_mut().enumerate() {
        (rated.label, rated.weight) = (if number % 2 == 0 { 1e6 } else { -1e6 }, 1e6);
    }
    let state = state(&learning(Loss::Squared, None, Some(RecentBias::new(0.999, 1e-3).unwrap())), &past);
    assert!(state.weights().iter().all(|weight| weight.is_finite()), "{:?}", state.weights());
}

/// The dense solution is of the example itself, so that the test of the sums above is not of two equal errors.
#[test]
fn without_a_recent_bias_weights_are_the_ridge_regression() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let past = past(&mut rng, 30, Items::Plain);
    let state = state(&learning(Loss::Squared, None, None), &past);
    let (mut a, mut b) = (DMatrix::identity(DIM, DIM) * 3.0, DVector::zeros(DIM));
    for rated in &past.0 {
        let x = DVector::from_iterator(DIM, rated.features.iter().map(|x| f64::from(*x)));
        a += &x * x.transpose() * f64::from(rated.weight);
        b += &x * f64::from(rated.weight) * (f64::from(rated.label) - f64::from(OFFSET));
    }
    for (weight, expected) in state.weights().iter().zip(&a.cholesky().unwrap().solve(&b)) {
        assert!((weight - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{weight}, {expected}");
    }
}
