//! A policy without closed forms is evaluated correctly on a log of the same kind of policy.

use celeris_bandits::ope::target::next_slot;
use celeris_bandits::ope::{Estimator, LoggedSlot, OpeSettings, Rounds, evaluate};
use celeris_bandits::{Candidates, Origin, Policy, Simulation, Thompson};
use celeris_model::{Learning, Prior, UserModel};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DIM: usize = 3;
const CANDIDATES: usize = 20;
const ROUNDS: usize = 4_000;

/// A log of Thompson sampling, each decision drawn and its propensities estimated with its own
/// seed, evaluated for `target`.
fn log(target: &Thompson, slots: usize) -> Rounds {
    let logging = Thompson::default();
    let learning = Learning::from(Prior::isotropic(DIM, 1.0, 0.5).unwrap());
    let posterior = UserModel::from_prior(&learning).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(61);
    let mut rounds = Rounds::default();
    for _ in 0..ROUNDS {
        let features: Vec<f32> = (0..CANDIDATES * DIM).map(|_| rng.random_range(-1.0..1.0)).collect();
        let zeros = [0.0; CANDIDATES];
        let candidates = Candidates {
            scores: &zeros,
            std_errors: &zeros,
            offsets: &zeros,
            features: &features,
            posterior: &posterior,
            learning: &learning,
        };
        let seed = rng.random();
        let ranking = logging.choose(&candidates, slots, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        let simulation = Simulation { seed, origin: Origin::Drawn };
        let propensities = logging.estimate_propensities(&candidates, &ranking, simulation).unwrap();
        let slot = |(position, candidate): (usize, &usize)| LoggedSlot {
            reward: 1.0 + 0.2 * f64::from(features[candidate * DIM]) + rng.random_range(-0.1..0.1),
            propensity: propensities[position].value,
            target: next_slot(target, &candidates, &ranking[..position], seed).unwrap()[*candidate],
            expected: 0.0,
            expected_target: 0.0,
            leverage: 0.0,
            leverage_switched: 0.0,
        };
        let slots: Vec<LoggedSlot> = ranking.iter().enumerate().map(slot).collect();
        rounds.push(&slots).unwrap();
    }
    rounds
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimisation; the release run has it")]
fn thompson_has_the_value_of_its_own_log() {
    let rounds = log(&Thompson::new(0.999).unwrap(), 1);
    let evaluation = evaluate(&rounds, &OpeSettings { resamples: 100, ..OpeSettings::default() }).unwrap();
    let ips = evaluation.estimates.iter().find(|estimate| estimate.estimator == Estimator::Ips).unwrap();
    let ips = ips.outcome.as_ref().unwrap().value;
    let ratio = ips / evaluation.logged.value;
    // Both counts of 1024 give a weight a standard deviation of 0.2, and so the mean of all rounds
    // one of 0.0032.
    assert!((ratio - 1.0).abs() < 0.01, "{ips} for {}", evaluation.logged.value);
}
