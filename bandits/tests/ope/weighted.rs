//! Rounds that stand for several.

use celeris_bandits::ope::{Estimator, LoggedSlot, OpeSettings, Rounds, evaluate, values};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

fn drawn(count: usize) -> Vec<(Vec<LoggedSlot>, usize)> {
    let mut random = ChaCha8Rng::seed_from_u64(8);
    let mut slot = || {
        let propensity = random.random_range(0.2..1.0);
        LoggedSlot {
            reward: random.random_range(-1.0..1.0),
            propensity,
            target: random.random_range(0.2..1.0),
            expected: random.random_range(-1.0..1.0),
            expected_target: random.random_range(-1.0..1.0),
            leverage: 0.0,
            leverage_switched: 0.0,
        }
    };
    (0..count).map(|index| ((0..=index % 3).map(|_| slot()).collect(), 1 + index % 4)).collect()
}

#[test]
fn a_round_of_weight_three_is_three_rounds() {
    let settings = OpeSettings { resamples: 20, switch_threshold: 1.5, ..OpeSettings::default() };
    let (mut weighted, mut repeated) = (Rounds::default(), Rounds::default());
    for (slots, count) in drawn(200) {
        weighted.push_weighted(&slots, count as f64).unwrap();
        (0..count).for_each(|_| repeated.push(&slots).unwrap());
    }
    let (ours, theirs) = (values(&weighted, &settings), values(&repeated, &settings));
    for (estimator, (a, b)) in Estimator::ALL.into_iter().zip(ours.into_iter().zip(theirs)) {
        // Neither is defined for replay: the target draws. The sums round differently.
        assert!((a - b).abs() < 1e-12 || a.is_nan() && b.is_nan(), "{estimator:?}: {a} {b}");
    }
    let (ours, theirs) = (evaluate(&weighted, &settings).unwrap(), evaluate(&repeated, &settings).unwrap());
    assert!((ours.logged.value - theirs.logged.value).abs() < 1e-12);
    assert!((ours.mean_weight - theirs.mean_weight).abs() < 1e-12);
    // Three equal rounds say less than three different ones.
    let effective = |evaluation: &celeris_bandits::ope::Evaluation| evaluation.estimates[1].effective_sample_size;
    assert!(effective(&ours) < 0.9 * effective(&theirs), "{} {}", effective(&ours), effective(&theirs));
}

#[test]
fn weights_are_above_zero() {
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let slots = drawn(1).remove(0).0;
        assert!(Rounds::default().push_weighted(&slots, weight).is_err(), "{weight}");
    }
}
