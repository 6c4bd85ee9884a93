//! Simulation of policies, with one model for all arms or one model for each arm.

use celeris_bandits::{Candidates, Policy};
use celeris_model::{Estimate, Example, History, Learning, ModelError, Prior, Timestamp, UserModel};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::problem::{Problem, Regret, mean};
use celeris_cli::Failure;

/// The history of a model.
struct Past {
    dim: usize,
    features: Vec<f32>,
    rewards: Vec<f32>,
}

impl History for Past {
    fn example(&self, index: u64) -> Example<'_> {
        let index = usize::try_from(index).expect("an index into memory");
        let features = &self.features[index * self.dim..(index + 1) * self.dim];
        Example {
            features,
            label: self.rewards[index],
            offset: 0.0,
            weight: 1.0,
            timestamp: Timestamp::default(),
            taken_before: None,
            choice: &[],
        }
    }
}

/// A model that learns from the rewards of the shown arms.
pub struct Learner {
    pub model: UserModel,
    past: Past,
}

impl Learner {
    pub fn new(learning: &Learning) -> Result<Self, ModelError> {
        let past = Past { dim: learning.dim(), features: Vec::new(), rewards: Vec::new() };
        Ok(Self { model: UserModel::from_prior(learning)?, past })
    }

    pub fn learn(&mut self, learning: &Learning, features: &[f32], reward: f64) -> Result<(), ModelError> {
        self.past.features.extend_from_slice(features);
        self.past.rewards.push(reward as f32);
        self.model.absorb(learning, &self.past)
    }
}

/// The regret of `policy` if every arm has its own features and the weights of one user are learnt.
pub fn shared(problem: &Problem, prior: &Prior, policy: &dyn Policy, seed: u64) -> Result<Vec<f64>, Failure> {
    let learning = Learning::from(prior.clone());
    let mut learner = Learner::new(&learning).map_err(Failure::other)?;
    let theta = problem.weights(seed, 1);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut regret = Regret::new(&problem.checkpoints);
    let mut features = vec![0.0; problem.arms * problem.dim];
    let offsets = vec![0.0; problem.arms];
    let mut estimates: Vec<Estimate> = Vec::new();
    for turn in 0..problem.rounds {
        problem.contexts(seed, turn, &mut features);
        estimates.clear();
        learner.model.estimate_all(&learning, &offsets, &features, &mut estimates);
        let candidates = Candidates {
            scores: &estimates.iter().map(|estimate| estimate.score).collect::<Vec<_>>(),
            std_errors: &estimates.iter().map(|estimate| estimate.std_error).collect::<Vec<_>>(),
            offsets: &offsets,
            features: &features,
            posterior: &learner.model,
            learning: &learning,
        };
        let arm = policy.choose(&candidates, 1, &mut rng).map_err(Failure::other)?[0];
        let means: Vec<f64> = features.chunks_exact(problem.dim).map(|row| mean(&theta, row)).collect();
        regret.add(&means, arm);
        let shown = &features[arm * problem.dim..(arm + 1) * problem.dim];
        learner.learn(&learning, shown, means[arm] + problem.noise(seed, turn)).map_err(Failure::other)?;
    }
    Ok(regret.curve())
}

/// The regret of `policy` if all arms have the same features and each arm has its own model.
///
/// A policy ranks candidates under a single posterior. Independent arms can be expressed as one:
/// the posterior of standard normal weights, with the standard error of each arm as its feature on
/// a separate axis and its score as the offset.
pub fn disjoint(problem: &Problem, prior: &Prior, policy: &dyn Policy, seed: u64) -> Result<Vec<f64>, Failure> {
    let learning = Learning::from(prior.clone());
    let independent = Learning::from(Prior::isotropic(problem.arms, 1.0, 1.0).map_err(Failure::other)?);
    let posterior = UserModel::from_prior(&independent).map_err(Failure::other)?;
    let mut axes = vec![0.0; problem.arms * problem.arms];
    let learners = (0..problem.arms).map(|_| Learner::new(&learning));
    let mut learners: Vec<Learner> = learners.collect::<Result<_, _>>().map_err(Failure::other)?;
    let theta = problem.weights(seed, problem.arms);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut regret = Regret::new(&problem.checkpoints);
    let mut context = vec![0.0; problem.dim];
    for turn in 0..problem.rounds {
        problem.contexts(seed, turn, &mut context);
        let estimate = |learner: &Learner| learner.model.estimate(&learning, 0.0, &context);
        let estimates: Vec<Estimate> = learners.iter().map(estimate).collect();
        let scores: Vec<f32> = estimates.iter().map(|estimate| estimate.score).collect();
        let std_errors: Vec<f32> = estimates.iter().map(|estimate| estimate.std_error).collect();
        for (arm, std_error) in std_errors.iter().enumerate() {
            axes[arm * problem.arms + arm] = *std_error;
        }
        let candidates = Candidates {
            scores: &scores,
            std_errors: &std_errors,
            offsets: &scores,
            features: &axes,
            posterior: &posterior,
            learning: &independent,
        };
        let arm = policy.choose(&candidates, 1, &mut rng).map_err(Failure::other)?[0];
        let means: Vec<f64> = theta.chunks_exact(problem.dim).map(|weights| mean(weights, &context)).collect();
        regret.add(&means, arm);
        let reward = means[arm] + problem.noise(seed, turn);
        learners[arm].learn(&learning, &context, reward).map_err(Failure::other)?;
    }
    Ok(regret.curve())
}
