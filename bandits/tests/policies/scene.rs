//! Owned candidates to rank, and the enumeration of their rankings.

use celeris_bandits::{Candidates, Ranking, Slot};
use celeris_model::{Example, Learning, Prior, Timestamp, UserModel};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub struct Scene {
    pub scores: Vec<f32>,
    pub std_errors: Vec<f32>,
    pub offsets: Vec<f32>,
    pub features: Vec<f32>,
    pub posterior: UserModel,
    pub learning: Learning,
}

impl Scene {
    /// Random candidates for a user who has rated four items, scored by that user's posterior.
    pub fn random(n: usize, dim: usize, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut vector = |length: usize| -> Vec<f32> { (0..length).map(|_| rng.random_range(-1.0..1.0)).collect() };
        let (rated, features, offsets) = (vector(4 * dim), vector(n * dim), vector(n));
        let learning = Learning::from(Prior::isotropic(dim, 1.5, 0.8).unwrap());
        let example = |row| Example {
            features: row,
            label: row[0],
            offset: 0.1,
            weight: 1.0,
            timestamp: Timestamp(0),
            taken_before: None,
            choice: &[],
        };
        let history: Vec<Example> = rated.chunks_exact(dim).map(example).collect();
        let posterior = UserModel::rebuild(&learning, history.as_slice(), 4).unwrap();
        let mut estimates = Vec::new();
        posterior.estimate_all(&learning, &offsets, &features, &mut estimates);
        let scores = estimates.iter().map(|estimate| estimate.score).collect();
        let std_errors = estimates.iter().map(|estimate| estimate.std_error).collect();
        Self { scores, std_errors, offsets, features, posterior, learning }
    }

    /// Candidates with exactly these scores and standard errors.
    pub fn scored(estimates: &[(f32, f32)]) -> Self {
        let mut scene = Self::random(estimates.len(), 2, 0);
        (scene.scores, scene.std_errors) = estimates.iter().copied().unzip();
        scene
    }

    pub fn candidates(&self) -> Candidates<'_> {
        Candidates {
            scores: &self.scores,
            std_errors: &self.std_errors,
            offsets: &self.offsets,
            features: &self.features,
            posterior: &self.posterior,
            learning: &self.learning,
        }
    }
}

/// All ordered choices of `k` out of `n`.
pub fn all_rankings(n: usize, k: usize) -> Vec<Vec<usize>> {
    let mut rankings = vec![Vec::new()];
    for _ in 0..k {
        let longer = |ranking: &Vec<usize>| {
            let next = (0..n).filter(|next| !ranking.contains(next));
            next.map(|next| [ranking.as_slice(), &[next]].concat()).collect::<Vec<_>>()
        };
        rankings = rankings.iter().flat_map(longer).collect();
    }
    rankings
}

pub fn shown(slots: &[Slot]) -> Vec<usize> {
    slots.iter().map(|slot| slot.candidate).collect()
}

pub fn recorded(ranking: &Ranking) -> Option<Vec<f32>> {
    ranking.slots.iter().map(|slot| slot.propensity).collect()
}
