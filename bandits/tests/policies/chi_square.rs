//! Pearson's test of counts against probabilities.

use std::collections::HashMap;
use std::hash::Hash;

/// Standard normal quantile of 0.999. The seeds are fixed, so a passing test always passes; at this
/// level a correct implementation would fail with one seed in a thousand.
const NORMAL_QUANTILE: f64 = 3.09;

/// Panics unless the counts look like `draws` independent draws from `expected`, which must sum to
/// one.
pub fn assert_drawn_from<K: Hash + Eq + std::fmt::Debug>(counts: &HashMap<K, u64>, expected: &[(K, f64)]) {
    let draws: u64 = counts.values().sum();
    let total: f64 = expected.iter().map(|(_, probability)| probability).sum();
    assert!((total - 1.0).abs() < 1e-9, "probabilities sum to {total}");
    assert!(
        counts.keys().all(|key| expected.iter().any(|(known, p)| known == key && *p > 0.0)),
        "drawn with probability 0"
    );
    let mut statistic = 0.0;
    let mut cells = 0.0;
    for (key, probability) in expected.iter().filter(|(_, probability)| *probability > 0.0) {
        let mean = probability * draws as f64;
        assert!(mean >= 5.0, "the approximation needs five expected draws of {key:?}, got {mean}");
        let count = counts.get(key).copied().unwrap_or(0) as f64;
        statistic += (count - mean).powi(2) / mean;
        cells += 1.0;
    }
    let limit = quantile(cells - 1.0);
    assert!(statistic <= limit, "chi-square {statistic:.1} over {limit:.1} with {cells} cells");
}

/// Panics unless two samples of rankings look drawn from the same distribution.
pub fn assert_same_distribution<K: Hash + Eq + Clone>(left: &HashMap<K, u64>, right: &HashMap<K, u64>) {
    let (n, m) = (left.values().sum::<u64>() as f64, right.values().sum::<u64>() as f64);
    let mut keys: Vec<&K> =
        left.keys().chain(right.keys()).collect::<std::collections::HashSet<_>>().into_iter().collect();
    // Cells with too few draws for the approximation are left out of both samples.
    keys.retain(|key| left.get(key).unwrap_or(&0) + right.get(key).unwrap_or(&0) >= 10);
    let term = |key: &&K| {
        let (a, b) = (*left.get(*key).unwrap_or(&0) as f64, *right.get(*key).unwrap_or(&0) as f64);
        ((m / n).sqrt() * a - (n / m).sqrt() * b).powi(2) / (a + b)
    };
    assert!(keys.len() >= 2, "with one cell nothing is compared");
    let statistic: f64 = keys.iter().map(term).sum();
    let limit = quantile(keys.len() as f64 - 1.0);
    assert!(statistic <= limit, "chi-square {statistic:.1} over {limit:.1} with {} cells", keys.len());
}

/// The 0.999 quantile of chi-square, by Wilson and Hilferty's cube-root approximation (within 1 %
/// from 2 degrees on).
fn quantile(degrees: f64) -> f64 {
    let spread = 2.0 / (9.0 * degrees);
    degrees * (1.0 - spread + NORMAL_QUANTILE * spread.sqrt()).powi(3)
}
