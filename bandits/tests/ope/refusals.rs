//! Estimates that a log does not support are refused with the reason.

use celeris_bandits::BanditError;
use celeris_bandits::ope::{Estimate, Estimator, LoggedSlot, OpeSettings, Refusal, Rounds, evaluate};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::world::{ACTIONS, CONTEXTS, Distribution, Policies, UNIFORM, chance, hard, log, soft};

fn estimates(rounds: &Rounds) -> Vec<Estimate> {
    evaluate(rounds, &OpeSettings { resamples: 50, ..OpeSettings::default() }).unwrap().estimates
}

fn of(estimates: &[Estimate], estimator: Estimator) -> &Estimate {
    estimates.iter().find(|estimate| estimate.estimator == estimator).unwrap()
}

fn logged(logging: &Distribution, target: &Distribution, count: usize) -> Vec<Estimate> {
    let policies = Policies { logging: *logging, target: *target };
    estimates(&log(1, &policies, count, &OpeSettings::default(), &mut ChaCha8Rng::seed_from_u64(5)))
}

fn slot(propensity: f64, target: f64) -> LoggedSlot {
    let (leverage, leverage_switched) = (0.0, 0.0);
    LoggedSlot { reward: 1.0, propensity, target, expected: 0.5, expected_target: 0.5, leverage, leverage_switched }
}

fn rounds(slots: impl IntoIterator<Item = LoggedSlot>) -> Rounds {
    let mut rounds = Rounds::default();
    slots.into_iter().for_each(|slot| rounds.push(&[slot]).unwrap());
    rounds
}

#[test]
fn few_rounds_and_no_overlap_are_refused() {
    for estimate in logged(&UNIFORM, &UNIFORM, 29) {
        assert_eq!(estimate.outcome, Err(Refusal::FewRounds { rounds: 29 }));
    }
    for estimate in estimates(&rounds(vec![slot(0.5, 0.0); 100])) {
        assert_eq!(estimate.outcome, Err(Refusal::NoOverlap));
    }
    assert_eq!(evaluate(&Rounds::default(), &OpeSettings::default()), None);
}

#[test]
fn a_log_without_exploration_does_not_support_other_actions() {
    // The log always takes the action of `hard`, the target any action.
    for estimate in logged(&hard(), &UNIFORM, 400) {
        let refusal = estimate.outcome.unwrap_err();
        assert!(matches!(refusal, Refusal::Unsupported { mean_weight, slot: 1 } if mean_weight == 0.25), "{refusal}");
        assert!(refusal.to_string().contains("75 %"), "{refusal}");
    }
    // With the log's own policy as the target, all estimates are given.
    let same = logged(&hard(), &hard(), 400);
    assert!(same.iter().all(|estimate| estimate.outcome.is_ok()), "{same:?}");
    assert!(same.iter().all(|estimate| estimate.effective_sample_size == 400.0));
}

#[test]
fn wrong_propensities_are_detected() {
    // Each action is drawn with probability 1/4 and logged with 1/5.
    let wrong = rounds((0..4000).map(|round| slot(0.2, if round % 4 == 0 { 1.0 } else { 0.0 })));
    for estimate in estimates(&wrong) {
        assert!(matches!(estimate.outcome, Err(Refusal::WrongPropensities { slot: 1, .. })), "{estimate:?}");
    }
}

#[test]
fn a_low_effective_sample_size_leaves_only_bounded_estimates() {
    // The target's preferred action is rare in the log.
    let rare: Distribution = std::array::from_fn(|_| {
        std::array::from_fn(|action| if action == 0 { 0.005 } else { 0.995 / (ACTIONS - 1) as f64 })
    });
    let target: Distribution = [[1.0, 0.0, 0.0, 0.0]; CONTEXTS];
    let found = logged(&rare, &target, 2000);
    for estimator in [Estimator::Ips, Estimator::Snips, Estimator::Dr, Estimator::Sndr] {
        let estimate = of(&found, estimator);
        assert!(estimate.effective_sample_size < 30.0);
        assert!(matches!(estimate.outcome, Err(Refusal::FewEffective { rounds: 2000, .. })), "{estimate:?}");
    }
    assert!(of(&found, Estimator::Dm).outcome.is_ok());
    assert!(of(&found, Estimator::SwitchDr).outcome.is_ok());
}

#[test]
fn constant_rewards_are_refused() {
    // None of a hundred rounds that count was rewarded: the true value may still be above 0.
    let silent = |round: usize| LoggedSlot {
        reward: f64::from(u8::from(!round.is_multiple_of(2))),
        expected: 0.0,
        expected_target: 0.0,
        ..slot(0.5, if round.is_multiple_of(2) { 1.0 } else { 0.0 })
    };
    let found = estimates(&rounds((0..200).map(silent)));
    for estimator in [Estimator::Replay, Estimator::Ips, Estimator::Snips, Estimator::Dr] {
        assert_eq!(of(&found, estimator).outcome, Err(Refusal::NoVariation { value: 0.0 }));
    }
}

#[test]
fn replay_evaluates_deterministic_policies_on_uniform_logs() {
    let replay = |logging: &Distribution, target: &Distribution, count: usize| {
        of(&logged(logging, target, count), Estimator::Replay).outcome.clone()
    };
    assert!(replay(&UNIFORM, &hard(), 400).is_ok());
    assert_eq!(replay(&UNIFORM, &soft(1.0, chance), 400), Err(Refusal::NotDeterministic));
    assert!(matches!(replay(&UNIFORM, &hard(), 60), Err(Refusal::FewMatches { rounds: 60, .. })));
    assert!(matches!(replay(&soft(2.0, chance), &hard(), 400), Err(Refusal::UnevenMatches { .. })));
}

#[test]
fn invalid_rounds_are_refused_and_named() {
    let cases = [
        (slot(0.0, 0.5), "the logged propensity must be above 0"),
        (slot(1.5, 0.5), "the logged propensity"),
        (slot(f64::NAN, 0.5), "the logged propensity"),
        (slot(0.5, -0.1), "the target policy's probability must be from 0 to 1"),
        (LoggedSlot { reward: f64::INFINITY, ..slot(0.5, 0.5) }, "the reward must be finite"),
    ];
    for (slot, expected) in cases {
        let mut rounds = Rounds::default();
        let error: BanditError = rounds.push(&[slot]).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(rounds.is_empty());
    }
    assert!(Rounds::default().push(&[]).is_err());
}
