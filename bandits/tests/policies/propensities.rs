//! Propensities are the probabilities with which rankings are drawn.

use std::collections::HashMap;

use celeris_bandits::{EpsilonGreedy, Greedy, LinUcb, Policy, PoolShare, Pooled, Thompson};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::chi_square::assert_drawn_from;
use crate::scene::{Scene, all_rankings, recorded, shown};

const DRAWS: u64 = 200_000;

/// Scores with a tie among them: its order must not unsettle the propensities.
fn scene() -> Scene {
    Scene::scored(&[(0.2, 0.1), (0.9, 0.1), (0.9, 0.1), (0.5, 0.1)])
}

fn product(propensities: &[f64]) -> f64 {
    propensities.iter().product()
}

/// The closed form as the definition has it: by joint probabilities of prefixes.
fn mixture_by_prefixes(share: f64, n: usize, policy: &[f64]) -> Vec<f64> {
    let uniform: Vec<f64> = (0..policy.len()).map(|slot| 1.0 / (n - slot) as f64).collect();
    let joint = |end: usize| share * product(&uniform[..end]) + (1.0 - share) * product(&policy[..end]);
    (0..policy.len()).map(|slot| joint(slot + 1) / joint(slot)).collect()
}

#[test]
fn epsilon_greedy_draws_rankings_as_often_as_it_says() {
    let scene = scene();
    for (epsilon, k) in [(0.3, 4), (0.8, 3), (1.0, 2)] {
        let policy = EpsilonGreedy::new(epsilon).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut counts: HashMap<Vec<usize>, u64> = HashMap::new();
        for _ in 0..DRAWS {
            *counts.entry(policy.choose(&scene.candidates(), k, &mut rng).unwrap()).or_default() += 1;
        }
        let probability = |ranking: &Vec<usize>| product(&policy.propensities(&scene.candidates(), ranking).unwrap());
        let expected: Vec<_> = all_rankings(4, k).into_iter().map(|r| (r.clone(), probability(&r))).collect();
        assert_drawn_from(&counts, &expected);
    }
}

#[test]
fn every_slot_of_epsilon_greedy_has_its_conditional_frequency() {
    let scene = scene();
    let policy = EpsilonGreedy::new(0.4).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    // For each prefix: how often each candidate came next.
    let mut next: HashMap<Vec<usize>, HashMap<usize, u64>> = HashMap::new();
    for _ in 0..DRAWS {
        let ranking = policy.choose(&scene.candidates(), 3, &mut rng).unwrap();
        for slot in 0..3 {
            *next.entry(ranking[..slot].to_vec()).or_default().entry(ranking[slot]).or_default() += 1;
        }
    }
    assert_eq!(next.len(), 1 + 4 + 12);
    for (prefix, counts) in next {
        let remaining = (0..4).filter(|candidate| !prefix.contains(candidate));
        let best = [1, 2, 3, 0].into_iter().find(|candidate| !prefix.contains(candidate)).unwrap();
        let floor = 0.4 / (4 - prefix.len()) as f64;
        let expected: Vec<_> =
            remaining.map(|candidate| (candidate, if candidate == best { 0.6 + floor } else { floor })).collect();
        assert_drawn_from(&counts, &expected);
    }
}

#[test]
fn pooled_rankings_are_drawn_as_often_as_recorded() {
    let scene = scene();
    let (epsilon, ucb) = (EpsilonGreedy::new(0.3).unwrap(), LinUcb::new(2.0).unwrap());
    for (share, policy) in [(0.2, &epsilon as &dyn Policy), (0.5, &Greedy), (0.3, &ucb), (1.0, &Greedy)] {
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
fn the_pool_mixes_joint_probabilities_whoever_drew() {
    let scene = scene();
    let epsilon = EpsilonGreedy::new(0.3).unwrap();
    for policy in [&epsilon as &dyn Policy, &Greedy] {
        let pooled = Pooled { share: PoolShare::new(0.25).unwrap(), policy };
        let mut rng = ChaCha8Rng::seed_from_u64(14);
        for _ in 0..2000 {
            let ranking = pooled.draw(&scene.candidates(), 4, &mut rng).unwrap();
            let of_policy = policy.propensities(&scene.candidates(), &shown(&ranking.slots)).unwrap();
            for (got, want) in recorded(&ranking).unwrap().iter().zip(mixture_by_prefixes(0.25, 4, &of_policy)) {
                // Half a unit in the last place of f32 near 1, and a little for the other order of multiplications.
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
            // Hundreds of unlikely slots leave no doubt that the pool drew: the rest are uniform.
            let last = f64::from(ranking.slots[499].propensity.unwrap());
            assert!((last * 1501.0 - 1.0).abs() < 1e-6, "{last}");
        }
    }
    assert!(pools > 0, "no seed fell into the pool, so the test shows nothing");
}

#[test]
fn without_a_share_the_policy_is_untouched() {
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
    for policy in [&Greedy as &dyn Policy, &LinUcb::new(1.5).unwrap()] {
        let slots = policy.rank(&scene.candidates(), 3, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
        assert!(slots.iter().all(|slot| slot.propensity == Some(1.0)));
        for ranking in all_rankings(4, 3) {
            let probability = product(&policy.propensities(&scene.candidates(), &ranking).unwrap());
            assert_eq!(probability, f64::from(ranking == shown(&slots)), "{ranking:?}");
        }
    }
}

#[test]
fn without_a_closed_form_there_is_no_propensity_in_or_out_of_the_pool() {
    let scene = scene();
    let pooled = Pooled { share: PoolShare::new(0.5).unwrap(), policy: &Thompson };
    let mut pools = 0;
    for seed in 0..20 {
        let ranking = pooled.draw(&scene.candidates(), 4, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        pools += u32::from(ranking.pool);
        assert!(ranking.slots.iter().all(|slot| slot.propensity.is_none()));
    }
    assert!(pools > 0 && pools < 20);
}
