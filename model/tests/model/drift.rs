//! Rounding does not accumulate, however long a history is.

use celeris_model::canonical::CHECKPOINT_EVERY;
use celeris_model::{Example, Learning, Prior, Timestamp, UserModel};
use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DIM: usize = 8;
const UPDATES: usize = 1_000_000;

#[test]
fn a_million_updates_stay_at_the_dense_solution() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let features: Vec<f32> = (0..UPDATES * DIM)
        .map(|index| if index % DIM == DIM - 1 { 1.0 } else { rng.random_range(-1.7..1.7) })
        .collect();
    let labels: Vec<f32> = (0..UPDATES).map(|_| rng.random_range(0.5..5.0)).collect();
    let examples: Vec<Example> = features
        .chunks_exact(DIM)
        .zip(&labels)
        .map(|(features, label)| Example {
            features,
            label: *label,
            offset: 3.0,
            weight: 1.0,
            timestamp: Timestamp(0),
            taken_before: None,
            choice: &[],
        })
        .collect();
    let learning = Learning::from(Prior::isotropic(DIM, 5.0, 1.0).unwrap());
    let mut model = UserModel::from_prior(&learning).unwrap();
    let mut a = DMatrix::from_row_slice(DIM, DIM, learning.prior().precision());
    let mut right = DVector::zeros(DIM);
    let (mut of_weights, mut of_matrix) = (0.0_f64, 0.0_f64);
    for (index, example) in examples.iter().enumerate() {
        let x = DVector::from_iterator(DIM, example.features.iter().map(|x| f64::from(*x)));
        a.ger(1.0, &x, &x, 1.0);
        right.axpy(f64::from(example.label) - f64::from(example.offset), &x, 1.0);
        model.absorb(&learning, examples.as_slice()).unwrap();
        // As far from the previous solve as a state ever gets.
        let count = index as u64 + 1;
        if count % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1 || count == UPDATES as u64 {
            let inverse = a.clone().try_inverse().unwrap();
            let exact = &inverse * &right;
            of_weights = of_weights.max((DVector::from_vec(model.weights()) - &exact).norm() / exact.norm());
            let matrix = DMatrix::from_row_slice(DIM, DIM, &model.gram_inverse());
            of_matrix = of_matrix.max((matrix - &inverse).norm() / inverse.norm());
        }
    }
    assert_eq!(model.observations(), UPDATES as u64);
    assert!(!model.is_double(), "the test covers f32 steps");
    eprintln!("largest relative error: weights {of_weights:.1e}, inverse Gram matrix {of_matrix:.1e}");
    // A solve rounds once; at most 4,095 steps with a rounding of 6e-8 follow. The guarantee for
    // the weights is 1e-4. Late in a long history, a step changes the matrix by less than its last
    // digit, so the matrix may lag behind by part of the change over a block, a share of 4096 / n;
    // `std_error` has half of that relative error.
    assert!(of_weights <= 1e-4 && of_matrix <= 1e-3, "{of_weights:e}, {of_matrix:e}");
}
