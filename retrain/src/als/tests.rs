#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::partners::{AUDIENCE_VARIANCE, PartnerVectors};
use super::{Als, Grouped, Shape, Start};
use crate::ratings::{Rating, Ratings, Rows};

const SHAPE: Shape = Shape { latent: 2, side_features: 1 };

/// Six users, five items, different weights, a pair rated twice, and an item (4) rated by fewer
/// users than there are factors.
fn ratings() -> Ratings {
    let rating = |user, item, label, weight| Rating { user, item, label, weight };
    let list = (0..24)
        .map(|k: u32| rating(k % 6, (k * 7 / 3) % 4, (k * 5 % 9) as f32 * 0.5 + 0.5, 1.0 + (k % 3) as f32 * 0.5))
        .chain([rating(0, 4, 4.5, 2.0), rating(1, 0, 3.0, 1.0)]);
    Ratings::new(6, 5, list.collect()).unwrap()
}

const SIDE_FEATURES: [f32; 5] = [0.5, -1.0, 0.25, 1.5, -2.0];

fn start(regularization: f64) -> Als {
    Als::start(
        &ratings(),
        &Grouped::of(&ratings()),
        Start { shape: SHAPE, side_features: &SIDE_FEATURES, regularization, seed: 3, audience: true, choices: false },
    )
}

/// Minimiser of `sum weight (target - x·z)^2 + z^T ridge z - 2 z^T moment` by inverting the normal
/// matrix entry by entry: slow, and independent of the code under test.
fn reference(
    examples: &[(Vec<f64>, f64, f64)],
    ridge: &DMatrix<f64>,
    moment: &DVector<f64>,
) -> (DVector<f64>, DMatrix<f64>) {
    let dim = moment.len();
    let mut matrix = ridge.clone();
    let mut right = moment.clone();
    for (x, target, weight) in examples {
        for i in 0..dim {
            right[i] += weight * x[i] * target;
            for j in 0..dim {
                matrix[(i, j)] += weight * x[i] * x[j];
            }
        }
    }
    let inverse = matrix.try_inverse().unwrap();
    (&inverse * right, inverse)
}

/// Products are summed in `f32`, and the systems here amplify rounding errors by less than a
/// hundred.
fn close(stored: f32, exact: f64) {
    assert!((f64::from(stored) - exact).abs() <= 1e-5 * exact.abs().max(1.0), "{stored} is not {exact}");
}

#[test]
fn an_iteration_solves_both_sides_like_an_independent_reference() {
    let mut als = start(1.0);
    als.iterate().unwrap();
    // In the second iteration the items' variances are no longer zero.
    let before = als.clone();
    als.solve_users().unwrap();

    let dim = SHAPE.dim();
    let noise = before.noise_variance;
    let precision = before.weight_covariance.clone().try_inverse().unwrap() * noise;
    let (by_user, by_item) = (Rows::by_user(&ratings()), Rows::by_item(&ratings()));
    for user in 0..6 {
        let mut ridge = precision.clone();
        let mut examples = Vec::new();
        for entry in by_user.row(user) {
            let (item, weight) = (entry.other as usize, f64::from(entry.weight));
            let x: Vec<f64> = before.features[item * dim..(item + 1) * dim].iter().map(|x| f64::from(*x)).collect();
            for j in 0..2 {
                ridge[(j, j)] += weight * f64::from(before.factor_variances[item * 2 + j]);
            }
            examples.push((x, f64::from(entry.label) - before.mean - f64::from(before.biases[item]), weight));
        }
        let (solution, inverse) = reference(&examples, &ridge, &(&precision * &before.weight_mean));
        for j in 0..dim {
            close(als.weights[user * dim + j], solution[j]);
            close(als.weight_variances[user * dim + j], noise * inverse[(j, j)]);
        }
    }

    let users = als.clone();
    als.solve_items().unwrap();
    // Items 0 to 3 have more ratings than coordinates and item 4 has one: both forms of the solver
    // are tested.
    for (item, side_feature) in SIDE_FEATURES.iter().enumerate() {
        let mut ridge = DMatrix::from_diagonal(&nalgebra::dvector![noise, noise, noise / users.bias_variance]);
        let mut examples = Vec::new();
        for entry in by_item.row(item) {
            let (user, weight) = (entry.other as usize, f64::from(entry.weight));
            let w: Vec<f64> = users.weights[user * dim..(user + 1) * dim].iter().map(|w| f64::from(*w)).collect();
            for j in 0..2 {
                ridge[(j, j)] += weight * f64::from(users.weight_variances[user * dim + j]);
            }
            let target = f64::from(entry.label) - users.mean - w[2] * f64::from(*side_feature) - w[3];
            examples.push((vec![w[0], w[1], 1.0], target, weight));
        }
        let expected = users.audience.as_ref().unwrap().shift_of(item).iter().map(|mean| f64::from(*mean));
        let moment =
            DVector::from_iterator(3, expected.zip([noise, noise, noise / users.bias_variance]).map(|(g, d)| g * d));
        let (solution, inverse) = reference(&examples, &ridge, &moment);
        for j in 0..2 {
            close(als.features[item * dim + j], solution[j]);
            close(als.factor_variances[item * 2 + j], noise * inverse[(j, j)]);
        }
        close(als.biases[item], solution[2]);
        close(als.bias_variances[item], noise * inverse[(2, 2)]);
    }
}

