//! States shifted by what the user has taken, compared with a dense solution and with each other.

use celeris_model::{Example, GramSums, HalfLife, History, Learning, Loss, Prior, Timestamp, UserModel};
use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DIM: usize = 5;

struct Taken {
    features: [f32; DIM],
    label: f32,
    weight: f32,
    timestamp: i64,
    /// `Lambda y`; empty for an item without a choice vector.
    choice: Vec<f32>,
}

struct Takings(Vec<Taken>);

impl History for Takings {
    fn example(&self, index: u64) -> Example<'_> {
        let Taken { features, label, weight, timestamp, choice } = &self.0[usize::try_from(index).unwrap()];
        let timestamp = Timestamp(*timestamp);
        Example { features, label: *label, offset: 0.2, weight: *weight, timestamp, taken_before: None, choice }
    }
}

fn prior() -> Prior {
    let mut precision = DMatrix::from_element(DIM, DIM, 0.5);
    precision.fill_diagonal(4.0);
    Prior::new((0..DIM).map(|i| 0.3 - 0.1 * i as f64).collect(), precision.as_slice().to_vec(), 0.6).unwrap()
}

/// Three in four items have a choice vector.
fn takings(rng: &mut ChaCha8Rng, count: usize) -> Takings {
    let prior = prior();
    let taking = |_| {
        let mut features = [1.0; DIM];
        features[..DIM - 1].fill_with(|| rng.random_range(-1.5..1.5));
        let choice: Vec<f32> = (0..DIM).map(|_| rng.random_range(-1.0..1.0)).collect();
        let choice = if rng.random_bool(0.75) { prior.pulls(&choice) } else { Vec::new() };
        let (label, weight) = (rng.random_range(-2.0..2.0), rng.random_range(0.5..2.0));
        Taken { features, label, weight, timestamp: rng.random_range(0..90_000), choice }
    };
    Takings((0..count).map(taking).collect())
}

fn learning(half_life: Option<f64>) -> Learning {
    Learning::new(prior(), Loss::Squared, half_life.map(|seconds| HalfLife::from_seconds(seconds).unwrap()))
}

/// The weights under the prior mean `w0 + n^-1/2 sum y`, and the Gram matrix, by one dense solution.
fn dense(takings: &Takings, half_life: Option<f64>) -> DVector<f64> {
    let prior = prior();
    let lambda = DMatrix::from_row_slice(DIM, DIM, prior.precision());
    let latest = takings.0.iter().map(|taken| taken.timestamp).max().unwrap_or_default();
    let share =
        |taken: &Taken| half_life.map_or(1.0, |life| (-(latest - taken.timestamp) as f64 / 1000.0 / life).exp2());
    let (mut pull, mut count) = (DVector::zeros(DIM), 0.0);
    for taken in takings.0.iter().filter(|taken| !taken.choice.is_empty()) {
        pull += DVector::from_iterator(DIM, taken.choice.iter().map(|z| f64::from(*z))) * share(taken);
        count += share(taken);
    }
    if count > 0.0 {
        pull /= count.sqrt();
    }
    let (mut a, mut b) = (lambda.clone(), &lambda * DVector::from_column_slice(prior.mean()) + pull);
    for taken in &takings.0 {
        let x = DVector::from_iterator(DIM, taken.features.iter().map(|x| f64::from(*x)));
        let weight = f64::from(taken.weight) * share(taken);
        a += &x * x.transpose() * weight;
        b += &x * weight * (f64::from(taken.label) - f64::from(0.2_f32));
    }
    a.cholesky().unwrap().solve(&b)
}

#[test]
fn weights_are_those_under_the_shifted_prior_mean() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for half_life in [None, Some(40.0)] {
        for count in [0, 1, 2, 3, 7, 64, 100, 1_000, 4_200] {
            if half_life.is_some() && count > 100 {
                continue;
            }
            let (learning, takings) = (learning(half_life), takings(&mut rng, count));
            let mut live = UserModel::from_prior(&learning).unwrap();
            for _ in 0..count {
                live.absorb(&learning, &takings).unwrap();
            }
            let expected = dense(&takings, half_life);
            for (weight, expected) in live.weights().iter().zip(&expected) {
                // The error of a state in `f32`, as in `ridge_oracle.rs`.
                let close = (weight - expected).abs() <= 1e-5 * (1.0 + expected.abs());
                assert!(close, "half-life {half_life:?}, {count} observations: {weight} is not {expected}");
            }
        }
    }
}

#[test]
fn live_rebuilt_and_resumed_states_are_equal_to_the_bit() {
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    for half_life in [None, Some(40.0)] {
        let count = if half_life.is_some() { 90 } else { 4_300 };
        let (learning, takings) = (learning(half_life), takings(&mut rng, count));
        let mut live = UserModel::from_prior(&learning).unwrap();
        let mut stored: Option<Vec<u8>> = None;
        for learnt in 1..=count as u64 {
            live.absorb(&learning, &takings).unwrap();
            if learnt.is_multiple_of(30) || learnt > 4_090 && learnt.is_multiple_of(7) {
                assert_eq!(live, UserModel::rebuild(&learning, &takings, learnt).unwrap(), "after {learnt}");
                if let Some(bytes) = &stored {
                    let sums = GramSums::from_bytes(bytes).unwrap();
                    assert_eq!(live, UserModel::resume(&learning, sums, &takings, learnt).unwrap(), "after {learnt}");
                }
                stored = live.sums().map(GramSums::to_bytes).or(stored);
            }
        }
        assert!(stored.is_some(), "sums are kept");
    }
}

#[test]
fn sums_with_choices_are_read_back_and_cut_ones_are_not() {
    let mut rng = ChaCha8Rng::seed_from_u64(13);
    let (learning, takings) = (learning(Some(40.0)), takings(&mut rng, 20));
    let state = UserModel::rebuild(&learning, &takings, 20).unwrap();
    let bytes = state.sums().unwrap().to_bytes();
    assert_eq!(&GramSums::from_bytes(&bytes).unwrap(), state.sums().unwrap());
    let words = DIM + DIM * (DIM + 1) / 2;
    for cut in 1..=DIM {
        assert!(GramSums::from_bytes(&bytes[..8 * (4 + words + cut)]).is_none(), "{cut} words of the choices");
    }
}

#[test]
fn only_squared_loss_has_choices() {
    let mut rng = ChaCha8Rng::seed_from_u64(14);
    let mut takings = takings(&mut rng, 40);
    takings.0.iter_mut().for_each(|taken| taken.label = taken.label.abs().min(1.0));
    let without = Takings(
        takings.0.iter().map(|taken| Taken { choice: Vec::new(), features: taken.features, ..*taken }).collect(),
    );
    for loss in [Loss::Logistic, Loss::Implicit] {
        let learning = Learning::new(prior(), loss, None);
        let [with, without] = [&takings, &without].map(|history| UserModel::rebuild(&learning, history, 40).unwrap());
        assert_eq!(with, without, "{loss:?}");
    }
}

#[test]
fn a_choice_vector_of_another_length_is_refused() {
    let mut rng = ChaCha8Rng::seed_from_u64(15);
    let mut takings = takings(&mut rng, 3);
    takings.0[2].choice = vec![0.0; DIM + 1];
    let learning = learning(None);
    let problem = UserModel::rebuild(&learning, &takings, 3).unwrap_err();
    assert!(problem.to_string().contains("choice"), "{problem}");
}
