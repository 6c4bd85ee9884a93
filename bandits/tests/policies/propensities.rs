//! Propensities are the probabilities with which rankings are drawn.

use std::collections::HashMap;

use celeris_bandits::{
    EpsilonGreedy, Greedy, LinUcb, Policy, PolicySpec, PoolShare, Pooled, RegCb, SquareCb, Thompson,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::chi_square::assert_drawn_from;
use crate::scene::{Scene, all_rankings, recorded, shown};

const DRAWS: u64 = 200_000;

/// Scores with a tie, whose order must not change the propensities.
fn scene() -> Scene {
    Scene::scored(&[(0.2, 0.1), (0.9, 0.1), (0.9, 0.1), (0.5, 0.1)])
}

fn product(propensities: &[f64]) -> f64 {
    propensities.iter().product()
}

/// The closed form by definition, from joint probabilities of prefixes.
fn mixture_by_prefixes(share: f64, n: usize, policy: &[f64]) -> Vec<f64> {
    let uniform: Vec<f64> = (0..policy.len()).map(|slot| 1.0 / (n - slot) as f64).collect();
    let joint = |end: usize| share * product(&uniform[..end]) + (1.0 - share) * product(&policy[..end]);
    (0..policy.len()).map(|slot| joint(slot + 1) / joint(slot)).collect()
}

/// Every policy that draws and has closed forms, with several parameters and lengths of slate. No
/// ranking of them is too rare for the approximation of the test.
fn drawing() -> Vec<(PolicySpec, usize)> {
    [
        (r#"{"name": "epsilon_greedy", "epsilon": 0.05}"#, 1),
        (r#"{"name": "epsilon_greedy", "epsilon": 0.3}"#, 4),
        (r#"{"name": "epsilon_greedy", "epsilon": 0.8}"#, 3),
        (r#"{"name": "epsilon_greedy", "epsilon": 1}"#, 2),
        (r#"{"name": "softmax", "lambda": 0}"#, 4),
        (r#"{"name": "softmax", "lambda": 1}"#, 1),
        (r#"{"name": "softmax", "lambda": 1}"#, 3),
        (r#"{"name": "softmax", "lambda": 3}"#, 4),
        (r#"{"name": "squarecb", "gamma_scale": 10}"#, 1),
        (r#"{"name": "squarecb", "gamma_scale": 10}"#, 4),
        (r#"{"name": "squarecb", "gamma_scale": 20, "gamma_exponent": 0}"#, 3),
        (r#"{"name": "squarecb", "gamma_scale": 1, "gamma_exponent": 1}"#, 2),
        (r#"{"name": "squarecb", "gamma_scale": 0}"#, 3),
    ]
    .map(|(spec, k)| (serde_json::from_str(spec).unwrap(), k))
    .into()
}

/// How often each ranking is drawn.
fn counts(k: usize, mut draw: impl FnMut(usize) -> Vec<usize>) -> HashMap<Vec<usize>, u64> {
    let mut counts: HashMap<Vec<usize>, u64> = HashMap::new();
    for _ in 0..DRAWS {
        *counts.entry(draw(k)).or_default() += 1;
    }
    counts
}

#[test]
fn frequencies_of_slates_match_their_propensities() {
    let scene = scene();
    for (spec, k) in drawing() {
        let policy = spec.policy();
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let counts = counts(k, |k| policy.choose(&scene.candidates(), k, &mut rng).unwrap());
        let probability = |ranking: &Vec<usize>| product(&policy.propensities(&scene.candidates(), ranking).unwrap());
        let expected: Vec<_> = all_rankings(4, k).into_iter().map(|r| (r.clone(), probability(&r))).collect();
        assert_drawn_from(&counts, &expected);
    }
}

#[test]
fn every_slot_has_its_propensity_given_the_slots_above() {
    let scene = scene();
    for (spec, k) in drawing() {
        let policy = spec.policy();
        let mut rng = ChaCha8Rng::seed_from_u64(12);
        // For each prefix, how often each candidate came next.
        let mut next: HashMap<Vec<usize>, HashMap<usize, u64>> = HashMap::new();
        for (ranking, count) in counts(k, |k| policy.choose(&scene.candidates(), k, &mut rng).unwrap()) {
            for slot in 0..k.min(3) {
                *next.entry(ranking[..slot].to_vec()).or_default().entry(ranking[slot]).or_default() += count;
            }
        }
        assert_eq!(next.len(), [1, 5, 17, 17][k - 1], "every prefix was drawn");
        for (prefix, counts) in next {
            let propensity = |candidate: usize| {
                let ranking = [prefix.as_slice(), &[candidate]].concat();
                policy.propensities(&scene.candidates(), &ranking).unwrap()[prefix.len()]
            };
            let remaining = (0..4).filter(|candidate| !prefix.contains(candidate));
            assert_drawn_from(
                &counts,
                &remaining.map(|candidate| (candidate, propensity(candidate))).collect::<Vec<_>>(),
            );
        }
    }
}

#[test]
fn slots_have_the_probabilities_of_the_definitions() {
    let scene = scene();
    let propensity = |spec: &str, ranking: &[usize]| {
        let spec: PolicySpec = serde_json::from_str(spec).unwrap();
        spec.policy().propensities(&scene.candidates(), ranking).unwrap()
    };
    let assert_close = |got: Vec<f64>, want: &[f64]| {
        // The scores are `f32`, and written here as decimals.
        assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-6), "{got:?} for {want:?}");
        assert_eq!(got.len(), want.len());
    };
    // Scores 0.2, 0.9, 0.9, 0.5: the earlier of the two best counts as the best.
    assert_close(propensity(r#"{"name": "epsilon_greedy", "epsilon": 0.4}"#, &[1, 0, 2]), &[0.7, 0.4 / 3.0, 0.8]);
    let e = |score: f64| (2.0 * score).exp();
    assert_close(
        propensity(r#"{"name": "softmax", "lambda": 2}"#, &[3, 1, 0]),
        &[e(0.5) / (e(0.2) + 2.0 * e(0.9) + e(0.5)), e(0.9) / (e(0.2) + 2.0 * e(0.9)), e(0.2) / (e(0.2) + e(0.9))],
    );
    // The user has four observations, so it is the fifth round.
    let gamma = 10.0 * 5.0_f64.sqrt();
    let of_best = 1.0 - 1.0 / (3.0 + gamma * 0.4) - 1.0 / (3.0 + gamma * 0.7);
    assert_close(propensity(r#""squarecb""#, &[2, 1, 0]), &[0.25, of_best, 1.0 / (2.0 + gamma * 0.3)]);
}

#[test]
fn propensities_of_long_slates_with_extreme_scores_stay_valid() {
    let estimates: Vec<(f32, f32)> = (0..400).map(|i| ((i * 7919 % 400) as f32 * 5.0 - 1000.0, 1.0)).collect();
    let scene = Scene::scored(&estimates);
    for spec in [r#"{"name": "softmax", "lambda": 100}"#, r#"{"name": "softmax", "lambda": 0.001}"#, r#""squarecb""#] {
        let spec: PolicySpec = serde_json::from_str(spec).unwrap();
        let ranking = spec.policy().choose(&scene.candidates(), 400, &mut ChaCha8Rng::seed_from_u64(15)).unwrap();
        let propensities = spec.policy().propensities(&scene.candidates(), &ranking).unwrap();
        assert!(propensities.iter().all(|propensity| *propensity > 0.0 && *propensity <= 1.0), "{spec:?}");
        assert!((propensities[399] - 1.0).abs() < 1e-12, "the last candidate is certain");
    }
}

#[test]
fn frequencies_of_pooled_rankings_match_their_propensities() {
    let scene = scene();
    let (epsilon, ucb, default) = (EpsilonGreedy::new(0.3).unwrap(), LinUcb::new(2.0).unwrap(), PolicySpec::default());
    let (regcb, squarecb) = (RegCb::new(0.5).unwrap(), SquareCb::default());
    for (share, policy) in [
        (0.2, &epsilon as &dyn Policy),
        (0.5, &Greedy),
        (0.3, &ucb),
        (0.1, &regcb),
        (0.1, &squarecb),
        (0.05, default.policy()),
        (1.0, &Greedy),
    ] {
        let pooled = Pooled { share: PoolShare::new(share).unwrap(), policy };
        let mut rng = ChaCha8Rng::seed_from_u64(13);
        let mut counts: HashMap<Vec<usize>, u64> = HashMap::new();
        let mut pools = 0;
        for _ in 0..DRAWS {
            let ranking = pooled.draw(&scene.candidates(), 3, &mut rng).unwrap();
            *counts.entry(shown(&ranking.slots)).or_default() += 1;
            pools += u64::from(ranking.pool);
        }
        let expected: Vec<_> = all_rankings(4, 3)
            .into_iter()
            .map(|ranking| {
                let of_policy = policy.propensities(&scene.candidates(), &ranking).unwrap();
                (ranking, product(&mixture_by_prefixes(share, 4, &of_policy)))
            })
            .collect();
        assert_drawn_from(&counts, &expected);
        // Four standard deviations of a binomial count; at share 1 there is no deviation.
        let mean = share * DRAWS as f64;
        assert!((pools as f64 - mean).abs() <= 4.0 * (mean * (1.0 - share)).sqrt(), "{pools} pools at {share}");
    }
}

#[test]
fn the_pool_mixes_joint_probabilities_for_any_origin() {
    let scene = scene();
    let epsilon = EpsilonGreedy::new(0.3).unwrap();
    for policy in [&epsilon as &dyn Policy, &Greedy] {
        let pooled = Pooled { share: PoolShare::new(0.25).unwrap(), policy };
        let mut rng = ChaCha8Rng::seed_from_u64(14);
        for _ in 0..2000 {
            let ranking = pooled.draw(&scene.candidates(), 4, &mut rng).unwrap();
            let of_policy = policy.propensities(&scene.candidates(), &shown(&ranking.slots)).unwrap();
            for (got, want) in recorded(&ranking).unwrap().iter().zip(mixture_by_prefixes(0.25, 4, &of_policy)) {
                // Half a unit in the last place of f32 near 1, and some tolerance for another order
                // of multiplications.
                assert!((f64::from(*got) - want).abs() < 1e-7, "{got} for {want} in {ranking:?}");
            }
        }
    }
}

#[test]
fn long_rankings_do_not_underflow() {
    let scene = Scene::random(2000, 2, 5);
    let share = PoolShare::new(0.01).unwrap();
    let epsilon = EpsilonGreedy::new(0.05).unwrap();
    let mut pools = 0;
    for seed in 0..300 {
        let pooled = Pooled { share, policy: if seed % 2 == 0 { &epsilon } else { &Greedy } };
        let ranking = pooled.draw(&scene.candidates(), 500, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        assert!(recorded(&ranking).unwrap().iter().all(|propensity| *propensity > 0.0 && *propensity <= 1.0));
        if ranking.pool {
            pools += 1;
            // After hundreds of unlikely slots it is almost certain that the pool drew: the rest
            // are uniform.
            let last = f64::from(ranking.slots[499].propensity.unwrap());
            assert!((last * 1501.0 - 1.0).abs() < 1e-6, "{last}");
        }
    }
    assert!(pools > 0, "no seed fell into the pool, so nothing is tested");
}

#[test]
fn without_a_share_the_policy_is_unchanged() {
    let scene = scene();
    let policy = EpsilonGreedy::new(0.3).unwrap();
    let pooled = Pooled { share: PoolShare::new(0.0).unwrap(), policy: &policy };
    for ranking in all_rankings(4, 4) {
        assert_eq!(
            pooled.propensities(&scene.candidates(), &ranking),
            policy.propensities(&scene.candidates(), &ranking)
        );
    }
}

#[test]
fn deterministic_policies_give_all_probability_to_one_ranking() {
    let scene = scene();
    for policy in [&Greedy as &dyn Policy, &LinUcb::new(1.5).unwrap(), &RegCb::new(0.5).unwrap()] {
        let slots = policy.rank(&scene.candidates(), 3, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
        assert!(slots.iter().all(|slot| slot.propensity == Some(1.0)));
        for ranking in all_rankings(4, 3) {
            let probability = product(&policy.propensities(&scene.candidates(), &ranking).unwrap());
            assert_eq!(probability, f64::from(ranking == shown(&slots)), "{ranking:?}");
        }
    }
}

#[test]
fn the_default_policy_keeps_its_floor_in_every_slot() {
    let scene = Scene::random(40, 3, 6);
    let default = PolicySpec::default();
    let pooled = Pooled { share: PoolShare::default(), policy: default.policy() };
    let mut rng = ChaCha8Rng::seed_from_u64(16);
    for _ in 0..2000 {
        let ranking = pooled.draw(&scene.candidates(), 40, &mut rng).unwrap();
        for (slot, propensity) in recorded(&ranking).unwrap().into_iter().enumerate() {
            let floor = EpsilonGreedy::DEFAULT_EPSILON / (40 - slot) as f64;
            // Propensities are recorded as `f32`.
            assert!(f64::from(propensity) >= floor * (1.0 - 1e-6), "{propensity} in slot {slot}, floor {floor}");
        }
    }
    let worst = Greedy.choose(&scene.candidates(), 40, &mut rng).unwrap()[39];
    let first = pooled.propensities(&scene.candidates(), &[worst]).unwrap()[0];
    assert!((first - (0.01 + 0.99 * 0.05) / 40.0).abs() < 1e-12, "{first}");
}

#[test]
fn without_a_closed_form_there_is_no_propensity_in_or_out_of_the_pool() {
    let scene = scene();
    let thompson = Thompson::default();
    let pooled = Pooled { share: PoolShare::new(0.5).unwrap(), policy: &thompson };
    let mut pools = 0;
    for seed in 0..20 {
        let ranking = pooled.draw(&scene.candidates(), 4, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        pools += u32::from(ranking.pool);
        assert!(ranking.slots.iter().all(|slot| slot.propensity.is_none()));
    }
    assert!(pools > 0 && pools < 20);
}
