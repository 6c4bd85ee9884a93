//! The online state compared with the dense ridge solution in `f64`, and live states with rebuilt
//! ones bit for bit.

use celeris_model::{Example, History, Learning, Prior, Timestamp, UserModel};
use nalgebra::{DMatrix, DVector};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Owned examples of one user.
#[derive(Clone)]
struct TestHistory {
    dim: usize,
    features: Vec<f32>,
    labels: Vec<f32>,
    offsets: Vec<f32>,
    weights: Vec<f32>,
}

impl History for TestHistory {
    fn example(&self, index: u64) -> Example<'_> {
        let index = usize::try_from(index).unwrap();
        Example {
            features: &self.features[index * self.dim..(index + 1) * self.dim],
            label: self.labels[index],
            offset: self.offsets[index],
            weight: self.weights[index],
            timestamp: Timestamp(0),
            taken_before: None,
            choice: &[],
        }
    }
}

fn uniform(rng: &mut ChaCha8Rng, low: f64, high: f64) -> f64 {
    rng.random_range(low..high)
}

/// `count` examples whose features in dimension `j` have the magnitude `scales[j]`, and `loud`
/// times that in the later part.
fn test_history(rng: &mut ChaCha8Rng, scales: &[f64], loud: f64, count: usize) -> TestHistory {
    let dim = scales.len();
    let truth: Vec<f64> = scales.iter().map(|scale| uniform(rng, -1.0, 1.0) / scale).collect();
    let mut all = TestHistory { dim, features: vec![], labels: vec![], offsets: vec![], weights: vec![] };
    for n in 0..count {
        // A third of the way in, the features become larger: the bound of the condition must
        // reflect that.
        let loudness = if n * 3 > count { loud } else { 1.0 };
        let mut row: Vec<f32> =
            scales.iter().map(|scale| (uniform(rng, -1.7, 1.7) * scale * loudness) as f32).collect();
        row[dim - 1] = 1.0;
        let expected: f64 = row.iter().zip(&truth).map(|(x, w)| f64::from(*x) * w).sum();
        let offset = uniform(rng, -1.0, 4.0);
        all.labels.push((offset + expected + uniform(rng, -2.0, 2.0)) as f32);
        all.offsets.push(offset as f32);
        all.weights.push(uniform(rng, 0.2, 3.0) as f32);
        all.features.extend(row);
    }
    all
}

/// A prior with a random full precision whose eigenvalues span `condition`.
fn learning(rng: &mut ChaCha8Rng, dim: usize, condition: f64) -> Learning {
    let random = DMatrix::from_fn(dim, dim, |_, _| uniform(rng, -1.0, 1.0));
    let basis = random.qr().q();
    let eigenvalues =
        DVector::from_fn(dim, |i, _| condition.powf(i as f64 / (dim.max(2) - 1) as f64) * 20.0 / condition.sqrt());
    let mut precision = &basis * DMatrix::from_diagonal(&eigenvalues) * basis.transpose();
    precision = (&precision + precision.transpose()) * 0.5;
    let mean = (0..dim).map(|_| uniform(rng, -0.5, 0.5)).collect();
    Prior::new(mean, precision.as_slice().to_vec(), 0.8).unwrap().into()
}

/// The ridge problem solved densely: the weights and the 2-norm condition of `A`.
fn dense(learning: &Learning, history: &TestHistory, count: usize) -> (DVector<f64>, f64) {
    let prior = learning.prior();
    let dim = prior.dim();
    let w0 = DVector::from_column_slice(prior.mean());
    let mut a = DMatrix::from_row_slice(dim, dim, prior.precision());
    let mut right = &a * &w0;
    for index in 0..count {
        let example = history.example(index as u64);
        let x = DVector::from_iterator(dim, example.features.iter().map(|x| f64::from(*x)));
        let weight = f64::from(example.weight);
        a.ger(weight, &x, &x, 1.0);
        right.axpy(weight * (f64::from(example.label) - f64::from(example.offset)), &x, 1.0);
    }
    let eigenvalues = a.clone().symmetric_eigenvalues();
    (a.lu().solve(&right).unwrap(), eigenvalues.max() / eigenvalues.min())
}

fn live(learning: &Learning, history: &TestHistory, count: usize) -> UserModel {
    let mut model = UserModel::from_prior(learning).unwrap();
    for _ in 0..count {
        model.absorb(learning, history).unwrap();
    }
    model
}

