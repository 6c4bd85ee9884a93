//! The online posterior of clicks compared with scikit-learn's batch logistic regression, and with
//! the true weights.

use celeris_model::{Example, Learning, Loss, Prior, Timestamp, UserModel};
use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

/// The output of `reference/logistic.py`.
#[derive(Deserialize)]
struct Fixture {
    dim: usize,
    precision: Vec<f64>,
    items: Vec<f32>,
    users: Vec<User>,
}

#[derive(Deserialize)]
struct User {
    told: Vec<usize>,
    clicks: Vec<u8>,
    asked: Vec<usize>,
    outcomes: Vec<u8>,
    /// From scikit-learn.
    weights: Vec<f64>,
    /// Log loss of scikit-learn's predictions for `asked`.
    log_loss: f64,
}

fn live(learning: &Learning, history: &[Example]) -> UserModel {
    let mut model = UserModel::from_prior(learning).unwrap();
    for _ in history {
        model.absorb(learning, history).unwrap();
    }
    model
}

fn log_loss(outcomes: &[u8], probabilities: impl Iterator<Item = f32>) -> f64 {
    let losses = outcomes.iter().zip(probabilities).map(|(outcome, probability)| {
        let probability = f64::from(probability);
        -(if *outcome == 1 { probability } else { 1.0 - probability }).ln()
    });
    losses.sum::<f64>() / outcomes.len() as f64
}

#[test]
fn clicks_are_predicted_as_well_as_by_batch_logistic_regression() {
    let fixture: Fixture = serde_json::from_str(include_str!("reference/logistic.json")).unwrap();
    let dim = fixture.dim;
    let prior = Prior::new(vec![0.0; dim], fixture.precision.clone(), 1.0).unwrap();
    let learning = Learning::new(prior, Loss::Logistic, None);
    let item = |index: usize| &fixture.items[index * dim..(index + 1) * dim];
    let (mut plain, mut moderated, mut reference, mut solved) = (0.0, 0.0, 0.0, 0);
    for user in &fixture.users {
        let history: Vec<Example> = user
            .told
            .iter()
            .zip(&user.clicks)
            .map(|(index, click)| Example {
                features: item(*index),
                label: f32::from(*click),
                offset: 0.0,
                weight: 1.0,
                timestamp: Timestamp(0),
                taken_before: None,
                choice: &[],
            })
            .collect();
        let model = live(&learning, &history);
        let estimates: Vec<_> = user.asked.iter().map(|index| model.estimate(&learning, 0.0, item(*index))).collect();
        plain += log_loss(&user.outcomes, estimates.iter().map(|e| Loss::Logistic.expected_label(e.score)));
        moderated += log_loss(&user.outcomes, estimates.iter().map(|e| Loss::Logistic.probability(e).unwrap()));
        reference += user.log_loss;
        if history.len().is_power_of_two() {
            // At a checkpoint both solve the same problem; only rounding to f32 and of the fixture
            // remains.
            let distance = (DVector::from_vec(model.weights()) - DVector::from_column_slice(&user.weights)).norm();
            assert!(distance <= 1e-5, "{distance:e}");
            solved += 1;
        }
    }
    assert!(solved >= 2, "{solved} users stop at a checkpoint");
    let users = fixture.users.len() as f64;
    eprintln!(
        "held-out log loss: {:.5} by weights, {:.5} by the posterior, {:.5} by scikit-learn",
        plain / users,
        moderated / users,
        reference / users
    );
    assert!((plain / reference - 1.0).abs() <= 0.01, "{plain} against {reference}");
    // The uncertainty can make predictions better than any single weights, so only one side is
    // bounded.
    assert!(moderated / reference <= 1.01, "{moderated} against {reference}");
}

#[test]
fn intervals_of_click_weights_have_their_nominal_coverage() {
    const DIM: usize = 5;
    const USERS: usize = 1_000;
    let precision = vec![
        2.0, 0.5, 0.0, 0.0, 0.2, 0.5, 1.5, 0.3, 0.0, 0.0, 0.0, 0.3, 1.0, -0.4, 0.0, 0.0, 0.0, -0.4, 2.5, 0.1, 0.2, 0.0,
        0.0, 0.1, 1.2,
    ];
    let mean = vec![0.3, -0.5, 0.2, 0.0, -0.4];
    let lower = DMatrix::from_row_slice(DIM, DIM, &precision).try_inverse().unwrap().cholesky().unwrap().l();
    let learning = Learning::new(Prior::new(mean.clone(), precision, 1.0).unwrap(), Loss::Logistic, None);
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut held = [0.0; DIM];
    for _ in 0..USERS {
        // The sum of twelve uniforms is close enough to normal for intervals of 90 %.
        let normal = DVector::from_fn(DIM, |_, _| (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0);
        let truth = DVector::from_column_slice(&mean) + &lower * normal;
        let count = rng.random_range(5..500);
        let mut features: Vec<f32> = (0..count * DIM).map(|_| rng.random_range(-1.7..1.7)).collect();
        features.chunks_exact_mut(DIM).for_each(|row| row[DIM - 1] = 1.0);
        let history: Vec<Example> = features
            .chunks_exact(DIM)
            .map(|features| {
                let offset = rng.random_range(-1.0_f32..1.0);
                let score =
                    f64::from(offset) + features.iter().zip(&truth).map(|(x, w)| f64::from(*x) * w).sum::<f64>();
                let label = f32::from(u8::from(rng.random::<f64>() < 1.0 / (1.0 + (-score).exp())));
                Example {
                    features,
                    label,
                    offset,
                    weight: 1.0,
                    timestamp: Timestamp(0),
                    taken_before: None,
                    choice: &[],
                }
            })
            .collect();
        let model = live(&learning, &history);
        let (weights, inverse) = (model.weights(), model.gram_inverse());
        for j in 0..DIM {
            let width = 1.645 * inverse[j * DIM + j].sqrt();
            held[j] += f64::from(u8::from((weights[j] - truth[j]).abs() <= width)) / USERS as f64;
        }
    }
    eprintln!("90 % intervals hold {held:.3?}");
    // The standard deviation of a share of 90 % over 1,000 users is 0.9 %.
    assert!(held.iter().all(|share| (0.85..=0.95).contains(share)), "{held:?}");
}
