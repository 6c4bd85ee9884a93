//! Importance of settings: the share of the differences in loss that each explains alone.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::gp::GaussianProcess;
use crate::history::History;
use crate::space::Space;

/// Fewer complete trials than this, plus one for each axis, tell nothing.
const TRIALS_MIN: usize = 5;

/// The latest trials that are used; the time grows with their cube.
const TRIALS_MAX: usize = 200;

/// Values of one axis, and draws of the others at each.
const VALUES: usize = 12;
const DRAWS: usize = 64;

/// Seed of the draws: equal trials have equal importances.
const SEED: u64 = 3;

/// First-order sensitivity indices (Sobol 1993) of the mean of a Gaussian process over uniform
/// positions, which are the main effects of functional ANOVA (Hutter, Hoos & Leyton-Brown 2014),
/// divided by their sum. Empty with too few trials, or if all losses are equal.
#[must_use]
pub fn importance(space: &Space, history: &History) -> BTreeMap<String, f64> {
    let axes = space.axes().len();
    let complete = &history.complete[history.complete.len().saturating_sub(TRIALS_MAX)..];
    if complete.len() < TRIALS_MIN + axes {
        return BTreeMap::new();
    }
    let features = |position: &[f64]| space.features_of(&space.snapped(position));
    let rows: Vec<Vec<f64>> = complete.iter().map(|(position, _)| features(position)).collect();
    let losses: Vec<f64> = complete.iter().map(|(_, loss)| *loss).collect();
    let (mean, variance) = moments(&losses);
    if variance <= 0.0 {
        return BTreeMap::new();
    }
    let values: Vec<f64> = losses.iter().map(|loss| (loss - mean) / variance.sqrt()).collect();
    let Some(process) = GaussianProcess::fit(&rows, &values) else { return BTreeMap::new() };
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let draws: Vec<Vec<f64>> = (0..DRAWS).map(|_| (0..axes).map(|_| rng.random()).collect()).collect();
    let effect = |axis: usize| {
        let means: Vec<f64> = (0..VALUES)
            .map(|value| {
                let at = (value as f64 + 0.5) / VALUES as f64;
                let with = |draw: &Vec<f64>| {
                    let mut position = draw.clone();
                    position[axis] = at;
                    process.mean(&features(&position))
                };
                draws.iter().map(with).sum::<f64>() / DRAWS as f64
            })
            .collect();
        moments(&means).1
    };
    let effects: Vec<f64> = (0..axes).map(effect).collect();
    let total: f64 = effects.iter().sum();
    if total <= 0.0 {
        return BTreeMap::new();
    }
    space.names().zip(effects).map(|(name, effect)| (name.to_owned(), effect / total)).collect()
}

/// Mean and variance.
fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count)
}