fn relative_error(model: &UserModel, exact: &DVector<f64>) -> f64 {
    (DVector::from_vec(model.weights()) - exact).norm() / exact.norm()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    /// 1e-4 is the guarantee of the service; most states are far closer.
    #[test]
    fn weights_equal_the_dense_ridge_solution(seed in any::<u64>(), dim in 1_usize..40, count in prop_oneof![1_usize..10_000, Just(10_000), Just(8_191), Just(4_095)], exponent in 0.0_f64..4.0, spread in 0.0_f64..2.5, loud in prop_oneof![Just(1.0), Just(30.0)]) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let learning = learning(&mut rng, dim, 10_f64.powf(exponent));
        let scales: Vec<f64> = (0..dim).map(|j| 10_f64.powf(-spread * j as f64 / dim as f64)).collect();
        let history = test_history(&mut rng, &scales, loud, count);
        let model = live(&learning, &history, count);
        let (exact, condition) = dense(&learning, &history, count);
        prop_assume!(condition <= 1e5);
        let error = relative_error(&model, &exact);
        prop_assert!(error <= 1e-4, "relative error {error:e} at d={dim} n={count} condition {condition:e} double {}", model.is_double());
    }

    /// Features of very different magnitudes make `A` badly conditioned; such users are held in
    /// `f64` and stay accurate.
    #[test]
    fn badly_scaled_users_are_held_in_double_precision(seed in any::<u64>(), dim in 2_usize..16, count in 1_usize..3_000) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let learning = learning(&mut rng, dim, 10.0);
        let scales: Vec<f64> = (0..dim).map(|j| 10_f64.powf(3.0 - 4.0 * j as f64 / dim as f64)).collect();
        let history = test_history(&mut rng, &scales, 1.0, count);
        let model = live(&learning, &history, count);
        let (exact, condition) = dense(&learning, &history, count);
        prop_assert!(model.is_double() || condition <= 1e5, "held in f32 at condition {condition:e}");
        // Double precision loses condition times 1e-16 per step; 1e-6 leaves room for thousands of
        // steps at 1e8.
        let error = relative_error(&model, &exact);
        prop_assert!(error <= 1e-6 || condition <= 1e5 && error <= 1e-4, "relative error {error:e}, condition {condition:e}");
    }

    #[test]
    fn rebuilt_and_live_states_are_equal_bit_for_bit(seed in any::<u64>(), dim in 1_usize..16, count in 0_usize..9_000, wild in any::<bool>()) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let learning = learning(&mut rng, dim, 100.0);
        // Alternating magnitudes cross the precision bound between checkpoints.
        let scales: Vec<f64> = (0..dim).map(|j| if wild && j % 2 == 0 { 40.0 } else { 1.0 }).collect();
        let history = test_history(&mut rng, &scales, 1.0, count);
        let live = live(&learning, &history, count);
        let rebuilt = UserModel::rebuild(&learning, &history, count as u64).unwrap();
        prop_assert_eq!(&live, &rebuilt);
        let bits = |model: &UserModel| model.gram_inverse().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&live), bits(&rebuilt));
    }
}

#[test]
fn the_inverse_stays_exactly_symmetric() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let dim = 17;
    let learning = learning(&mut rng, dim, 50.0);
    let history = test_history(&mut rng, &vec![1.0; dim], 1.0, 3_000);
    let inverse = live(&learning, &history, 3_000).gram_inverse();
    for i in 0..dim {
        for j in 0..i {
            assert_eq!(inverse[i * dim + j].to_bits(), inverse[j * dim + i].to_bits());
        }
    }
}

#[test]
fn bad_examples_leave_the_state_unchanged() {
    let learning = Learning::from(Prior::isotropic(2, 1.0, 1.0).unwrap());
    let good =
        TestHistory { dim: 2, features: vec![0.5, 1.0], labels: vec![1.0], offsets: vec![0.0], weights: vec![1.0] };
    let before = live(&learning, &good, 1);
    for (features, label) in [(vec![f32::NAN, 1.0], 1.0), (vec![0.5, 1.0], f32::INFINITY), (vec![0.5], 1.0)] {
        let mut history = good.clone();
        let mut after = before.clone();
        history.features.extend(&features);
        history.labels.push(label);
        history.offsets.push(0.0);
        history.weights.push(1.0);
        if features.len() == 1 {
            let short = [
                Example {
                    features: &[0.5, 1.0],
                    label: 1.0,
                    offset: 0.0,
                    weight: 1.0,
                    timestamp: Timestamp(0),
                    taken_before: None,
                    choice: &[],
                },
                Example {
                    features: &[0.5],
                    label: 1.0,
                    offset: 0.0,
                    weight: 1.0,
                    timestamp: Timestamp(0),
                    taken_before: None,
                    choice: &[],
                },
            ];
            assert!(after.absorb(&learning, &short[..]).is_err());
        } else {
            assert!(after.absorb(&learning, &history).is_err());
        }
        assert_eq!(after, before);
    }
}

/// The empirical second moment of many draws must match the posterior.
#[test]
fn draws_have_the_posterior_as_their_distribution() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let dim = 3;
    let learning = learning(&mut rng, dim, 10.0);
    let history = test_history(&mut rng, &vec![1.0; dim], 1.0, 20);
    let model = live(&learning, &history, 20);
    let mut sampler = model.sampler(&learning).unwrap();
    let draws = 40_000;
    let mut second_moment = DMatrix::<f64>::zeros(dim, dim);
    for _ in 0..draws {
        // The sum of twelve uniforms has variance 1; its tails do not matter for a second moment.
        let drawn = sampler.draw(|| (0..12).map(|_| uniform(&mut rng, 0.0, 1.0)).sum::<f64>() - 6.0);
        let deviation = DVector::from_iterator(dim, drawn.iter().zip(model.weights()).map(|(d, w)| d - w));
        second_moment.ger(1.0 / draws as f64, &deviation, &deviation, 1.0);
    }
    let expected = DMatrix::from_row_slice(dim, dim, &model.gram_inverse()) * learning.noise_variance();
    // The relative standard error of a variance over 40,000 draws is 0.7 %; 4 % is more than five
    // of them.
    assert!((&second_moment - &expected).norm() <= 0.04 * expected.norm(), "{second_moment} against {expected}");
}
