//! Percentile intervals from resampled rounds.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The data that is resampled: every statistic is a function of the sums of these columns.
pub(super) struct Columns {
    /// Row-major `rounds x width`.
    pub(super) values: Vec<f64>,
    pub(super) width: usize,
}

impl Columns {
    pub(super) fn sums(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.width];
        self.values.chunks_exact(self.width).for_each(|row| add(&mut sums, row));
        sums
    }
}

fn add(sums: &mut [f64], row: &[f64]) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum += value;
    }
}

/// The nonparametric bootstrap (Efron 1979): each of `resamples` draws as many rounds with
/// replacement as there are.
///
/// Returns, for each of the `N` statistics, its values in ascending order. All statistics share the
/// resamples.
pub(super) fn resample<const N: usize>(
    columns: &Columns,
    resamples: usize,
    seed: u64,
    statistics: impl Fn(&[f64]) -> [f64; N],
) -> [Vec<f64>; N] {
    let rounds = columns.values.len() / columns.width;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut sums = vec![0.0; columns.width];
    let mut found: [Vec<f64>; N] = std::array::from_fn(|_| Vec::with_capacity(resamples));
    for _ in 0..resamples {
        sums.fill(0.0);
        for _ in 0..rounds {
            let start = random.random_range(0..rounds) * columns.width;
            add(&mut sums, &columns.values[start..start + columns.width]);
        }
        for (found, value) in found.iter_mut().zip(statistics(&sums)) {
            found.push(value);
        }
    }
    found.iter_mut().for_each(|values| values.sort_unstable_by(f64::total_cmp));
    found
}

/// A quantile of ascending values, interpolated linearly between the two nearest (definition 7 of
/// Hyndman and Fan 1996, the default of numpy).
pub(super) fn quantile(ascending: &[f64], share: f64) -> f64 {
    let place = share * (ascending.len() - 1) as f64;
    let below = place as usize;
    let above = (below + 1).min(ascending.len() - 1);
    ascending[below] + (ascending[above] - ascending[below]) * (place - below as f64)
}
