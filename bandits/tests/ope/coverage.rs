//! Intervals of 95 % cover the true value in 93 to 97 % of cases: 2,000 logs of 500 rounds each.
//!
//! At a coverage of 95 %, the measured share has a standard error of 0.5 %, so the bounds are four
//! standard errors away.

use celeris_bandits::ope::{Estimator, Interval, OpeSettings, evaluate};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::world::{Policies, UNIFORM, chance, hard, log, soft, value, value_of_two};

const LOGS: u64 = 2_000;
const ROUNDS: usize = 500;
/// Fewer than the default to save time; more change the coverage by less than its standard error
/// here.
const RESAMPLES: usize = 400;
const THREADS: u64 = 2;

struct Case {
    slots: usize,
    policies: Policies,
    switch_threshold: f64,
    truth: f64,
    estimators: &'static [Estimator],
}

impl Case {
    /// Number of logs of one thread that each estimator covers.
    fn covered(&self, thread: u64) -> [u64; 7] {
        let mut covered = [0; 7];
        for seed in (0..LOGS).filter(|seed| seed % THREADS == thread) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let settings = OpeSettings { resamples: RESAMPLES, seed, switch_threshold: self.switch_threshold };
            let rounds = log(self.slots, &self.policies, ROUNDS, &settings, &mut rng);
            for (estimate, covered) in evaluate(&rounds, &settings).unwrap().estimates.iter().zip(&mut covered) {
                let within = |span: &Interval| (span.low..=span.high).contains(&self.truth);
                *covered += u64::from(estimate.outcome.as_ref().is_ok_and(within));
            }
        }
        covered
    }

    fn assert_covers(&self) {
        let covered = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || self.covered(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let mut wrong = Vec::new();
        for (index, estimator) in Estimator::ALL.into_iter().enumerate() {
            if !self.estimators.contains(&estimator) {
                continue;
            }
            let share = covered.iter().map(|covered| covered[index]).sum::<u64>() as f64 / LOGS as f64;
            eprintln!("{}: {:.2} % of {LOGS} logs covered", estimator.name(), 100.0 * share);
            if !(0.93..=0.97).contains(&share) {
                wrong.push((estimator.name(), share));
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn intervals_of_a_policy_that_draws_cover_the_truth() {
    let target = soft(6.0, chance);
    Case {
        slots: 1,
        policies: Policies { logging: soft(-2.0, chance), target },
        switch_threshold: 10.0,
        truth: value(&target),
        estimators: &[
            Estimator::Ips,
            Estimator::Snips,
            Estimator::Dm,
            Estimator::Dr,
            Estimator::Sndr,
            Estimator::SwitchDr,
        ],
    }
    .assert_covers();
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn intervals_of_a_deterministic_policy_on_a_uniform_log_cover_the_truth() {
    let target = hard();
    // SWITCH-DR never corrects rounds in which both agree, which the target makes 4 times likelier,
    // so it uses only the model.
    let policies = Policies { logging: UNIFORM, target };
    Case { slots: 1, policies, switch_threshold: 3.0, truth: value(&target), estimators: &Estimator::ALL }
        .assert_covers();
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization")]
fn intervals_of_rankings_cover_the_truth() {
    let target = soft(3.0, chance);
    // The second slot's reward depends on the slot above, which the reward model does not contain,
    // so the direct method is skipped.
    Case {
        slots: 2,
        policies: Policies { logging: soft(-2.0, chance), target },
        switch_threshold: 10.0,
        truth: value_of_two(&target),
        estimators: &[Estimator::Ips, Estimator::Snips, Estimator::Dr, Estimator::Sndr],
    }
    .assert_covers();
}
