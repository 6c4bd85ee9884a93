//! Thompson sampling chooses candidates as often as they are the best under the posterior.

use std::collections::HashMap;

use celeris_bandits::{Greedy, Policy, Thompson};
use celeris_model::{Estimate, Example, Prior, Timestamp, UserModel};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use crate::chi_square::assert_same_distribution;
use crate::scene::Scene;

const DRAWS: u64 = 60_000;

/// The lower Cholesky factor of a symmetric positive definite row-major matrix, by the textbook
/// algorithm.
fn cholesky(matrix: &[f64], dim: usize) -> Vec<f64> {
    let mut factor = vec![0.0; dim * dim];
    for i in 0..dim {
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| factor[i * dim + k] * factor[j * dim + k]).sum();
            let left = matrix[i * dim + j] - known;
            factor[i * dim + j] = if i == j { left.sqrt() } else { left / factor[j * dim + j] };
        }
    }
    factor
}

/// The first three slots under weights drawn and scored independently, with another generator.
fn monte_carlo(scene: &Scene, seed: u64) -> Vec<usize> {
    let dim = scene.posterior.dim();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mean, factor) = (scene.posterior.weights(), cholesky(&scene.posterior.gram_inverse(), dim));
    let mut ranking = Vec::new();
    while ranking.len() < 3 {
        let normals: Vec<f64> = (0..dim).map(|_| rng.sample(StandardNormal)).collect();
        let weights: Vec<f32> = (0..dim)
            .map(|i| {
                let step: f64 = factor[i * dim..=i * dim + i].iter().zip(&normals).map(|(l, z)| l * z).sum();
                (mean[i] + scene.learning.noise_variance().sqrt() * step) as f32
            })
            .collect();
        let score = |candidate: usize| -> f32 {
            let row = &scene.features[candidate * dim..(candidate + 1) * dim];
            scene.offsets[candidate] + weights.iter().zip(row).map(|(w, x)| w * x).sum::<f32>()
        };
        let left = (0..scene.offsets.len()).filter(|candidate| !ranking.contains(candidate));
        ranking.push(left.max_by(|a, b| score(*a).total_cmp(&score(*b))).unwrap());
    }
    ranking
}

/// Correlated weights, so that a transposed or diagonal factor would be detected.
fn correlated() -> Scene {
    let mut scene = Scene::random(5, 3, 21);
    let precision = vec![3.0, 1.6, -0.9, 1.6, 2.0, 0.2, -0.9, 0.2, 1.5];
    scene.learning = Prior::new(vec![0.1, -0.1, 0.2], precision, 0.9).unwrap().into();
    scene.posterior = UserModel::from_prior(&scene.learning).unwrap();
    scene
}

#[test]
fn frequencies_of_slots_match_an_independent_monte_carlo() {
    for scene in [Scene::random(5, 3, 20), correlated()] {
        let mut ours: HashMap<Vec<usize>, u64> = HashMap::new();
        let mut theirs: HashMap<Vec<usize>, u64> = HashMap::new();
        let mut rng = ChaCha8Rng::seed_from_u64(22);
        for seed in 0..DRAWS {
            *ours.entry(Thompson::default().choose(&scene.candidates(), 3, &mut rng).unwrap()).or_default() += 1;
            *theirs.entry(monte_carlo(&scene, 1_000_000 + seed)).or_default() += 1;
        }
        assert_same_distribution(&ours, &theirs);
        for slots in 1..3 {
            let shorten = |counts: &HashMap<Vec<usize>, u64>| {
                let mut shorter: HashMap<Vec<usize>, u64> = HashMap::new();
                for (ranking, count) in counts {
                    *shorter.entry(ranking[..slots].to_vec()).or_default() += count;
                }
                shorter
            };
            assert_same_distribution(&shorten(&ours), &shorten(&theirs));
        }
    }
}

#[test]
fn alpha_scales_the_width_of_the_draws() {
    let scene = Scene::random(8, 3, 25);
    let greedy = Greedy.choose(&scene.candidates(), 1, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
    let best_first = |alpha: f64| {
        let mut rng = ChaCha8Rng::seed_from_u64(26);
        let policy = Thompson::new(alpha).unwrap();
        (0..2000).filter(|_| policy.choose(&scene.candidates(), 1, &mut rng).unwrap() == greedy).count()
    };
    assert_eq!(best_first(0.0), 2000, "without width it is greedy");
    let counts = [0.1, 0.3, 1.0, 10.0].map(best_first);
    assert!(counts.is_sorted_by(|narrow, wide| narrow > wide), "{counts:?}");
}

#[test]
fn a_certain_user_is_ranked_by_score() {
    let mut scene = Scene::random(20, 3, 23);
    let row = [0.3_f32, -0.8, 1.0];
    // Certainty by weight: the same three directions, with a weight of a hundred million each.
    let axes = [[1.0_f32, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let history: Vec<Example> = axes
        .iter()
        .zip(row)
        .map(|(axis, label)| Example {
            features: axis,
            label,
            offset: 0.0,
            weight: 1e8,
            timestamp: Timestamp(0),
            taken_before: None,
            choice: &[],
        })
        .collect();
    scene.posterior = UserModel::rebuild(&scene.learning, history.as_slice(), 3).unwrap();
    let estimates: Vec<Estimate> = scene
        .features
        .chunks_exact(3)
        .zip(&scene.offsets)
        .map(|(features, offset)| scene.posterior.estimate(&scene.learning, *offset, features))
        .collect();
    let mut best_first: Vec<usize> = (0..20).collect();
    best_first.sort_by(|a, b| estimates[*b].score.total_cmp(&estimates[*a].score));
    let gap = best_first.windows(2).map(|pair| estimates[pair[0]].score - estimates[pair[1]].score).fold(1.0, f32::min);
    assert!(gap > 0.001, "scores {gap} apart are too close for this test: draws differ by about 0.0001");
    assert_eq!(
        Thompson::default().choose(&scene.candidates(), 20, &mut ChaCha8Rng::seed_from_u64(24)).unwrap(),
        best_first
    );
}
