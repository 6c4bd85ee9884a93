//! The standard normal distribution, as far as expected improvement needs it.

use std::f64::consts::PI;

/// Density at `z`.
pub(crate) fn density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / (2.0 * PI).sqrt()
}

/// Probability of a value below `z`, with a relative error below 1.2e-7 (Press et al., "Numerical
/// Recipes", 2nd edition, section 6.2).
pub(crate) fn probability_below(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    const COEFFICIENTS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let series = COEFFICIENTS.iter().rev().fold(0.0, |sum, coefficient| sum * t + coefficient);
    let beyond = 0.5 * t * (-x * x + series).exp();
    if z > 0.0 { 1.0 - beyond } else { beyond }
}

/// Logarithm of `density(z) + z * probability_below(z)`, which for very negative `z` is below what a
/// number can hold.
pub(crate) fn log_improvement(z: f64) -> f64 {
    // Where the difference of both terms loses its digits, the first term of its asymptotic series.
    const FAR: f64 = -5.0;
    if z > FAR {
        return (density(z) + z * probability_below(z)).max(f64::MIN_POSITIVE).ln();
    }
    -0.5 * z * z - 0.5 * (2.0 * PI).ln() - 2.0 * (-z).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_tables() {
        for (z, expected) in [(0.0, 0.5), (1.0, 0.841_344_746), (-1.959_964, 0.025), (3.0, 0.998_650_102)] {
            // The formula's own bound.
            assert!((probability_below(z) - expected).abs() < 2e-7, "{z}");
        }
    }

    #[test]
    fn improvement_is_continuous_and_grows() {
        let mut before = f64::NEG_INFINITY;
        for step in -200..50 {
            let value = log_improvement(f64::from(step) * 0.1);
            assert!(value > before, "at {step}");
            before = value;
        }
        // Both forms at the border; the series is cut after a term of relative size 3/z^2.
        assert!((log_improvement(-4.999_999) - log_improvement(-5.000_001)).abs() < 0.13);
    }
}
