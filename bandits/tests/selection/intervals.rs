//! The interval of an A/B test has its nominal coverage, although outcomes of one user are
//! correlated.

use celeris_bandits::selection::comparison::difference;
use celeris_bandits::selection::{ArmSums, Fixed};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Normal};

const LANES: usize = 64;

/// 2,000 users of one of two arms, each with their own taste and 1 to 40 outcomes; arm 0 loses 0.02
/// more.
fn experiment(rng: &mut ChaCha8Rng) -> Vec<Vec<ArmSums>> {
    let mut lanes = vec![vec![ArmSums::default(); 2]; LANES];
    let (tastes, noise) = (Normal::new(0.4, 0.1).unwrap(), Normal::new(0.0, 0.05).unwrap());
    for _ in 0..2_000 {
        let (lane, arm) = (rng.random_range(0..LANES), rng.random_range(0..2));
        let taste: f64 = tastes.sample(rng);
        for _ in 0..rng.random_range(1..=40) {
            let loss: f64 = taste + noise.sample(rng) + if arm == 0 { 0.02 } else { 0.0 };
            let sums = &mut lanes[lane][arm];
            sums.outcomes += 1;
            sums.loss += Fixed::nearest(loss);
        }
    }
    lanes
}

#[test]
fn intervals_cover_the_true_difference_in_95_percent() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let covered = (0..400).filter(|_| {
        let found = difference(&experiment(&mut rng), 0, 1).unwrap();
        (found.low..=found.high).contains(&0.02)
    });
    let covered = covered.count();
    // 400 trials of probability 0.95: three standard deviations either way.
    assert!((367..=393).contains(&covered), "{covered} of 400");
}

#[test]
fn too_few_lanes_give_no_interval() {
    let mut lanes = vec![vec![ArmSums::default(); 2]; LANES];
    for sums in lanes.iter_mut().take(9).flatten() {
        *sums = ArmSums { outcomes: 5, loss: Fixed::nearest(1.0), estimated: Fixed::nearest(1.0) };
    }
    assert_eq!(difference(&lanes, 0, 1), None);
}