#[test]
fn the_noise_is_the_expected_squared_residual_under_both_posteriors() {
    let mut als = start(1.0);
    als.iterate().unwrap();
    als.iterate().unwrap();
    let (dim, latent) = (SHAPE.dim(), SHAPE.latent);
    let (mut weights, mut squares) = (0.0, 0.0);
    let by_user = Rows::by_user(&ratings());
    for user in 0..6 {
        for entry in by_user.row(user) {
            let item = entry.other as usize;
            let table = |table: &[f32], row: usize, width: usize| -> Vec<f64> {
                table[row * width..][..width].iter().map(|x| f64::from(*x)).collect()
            };
            let (w, v_w) = (table(&als.weights, user, dim), table(&als.weight_variances, user, dim));
            let (x, v_x) = (table(&als.features, item, dim), table(&als.factor_variances, item, latent));
            let residual = f64::from(entry.label) - als.score(user as u32, entry.other);
            let of_weights: f64 = v_w.iter().zip(&x).map(|(v, x)| v * x * x).sum();
            let of_factors: f64 = (0..latent).map(|j| v_x[j] * (w[j] * w[j] + v_w[j])).sum();
            let variance = of_weights + of_factors + f64::from(als.bias_variances[item]);
            weights += f64::from(entry.weight);
            squares += f64::from(entry.weight) * (residual * residual + variance);
        }
    }
    // Both are sums of values stored in `f32`.
    assert!((als.noise_variance / (squares / weights) - 1.0).abs() < 1e-5, "{}", squares / weights);
}

#[test]
fn without_variances_it_is_textbook_als() {
    let (mut plain, mut charged) = (start(0.0), start(1.0));
    plain.iterate().unwrap();
    charged.iterate().unwrap();
    // The first half-iteration starts without variances, so only the items differ; including the
    // posterior variance shrinks their factors.
    assert_eq!(plain.weights, charged.weights);
    let size = |als: &Als| als.features.chunks_exact(4).map(|row| row[0].powi(2) + row[1].powi(2)).sum::<f32>();
    assert!(size(&charged) < size(&plain));
}

#[test]
fn a_fit_from_a_state_makes_the_same_next_iteration() {
    let mut through = start(1.0);
    through.iterate().unwrap();
    through.iterate().unwrap();
    let state = through.state();
    let mut resumed = start(1.0);
    resumed.resume(&state);
    // The state has no vectors of users: they are fitted to its factors.
    through.audience = Some(PartnerVectors::audience(6, 5, SHAPE.latent));
    through.resume_audience();
    through.iterate().unwrap();
    resumed.iterate().unwrap();
    // Biases are relative to a mean that is the same here, so everything is equal up to the
    // rounding of a sum.
    for (a, b) in through.features.iter().zip(&resumed.features).chain(through.weights.iter().zip(&resumed.weights)) {
        assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{a} is not {b}");
    }
    assert!((through.noise_variance / resumed.noise_variance - 1.0).abs() < 1e-6);
}

/// Partners that meet a row several times count as often.
#[test]
fn sweeps_converge_to_the_dense_solution() {
    let (by_user, by_item) = (Rows::by_user(&ratings()), Rows::by_item(&ratings()));
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let targets: Vec<f32> = (0..5 * 3).map(|_| random.random::<f32>() - 0.5).collect();
    let mut vectors = PartnerVectors::audience(6, 5, 2);
    let mut rest = targets.clone();
    for _ in 0..300 {
        vectors.sweep(&mut rest, (&by_user, &by_item));
    }
    let mut design = DMatrix::zeros(5, 6);
    for rating in ratings().list() {
        let count = by_item.row(rating.item as usize).len() as f64;
        design[(rating.item as usize, rating.user as usize)] += count.sqrt().recip();
    }
    let targets = DMatrix::from_row_slice(5, 3, &targets).map(f64::from);
    let normal = design.tr_mul(&design) + DMatrix::identity(6, 6) / AUDIENCE_VARIANCE;
    let solution = normal.try_inverse().unwrap() * design.tr_mul(&targets);
    let fitted = &design * &solution;
    for item in 0..5 {
        for column in 0..3 {
            close(vectors.shift_of(item)[column], fitted[(item, column)]);
            close(rest[item * 3 + column], targets[(item, column)] - fitted[(item, column)]);
        }
    }
    assert!(fitted.norm() > 0.1, "the targets are explained to some part");
}
