//! Chosen candidates, compared with oracles that sort and search all candidates.

use celeris_bandits::{BanditError, EpsilonGreedy, Greedy, LinUcb, Policy, PolicySpec, PoolShare, Pooled, RegCb};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::scene::{Scene, shown};

fn every_policy() -> Vec<PolicySpec> {
    PolicySpec::NAMES.iter().map(|name| PolicySpec::named(name).unwrap()).collect()
}

/// The best `k` by a stable sort of everything.
fn sorted(values: &[f64], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|left, right| values[*right].partial_cmp(&values[*left]).unwrap());
    order.truncate(k);
    order
}

/// Epsilon-greedy by searching the remaining candidates at every slot, O(n k), with the same random
/// numbers.
fn epsilon_walk(scores: &[f64], epsilon: f64, k: usize, rng: &mut ChaCha8Rng) -> Vec<usize> {
    let mut left: Vec<usize> = (0..scores.len()).collect();
    let mut ranking = Vec::new();
    while ranking.len() < k && !left.is_empty() {
        let position = if rng.random::<f64>() < epsilon {
            rng.random_range(0..left.len())
        } else {
            let best = |a: &usize, b: &usize| {
                scores[left[*b]].partial_cmp(&scores[left[*a]]).unwrap().then(left[*a].cmp(&left[*b]))
            };
            (0..left.len()).min_by(best).unwrap()
        };
        ranking.push(left.swap_remove(position));
    }
    ranking
}

/// Few distinct values, including both zeros, so that ties are common.
fn estimates() -> impl Strategy<Value = Vec<(f32, f32)>> {
    let score = prop_oneof![(-3_i8..=3).prop_map(|score| f32::from(score) / 2.0), Just(-0.0), -1e30_f32..1e30];
    prop::collection::vec((score, (0_u8..4).prop_map(|width| f32::from(width) / 4.0)), 1..60)
}

