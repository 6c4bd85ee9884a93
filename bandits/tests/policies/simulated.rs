//! Simulated propensities match the frequencies of Thompson sampling, within their standard errors.

use std::collections::HashMap;

use celeris_bandits::simulation::DRAWS;
use celeris_bandits::{
    BanditError, EpsilonGreedy, Greedy, Origin, Policy, PoolShare, Pooled, Propensity, Simulation, SquareCb, Thompson,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::chi_square::{assert_drawn_from, assert_same_distribution};
use crate::scene::{Scene, all_rankings, shown};

const DECISIONS: u64 = 200_000;

/// Number of simulations whose samples together are about as many as the decisions.
const SIMULATIONS: u64 = 200;

fn estimate(policy: &dyn Policy, scene: &Scene, ranking: &[usize], origin: Origin, seed: u64) -> Vec<Propensity> {
    policy.estimate_propensities(&scene.candidates(), ranking, Simulation { seed, origin }).unwrap()
}

/// The last slot's propensity, from all simulations together.
fn pooled_estimate(scene: &Scene, ranking: &[usize]) -> f64 {
    let last = |seed| estimate(&Thompson::default(), scene, ranking, Origin::Given, seed)[ranking.len() - 1].value;
    (0..SIMULATIONS).map(last).sum::<f64>() / SIMULATIONS as f64
}

#[test]
fn frequencies_of_slots_match_the_simulation() {
    let scene = Scene::random(4, 3, 30);
    let thompson = Thompson::default();
    let mut rng = ChaCha8Rng::seed_from_u64(31);
    let mut next: HashMap<Vec<usize>, HashMap<usize, u64>> = HashMap::new();
    for _ in 0..DECISIONS {
        let ranking = thompson.choose(&scene.candidates(), 3, &mut rng).unwrap();
        for slot in 0..3 {
            *next.entry(ranking[..slot].to_vec()).or_default().entry(ranking[slot]).or_default() += 1;
        }
    }
    for (prefix, drawn) in next {
        let wins = |candidate: usize| {
            let ranking = [prefix.as_slice(), &[candidate]].concat();
            (pooled_estimate(&scene, &ranking) * (SIMULATIONS * DRAWS as u64) as f64).round() as u64
        };
        let simulated =
            (0..4).filter(|candidate| !prefix.contains(candidate)).map(|candidate| (candidate, wins(candidate)));
        let simulated: HashMap<usize, u64> = simulated.collect();
        assert_eq!(simulated.values().sum::<u64>(), SIMULATIONS * DRAWS as u64, "one sample serves all candidates");
        assert_same_distribution(&drawn, &simulated);
    }
}

#[test]
fn errors_of_estimates_match_their_standard_errors() {
    let scene = Scene::random(6, 3, 32);
    let ranking = Greedy.choose(&scene.candidates(), 4, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
    let truth: Vec<f64> = (1..=4).map(|end| pooled_estimate(&scene, &ranking[..end])).collect();
    let mut squares = [0.0; 4];
    for seed in 0..400 {
        // Other seeds than those of the reference.
        let estimates = estimate(&Thompson::default(), &scene, &ranking, Origin::Given, 1_000_000 + seed);
        for (slot, estimate) in estimates.iter().enumerate() {
            squares[slot] += ((estimate.value - truth[slot]) / estimate.std_error).powi(2) / 400.0;
        }
    }
    // The mean of 400 squares of standard normal numbers is 1 with a standard deviation of 0.07.
    assert!(squares.iter().all(|mean| (0.7..1.3).contains(mean)), "{squares:?}");
}

#[test]
fn importance_weights_of_drawn_rankings_are_unbiased() {
    const SEEDS: u64 = 4000;
    let scene = Scene::random(5, 2, 33);
    let thompson = Thompson::new(0.45).unwrap();
    let mean = |candidate: usize, origin: Origin, seeds: std::ops::Range<u64>, of: fn(f64) -> f64| {
        let value = |seed| of(estimate(&thompson, &scene, &[candidate], origin, seed)[0].value);
        seeds.map(value).sum::<f64>() / SEEDS as f64
    };
    let truth: Vec<f64> = (0..5).map(|candidate| mean(candidate, Origin::Given, 0..SEEDS, |value| value)).collect();
    let seldom = (0..5).filter(|candidate| (0.005..0.05).contains(&truth[*candidate])).collect::<Vec<_>>();
    assert!(!seldom.is_empty(), "no candidate is rare, so the hard case is not tested: {truth:?}");
    for candidate in seldom {
        // Shown with probability p and weighted by 1 / p, a candidate has mean weight 1.
        let weight = truth[candidate] * mean(candidate, Origin::Drawn, SEEDS..2 * SEEDS, |value| 1.0 / value);
        // About five standard errors of both means together; without the realised draw the error is
        // 2 to 20 %.
        let tolerance = 5.0 * (2.0 / (truth[candidate] * (SEEDS * DRAWS as u64) as f64)).sqrt();
        assert!((weight - 1.0).abs() < tolerance, "{weight} ± {tolerance} for {candidate} at {}", truth[candidate]);
    }
}

#[test]
fn estimates_include_the_pool() {
    let scene = Scene::random(4, 3, 35);
    let thompson = Thompson::default();
    let pooled = Pooled { share: PoolShare::new(0.3).unwrap(), policy: &thompson };
    let mut rng = ChaCha8Rng::seed_from_u64(36);
    let mut counts: HashMap<Vec<usize>, u64> = HashMap::new();
    for _ in 0..DECISIONS {
        *counts.entry(shown(&pooled.draw(&scene.candidates(), 2, &mut rng).unwrap().slots)).or_default() += 1;
    }
    let mut expected = Vec::new();
    for ranking in all_rankings(4, 2) {
        let of_policy = [pooled_estimate(&scene, &ranking[..1]), pooled_estimate(&scene, &ranking)];
        let joint = 0.3 / 12.0 + 0.7 * of_policy[0] * of_policy[1];
        let first = 0.3 / 4.0 + 0.7 * of_policy[0];
        let simulation = Simulation { seed: 77, origin: Origin::Given };
        let estimates = pooled.estimate_propensities(&scene.candidates(), &ranking, simulation).unwrap();
        for (estimate, truth) in estimates.iter().zip([first, joint / first]) {
            assert!(
                (estimate.value - truth).abs() < 4.0 * estimate.std_error,
                "{estimate:?} for {truth} of {ranking:?}"
            );
        }
        expected.push((ranking, joint));
    }
    // The expectation is a sample too, about as large as that of the decisions, which doubles the
    // statistic; so half as many decisions are compared.
    let halved = counts.into_iter().map(|(ranking, count)| (ranking, count / 2)).collect();
    assert_drawn_from(&halved, &expected);
}

#[test]
fn a_simulation_is_reproducible_and_exact_if_possible() {
    let scene = Scene::random(5, 3, 37);
    let ranking = [3, 1, 4, 0, 2];
    let thompson = Thompson::default();
    let first = estimate(&thompson, &scene, &ranking, Origin::Drawn, 5);
    assert_eq!(first, estimate(&thompson, &scene, &ranking, Origin::Drawn, 5));
    assert_ne!(first, estimate(&thompson, &scene, &ranking, Origin::Drawn, 6));
    assert_eq!(first[4], Propensity::exact(1.0), "the last candidate is certain");
    assert!(first[..4].iter().all(|propensity| propensity.value > 0.0 && propensity.std_error > 0.0));
    let closed = EpsilonGreedy::default();
    let exact = closed.propensities(&scene.candidates(), &ranking).unwrap();
    let estimates = estimate(&closed, &scene, &ranking, Origin::Drawn, 5);
    assert_eq!(estimates, exact.into_iter().map(Propensity::exact).collect::<Vec<_>>());
}

#[test]
fn candidates_that_tie_win_in_their_order() {
    let mut scene = Scene::random(3, 2, 38);
    let row = [0.4, 1.0];
    scene.features = row.repeat(3);
    scene.offsets = vec![0.25; 3];
    let simulated = estimate(&Thompson::default(), &scene, &[0, 2, 1], Origin::Given, 1);
    let values: Vec<f64> = simulated.iter().map(|propensity| propensity.value).collect();
    assert_eq!(values, [1.0, 0.0, 1.0]);
    let drawn = Thompson::default().choose(&scene.candidates(), 3, &mut ChaCha8Rng::seed_from_u64(2)).unwrap();
    assert_eq!(drawn, [0, 1, 2]);
}

#[test]
fn identical_candidates_have_exact_propensities() {
    let mut scene = Scene::random(4, 2, 40);
    scene.features = [0.4, 1.0].repeat(4);
    scene.offsets = vec![0.25; 4];
    let thompson = Thompson::default();
    let drawn = thompson.choose(&scene.candidates(), 3, &mut ChaCha8Rng::seed_from_u64(2)).unwrap();
    assert_eq!(estimate(&thompson, &scene, &drawn, Origin::Drawn, 1), [Propensity::exact(1.0); 3]);
    let backwards = estimate(&thompson, &scene, &[3, 0], Origin::Given, 1);
    assert_eq!(backwards, [Propensity::exact(0.0), Propensity::exact(1.0)]);
    // If one candidate differs, propensities are uncertain until it is shown.
    scene.offsets[2] = 0.2;
    let one_differs = estimate(&thompson, &scene, &[0, 2, 1], Origin::Given, 1);
    assert!(one_differs[..2].iter().all(|propensity| propensity.std_error > 0.0), "{one_differs:?}");
    assert_eq!(one_differs[2], Propensity::exact(1.0));
}

#[test]
fn without_width_thompson_equals_greedy_with_its_propensities() {
    let thompson = Thompson::new(0.0).unwrap();
    for seed in 0..20 {
        let mut scene = Scene::random(6, 3, 400 + seed);
        scene.scores[4] = scene.scores[1];
        let slots = thompson.rank(&scene.candidates(), 6, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        assert!(slots.iter().all(|slot| slot.propensity == Some(1.0)), "{slots:?}");
        let greedy = Greedy.choose(&scene.candidates(), 6, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        assert_eq!(shown(&slots), greedy);
        let simulated = estimate(&thompson, &scene, &greedy, Origin::Drawn, seed);
        assert_eq!(simulated, [Propensity::exact(1.0); 6]);
        let reversed: Vec<usize> = greedy.iter().rev().copied().collect();
        assert_eq!(estimate(&thompson, &scene, &reversed, Origin::Given, seed)[0], Propensity::exact(0.0));
    }
}

// Scores that are mathematically equal come from different additions, so rounding determines the
// best.
#[test]
fn near_ties_are_simulated_as_drawn() {
    const DIM: usize = 6;
    // So narrow that every draw equals the mean, to the bit.
    let narrow = Thompson::new(1e-30).unwrap();
    for seed in 0..100 {
        let mut scene = Scene::random(5, DIM, 500 + seed);
        let row = scene.features[..DIM].to_vec();
        let mean = scene.posterior.weights();
        for (shift, features) in scene.features.chunks_exact_mut(DIM).enumerate() {
            let shifted = |index: usize| (index + shift) % DIM;
            // The products with the weights are those of the first candidate in another order, up
            // to their last bits.
            for (index, feature) in features.iter_mut().enumerate() {
                *feature = (f64::from(row[shifted(index)]) * mean[shifted(index)] / mean[index]) as f32;
            }
        }
        scene.offsets = vec![0.5; 5];
        let drawn = narrow.choose(&scene.candidates(), 4, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        let simulated = estimate(&narrow, &scene, &drawn, Origin::Drawn, seed);
        assert!(simulated.iter().all(|propensity| propensity.value == 1.0), "{drawn:?} at {simulated:?}");
    }
}

#[test]
fn non_finite_features_are_named() {
    let mut scene = Scene::random(3, 2, 39);
    scene.features[4] = f32::NAN;
    let simulation = Simulation { seed: 1, origin: Origin::Given };
    let thompson = Thompson::new(100.0).unwrap();
    let refused = Err(BanditError::NonFinite { what: "drawn score", candidate: 2 });
    assert_eq!(thompson.estimate_propensities(&scene.candidates(), &[0], simulation), refused);
    let drawn = thompson.choose(&scene.candidates(), 1, &mut ChaCha8Rng::seed_from_u64(2));
    assert_eq!(drawn.map(drop), refused.map(drop));
}

#[test]
fn next_slot_probabilities_equal_separate_estimates() {
    let scene = Scene::random(5, 3, 41);
    let (thompson, squarecb) = (Thompson::default(), SquareCb::default());
    for policy in [&thompson as &dyn Policy, &Thompson::new(0.0).unwrap(), &squarecb] {
        for above in [&[][..], &[2], &[4, 0]] {
            let simulation = Simulation { seed: 8, origin: Origin::Evaluated };
            let next = policy.estimate_next_slot(&scene.candidates(), above, simulation).unwrap();
            for (candidate, probability) in next.iter().enumerate().filter(|(candidate, _)| !above.contains(candidate))
            {
                let ranking = [above, &[candidate]].concat();
                let alone = estimate(policy, &scene, &ranking, Origin::Evaluated, 8)[above.len()];
                assert_eq!(*probability, alone.value, "{candidate} below {above:?}");
            }
            assert!(above.iter().all(|shown| next[*shown] == 0.0));
        }
    }
}

#[test]
fn an_evaluation_samples_independently_of_the_log_and_slot_by_slot() {
    let scene = Scene::random(5, 3, 42);
    let thompson = Thompson::default();
    let of = |origin, ranking: &[usize]| estimate(&thompson, &scene, ranking, origin, 9)[0].value;
    let wins = |value: f64| (value * DRAWS as f64).round();
    let logged = (of(Origin::Given, &[0]), of(Origin::Given, &[0, 1]));
    assert_eq!(logged.0, logged.1, "one sample of the log serves all slots");
    let evaluated = (of(Origin::Evaluated, &[0]), of(Origin::Evaluated, &[0, 1]));
    assert_ne!(wins(evaluated.0), wins(logged.0));
    assert_ne!(wins(evaluated.0), wins(evaluated.1));
}
