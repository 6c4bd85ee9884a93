//! Weights and probabilities for given sums.

use celeris_bandits::selection::{
    Ab, Exp3, Exp4, Faded, FadedArm, Labels, Lot, Outcome, Selected, Strategy, TsallisInf,
};
use celeris_model::{Estimate, LabelRange, Loss};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

fn faded(outcomes: f64, estimated: &[f64]) -> Faded {
    let arm = |estimated: &f64| FadedArm { outcomes, loss: *estimated, estimated: *estimated };
    Faded { arms: estimated.iter().map(arm).collect() }
}

#[test]
fn exp3_weights_match_the_paper() {
    // K = 2, 200 outcomes: weights exp(-rate L) with rate sqrt(ln 2 / 400), and a hundredth drawn
    // uniformly.
    let rate = (2.0_f64.ln() / 400.0).sqrt();
    let (one, two) = ((-rate * 30.0).exp(), (-rate * 80.0).exp());
    let expected = 0.99 * one / (one + two) + 0.005;
    let weights = Exp3::default().weights(&faded(100.0, &[30.0, 80.0]));
    assert!((weights[0] - expected).abs() < 1e-12 && (weights[0] + weights[1] - 1.0).abs() < 1e-12, "{weights:?}");
}

#[test]
fn exp4_weights_fall_exponentially() {
    let rate = (8.0 * 3.0_f64.ln() / 50.0).sqrt();
    let weights = Exp4::default().weights(&faded(50.0, &[10.0, 12.0, 20.0]));
    for (weight, loss) in weights.iter().zip([10.0, 12.0, 20.0]) {
        // Up to the common factor; rounding leaves twelve digits.
        assert!((weight / weights[0] - (-rate * (loss - 10.0)).exp()).abs() < 1e-12);
    }
    assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
}

#[test]
fn tsallis_inf_minimises_the_objective_of_the_paper() {
    // The minimiser over the simplex has 1 / sqrt(p_i) rising linearly in the losses, with the
    // slope eta / 2.
    let strategy = TsallisInf { floor: 0.001 };
    let losses = [3.0, 4.0, 9.0, 100.0];
    let weights = strategy.weights(&faded(25.0, &losses));
    let pure: Vec<f64> = weights.iter().map(|weight| (weight - 0.001 / 4.0) / 0.999).collect();
    let slope = 2.0 / 100.0_f64.sqrt() / 2.0;
    for (probability, loss) in pure.iter().zip(losses) {
        let rise = 1.0 / probability.sqrt() - 1.0 / pure[0].sqrt();
        assert!((rise - slope * (loss - losses[0])).abs() < 1e-9, "{probability} {loss}");
    }
    assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
}

#[test]
fn without_outcomes_all_arms_are_equal() {
    for strategy in [&Exp3::default() as &dyn Strategy, &Exp4::default(), &TsallisInf::default(), &Ab::default()] {
        for weight in strategy.weights(&Faded::nothing(4)) {
            assert!((weight - 0.25).abs() < 1e-12);
        }
    }
}

/// Over 200,000 draws the frequencies match the propensities: chi-square with 3 degrees of freedom
/// at the level 0.001.
#[test]
fn frequencies_of_arms_match_their_propensities() {
    let known = faded(100.0, &[30.0, 42.0, 41.0, 60.0]);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let ab = Ab { shares: Some(vec![0.4, 0.3, 0.2, 0.1]) };
    for strategy in [&Exp3::default() as &dyn Strategy, &TsallisInf::default(), &ab] {
        let (mut counts, mut stated) = ([0_u32; 4], [0.0; 4]);
        for _ in 0..200_000 {
            let user = rng.random();
            let Selected::One { arm, propensity } = strategy.select(&known, Lot::drawn(&mut rng, user)) else {
                panic!("one arm answers")
            };
            counts[arm] += 1;
            stated[arm] = propensity;
        }
        let chi_square: f64 = counts
            .iter()
            .zip(stated)
            .map(|(count, propensity)| (f64::from(*count) - 200_000.0 * propensity).powi(2) / (200_000.0 * propensity))
            .sum();
        assert!(chi_square < 16.27, "{chi_square}: {counts:?} {stated:?}");
    }
}

#[test]
fn a_split_keeps_its_users() {
    let ab = Ab { shares: Some(vec![0.5, 0.25, 0.25]) };
    let nothing = Faded::nothing(3);
    for (user, arm) in [(0.0, 0), (0.49, 0), (0.5, 1), (0.74, 1), (0.75, 2), (0.999_999, 2)] {
        for request in [0.0, 0.6, 0.99] {
            let Selected::One { arm: served, .. } = ab.select(&nothing, Lot { request, user }) else { panic!() };
            assert_eq!(served, arm, "{user}");
        }
    }
}

#[test]
fn an_arm_that_did_not_predict_is_charged_the_mean() {
    let added = Exp4::default().observe(Outcome::Every(&[Some(0.25), None, Some(0.75)]));
    let estimated: Vec<f64> = added.iter().map(|(_, sums)| sums.estimated.value()).collect();
    assert_eq!(estimated, [0.25, 0.5, 0.75]);
    assert_eq!(added[1].1.outcomes, 0);
    assert!(Exp4::default().observe(Outcome::Every(&[None, Some(0.5)])).is_empty(), "one alone compares nothing");
}

#[test]
fn losses_are_weighted_by_inverse_propensity() {
    let added = TsallisInf::default().observe(Outcome::Served { arm: 2, propensity: 0.125, loss: 0.5 });
    assert_eq!(added.len(), 1);
    assert_eq!((added[0].0, added[0].1.loss.value(), added[0].1.estimated.value()), (2, 0.5, 4.0));
    let every = TsallisInf::default().observe(Outcome::Every(&[Some(0.5), Some(0.1)]));
    assert!(every.is_empty(), "it ignores outcomes of every arm");
}

#[test]
fn answers_are_combined_by_weight_and_agreement_is_counted() {
    let estimate = |score| Estimate { score, std_error: 0.5, label_std: 1.0 };
    let estimates = [3.0, 4.0, 5.0].map(estimate);
    let range = LabelRange::new(1.0, 6.0).unwrap();
    // A tolerance of 0.15 of five stars.
    let exp4 = Exp4 { tolerance: 0.15 };
    let combined = exp4.combine(&[0.5, 0.25, 0.25], &estimates, Labels { loss: Loss::Squared, range });
    assert_eq!((combined.estimate.score, combined.estimate.std_error), (3.75, 0.5));
    assert!((combined.confidence - 2.0 / 3.0).abs() < 1e-6, "3 and 4 agree with 3.75");
}