/// Short rankings of many candidates, and lengths above the number of candidates.
fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![0_usize..8, 0_usize..70]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        ..ProptestConfig::default()
    })]

    #[test]
    fn greedy_and_lin_ucb_agree_with_a_full_sort(estimates in estimates(), k in lengths(), alpha in 0.0..100.0) {
        let scene = Scene::scored(&estimates);
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let scores: Vec<f64> = estimates.iter().map(|(score, _)| f64::from(*score)).collect();
        prop_assert_eq!(Greedy.choose(&scene.candidates(), k, &mut rng).unwrap(), sorted(&scores, k));
        let bounds: Vec<f64> = estimates.iter().map(|(s, width)| f64::from(*s) + alpha * f64::from(*width)).collect();
        let policy = LinUcb::new(alpha).unwrap();
        prop_assert_eq!(policy.choose(&scene.candidates(), k, &mut rng).unwrap(), sorted(&bounds, k));
    }

    #[test]
    fn epsilon_greedy_agrees_with_a_naive_walk(
        estimates in estimates(), k in lengths(), epsilon in 0.0..=1.0, seed: u64,
    ) {
        let scene = Scene::scored(&estimates);
        let scores: Vec<f64> = estimates.iter().map(|(score, _)| f64::from(*score)).collect();
        let policy = EpsilonGreedy::new(epsilon).unwrap();
        let ours = policy.choose(&scene.candidates(), k, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        prop_assert_eq!(ours, epsilon_walk(&scores, epsilon, k, &mut ChaCha8Rng::seed_from_u64(seed)));
    }

    #[test]
    fn every_ranking_is_min_k_n_distinct_candidates(n in 0_usize..40, k in 0_usize..50, seed: u64) {
        let scene = Scene::random(n, 3, seed);
        for spec in every_policy() {
            for share in [0.0, 1.0] {
                let pooled = Pooled { share: PoolShare::new(share).unwrap(), policy: spec.policy() };
                let ranking = pooled.draw(&scene.candidates(), k, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
                let mut shown = shown(&ranking.slots);
                prop_assert_eq!(shown.len(), k.min(n));
                shown.sort_unstable();
                shown.dedup();
                prop_assert_eq!(shown.len(), k.min(n));
                prop_assert!(shown.iter().all(|candidate| *candidate < n));
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_ranking_and_another_one_does_not() {
    let scene = Scene::random(50, 4, 3);
    for spec in every_policy() {
        let pooled = Pooled { share: PoolShare::new(0.5).unwrap(), policy: spec.policy() };
        let draw = |seed| pooled.draw(&scene.candidates(), 20, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        let rankings: Vec<_> = (0..8).map(draw).collect();
        assert_eq!(rankings, (0..8).map(draw).collect::<Vec<_>>());
        assert!(rankings.iter().any(|ranking| *ranking != rankings[0]), "{spec:?}");
    }
}

#[test]
fn deterministic_policies_ignore_the_seed_and_keep_ties_in_order() {
    let scene = Scene::scored(&[(0.5, 0.25), (0.75, 0.0), (0.5, 0.25), (0.75, 0.0), (-0.0, 0.0), (0.0, 0.0)]);
    let ucb = LinUcb::new(1.0).unwrap();
    for seed in 0..5 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        assert_eq!(shown(&Greedy.rank(&scene.candidates(), 6, &mut rng).unwrap()), [1, 3, 0, 2, 4, 5]);
        assert_eq!(shown(&ucb.rank(&scene.candidates(), 4, &mut rng).unwrap()), [0, 1, 2, 3]);
    }
}

#[test]
fn lin_ucb_weights_uncertainty_by_alpha() {
    let scene = Scene::scored(&[(1.0, 0.1), (0.8, 0.3)]);
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut first = |alpha| LinUcb::new(alpha).unwrap().choose(&scene.candidates(), 1, &mut rng).unwrap()[0];
    assert_eq!(first(0.0), 0);
    assert_eq!(first(0.9), 0);
    assert_eq!(first(1.1), 1);
}

#[test]
fn regcb_bounds_match_the_tolerated_loss() {
    let scene = Scene::random(6, 3, 8);
    let (learning, posterior) = (&scene.learning, &scene.posterior);
    let gram_inverse = posterior.gram_inverse();
    let row = &scene.features[..3];
    let times: Vec<f64> =
        gram_inverse.chunks_exact(3).map(|line| line.iter().zip(row).map(|(a, x)| a * f64::from(*x)).sum()).collect();
    let variance: f64 = times.iter().zip(row).map(|(a, x)| a * f64::from(*x)).sum();
    // Two candidates, and four observations so far.
    let mellowness = 0.7;
    let tolerated = learning.noise_variance() * mellowness * (2.0_f64 * 5.0).ln();
    // Moving the weights by step along A^-1 x adds a loss of step^2 x^T A^-1 x and a score of step * x^T A^-1 x.
    let step = (tolerated / variance).sqrt();
    let bound = f64::from(scene.scores[0]) + step * variance;
    let first = |rival: f64| {
        let pair = Scene::scored(&[(scene.scores[0], scene.std_errors[0]), (rival as f32, 0.0)]);
        RegCb::new(mellowness).unwrap().choose(&pair.candidates(), 1, &mut ChaCha8Rng::seed_from_u64(0)).unwrap()[0]
    };
    // Scores and standard errors are `f32`, those of the state accurate to some 1e-6.
    assert_eq!(first(bound - 1e-4), 0);
    assert_eq!(first(bound + 1e-4), 1);
}

#[test]
fn candidates_without_a_finite_estimate_are_named() {
    let mut scene = Scene::random(5, 2, 1);
    scene.scores[3] = f32::NAN;
    for spec in every_policy() {
        let refused = spec.policy().rank(&scene.candidates(), 2, &mut ChaCha8Rng::seed_from_u64(0)).unwrap_err();
        assert_eq!(refused, BanditError::NonFinite { what: "score", candidate: 3 });
    }
    scene.scores[3] = 0.0;
    scene.std_errors[1] = f32::INFINITY;
    let pooled = Pooled { share: PoolShare::default(), policy: &Greedy };
    let refused = pooled.draw(&scene.candidates(), 2, &mut ChaCha8Rng::seed_from_u64(0)).unwrap_err();
    assert_eq!(refused, BanditError::NonFinite { what: "std_error", candidate: 1 });
}
