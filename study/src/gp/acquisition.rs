//! The next point: the maximum of expected improvement (Jones, Schonlau & Welch 1998).

use rand::{Rng, RngExt};
use rand_distr::StandardNormal;

use super::GaussianProcess;
use crate::history::History;
use crate::normal::log_improvement;
use crate::space::Space;

/// Uniform positions that are tried.
const SCATTERED: usize = 600;

/// The best observed positions, and how many near each are tried, by the spread around it.
const ELITE: usize = 4;
const NEAR_EACH: usize = 20;
const SPREADS: [f64; 3] = [0.15, 0.03, 0.006];

/// The most promising positions that are improved, in this many steps, with spreads from and to.
const IMPROVED: usize = 5;
const STEPS: usize = 60;
const STEP_SPREADS: (f64, f64) = (0.1, 1e-3);

/// The observed values as a Gaussian process sees them: monotonous in the losses, with mean 0 and
/// variance 1. Losses far above the best are compressed, since how bad they are matters little.
fn warped(losses: &[f64]) -> Vec<f64> {
    let lowest = losses.iter().copied().fold(f64::INFINITY, f64::min);
    let mut sorted: Vec<f64> = losses.iter().map(|loss| loss - lowest).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let scale = sorted[sorted.len() / 2].max(sorted[sorted.len() - 1] * 1e-6);
    if scale <= 0.0 {
        return vec![0.0; losses.len()];
    }
    let logs: Vec<f64> = losses.iter().map(|loss| ((loss - lowest) / scale).ln_1p()).collect();
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let spread = (logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / count).sqrt();
    logs.iter().map(|log| (log - mean) / spread.max(f64::MIN_POSITIVE)).collect()
}

/// The position with the highest expected improvement among those tried, at which nothing was
/// observed yet; `None` if there is none, or the process cannot be fitted.
pub(crate) fn propose(space: &Space, history: &History, rng: &mut impl Rng) -> Option<Vec<f64>> {
    let losses: Vec<f64> = history.complete.iter().map(|(_, loss)| *loss).collect();
    let positions: Vec<Vec<f64>> = history.complete.iter().map(|(position, _)| space.snapped(position)).collect();
    let rows: Vec<Vec<f64>> = positions.iter().map(|position| space.features_of(position)).collect();
    let pending: Vec<Vec<f64>> = history.pending.iter().map(|position| space.snapped(position)).collect();
    let values = warped(&losses);
    let mut process = GaussianProcess::fit(&rows, &values)?;
    if !pending.is_empty() {
        let rows: Vec<Vec<f64>> = pending.iter().map(|position| space.features_of(position)).collect();
        process = process.believing(&values, &rows)?;
    }
    // The best that the process believes in: the lowest value of a noisy function is partly luck.
    let best = rows.iter().map(|row| process.mean(row)).fold(f64::INFINITY, f64::min);
    let utility = |position: &[f64]| {
        let (mean, variance) = process.predict(&space.features_of(position));
        let deviation = variance.sqrt();
        deviation.ln() + log_improvement((best - mean) / deviation)
    };
    let is_new = |position: &Vec<f64>| !positions.contains(position) && !pending.contains(position);
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let elite: Vec<&[f64]> = order.iter().take(ELITE).map(|place| positions[*place].as_slice()).collect();
    let mut tried: Vec<(f64, Vec<f64>)> = candidates(space, &elite, rng)
        .into_iter()
        .filter(is_new)
        .map(|position| (utility(&position), position))
        .collect();
    tried.sort_by(|a, b| b.0.total_cmp(&a.0));
    tried.truncate(IMPROVED);
    for (height, position) in &mut tried {
        for step in 0..STEPS {
            let share = step as f64 / (STEPS - 1) as f64;
            let spread = STEP_SPREADS.0 * (STEP_SPREADS.1 / STEP_SPREADS.0).powf(share);
            let moved = space.snapped(&near(position, spread, rng));
            let there = utility(&moved);
            if there > *height && is_new(&moved) {
                (*height, *position) = (there, moved);
            }
        }
    }
    tried.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, position)| position)
}

fn candidates(space: &Space, elite: &[&[f64]], rng: &mut impl Rng) -> Vec<Vec<f64>> {
    let axes = space.axes().len();
    let mut positions: Vec<Vec<f64>> = (0..SCATTERED).map(|_| (0..axes).map(|_| rng.random()).collect()).collect();
    for of in elite {
        for spread in SPREADS {
            positions.extend((0..NEAR_EACH).map(|_| near(of, spread, rng)));
        }
    }
    positions.iter().map(|position| space.snapped(position)).collect()
}

/// A position near another: one coordinate or all of them are moved, and reflected at the borders.
fn near(position: &[f64], spread: f64, rng: &mut impl Rng) -> Vec<f64> {
    let only = (rng.random::<f64>() < 0.5).then(|| rng.random_range(0..position.len()));
    let moved = position.iter().enumerate().map(|(axis, at)| {
        if only.is_some_and(|only| only != axis) {
            return *at;
        }
        let by: f64 = rng.sample(StandardNormal);
        let to = (at + by * spread).abs();
        if to > 1.0 { (2.0 - to).clamp(0.0, 1.0) } else { to }
    });
    moved.collect()
}
