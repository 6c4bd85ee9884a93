//! A feedback loop: an arm that is never shown is never learnt.
//!
//! Genres are independent, and all of them have positive mean rewards. After the first genre is
//! shown, its estimate exceeds the zero estimates of the others, so a greedy policy never shows
//! another one: the argument for exploration in Velox (Crankshaw et al., CIDR 2015, "Bandits and
//! multiple models").

use celeris_bandits::{Candidates, Policy};
use celeris_model::{Estimate, Learning, Prior};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::play::Learner;
use super::problem::Regret;
use celeris_cli::Failure;

/// Number of genres; each is a candidate.
const GENRES: usize = 20;

/// Rewards are uniform within this distance of their mean, and therefore positive.
const SPREAD: f64 = 0.2;

/// The result of a run.
pub struct Outcome {
    pub regret: f64,
    /// Whether the greedy choice at the end is not the best genre.
    pub stuck: bool,
}

/// Runs `policy` once.
pub fn play(policy: &dyn Policy, rounds: usize, seed: u64) -> Result<Outcome, Failure> {
    let learning = Learning::from(Prior::isotropic(GENRES, 1.0, SPREAD * SPREAD / 3.0).map_err(Failure::other)?);
    let mut learner = Learner::new(&learning).map_err(Failure::other)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let means: Vec<f64> = (0..GENRES).map(|_| rng.random_range(SPREAD..1.0)).collect();
    let mut features = vec![0.0_f32; GENRES * GENRES];
    (0..GENRES).for_each(|genre| features[genre * GENRES + genre] = 1.0);
    let offsets = [0.0; GENRES];
    let checkpoints = [rounds];
    let mut regret = Regret::new(&checkpoints);
    let mut scores = vec![0.0_f32; GENRES];
    for _ in 0..rounds {
        let mut estimates: Vec<Estimate> = Vec::with_capacity(GENRES);
        learner.model.estimate_all(&learning, &offsets, &features, &mut estimates);
        scores = estimates.iter().map(|estimate| estimate.score).collect();
        let candidates = Candidates {
            scores: &scores,
            std_errors: &estimates.iter().map(|estimate| estimate.std_error).collect::<Vec<_>>(),
            offsets: &offsets,
            features: &features,
            posterior: &learner.model,
            learning: &learning,
        };
        let genre = policy.choose(&candidates, 1, &mut rng).map_err(Failure::other)?[0];
        regret.add(&means, genre);
        let reward = means[genre] + rng.random_range(-SPREAD..SPREAD);
        learner.learn(&learning, &features[genre * GENRES..(genre + 1) * GENRES], reward).map_err(Failure::other)?;
    }
    let best_of = |values: &[f64]| (0..GENRES).max_by(|a, b| values[*a].total_cmp(&values[*b]));
    let believed: Vec<f64> = scores.iter().map(|score| f64::from(*score)).collect();
    Ok(Outcome { regret: regret.curve()[0], stuck: best_of(&believed) != best_of(&means) })
}
