//! Length scales and noise, at the maximum of the marginal likelihood times a prior.

use nalgebra::{Cholesky, DMatrix, DVector};

use super::symmetric;

/// Standard deviation of the prior of a length scale's logarithm.
const SCALE_SPREAD: f64 = 1.0;

/// Median of the prior of a length scale, times the root of the number of features: in more
/// dimensions points are further apart (Hvarfner, Hellsten & Nardi 2024).
const SCALE_MEDIAN: f64 = 0.3;

/// Prior of the noise's share of the signal's variance: median, and standard deviation of its
/// logarithm.
const NOISE_MEDIAN: f64 = 1e-3;
const NOISE_SPREAD: f64 = 2.0;

/// Bounds of the logarithms of length scales and of the noise.
const LOG_SCALES: (f64, f64) = (-4.6, 4.6);
const LOG_NOISES: (f64, f64) = (-13.8, 0.7);

/// Steps of the ascent, which are enough for four digits.
const STEPS: usize = 40;

/// First, smallest and largest step of a logarithm.
const STEP: (f64, f64, f64) = (0.2, 1e-3, 1.0);

/// Hyperparameters, as logarithms.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hyperparameters {
    /// One for each feature.
    log_scales: Vec<f64>,
    /// Of the variance of noise, as a share of that of the function.
    log_noise: f64,
}

impl Hyperparameters {
    fn median(features: usize) -> Self {
        let scale = SCALE_MEDIAN * (features.max(1) as f64).sqrt();
        Self { log_scales: vec![scale.ln(); features], log_noise: NOISE_MEDIAN.ln() }
    }

    /// Maximises the posterior by Rprop, which needs only the signs of the gradient (Blum &
    /// Riedmiller 2013), from the medians of the prior. `None` if no covariance can be factorised.
    pub(super) fn fit(rows: &[Vec<f64>], values: &[f64]) -> Option<Self> {
        let features = rows.first()?.len();
        let values = DVector::from_column_slice(values);
        let mut best: Option<(f64, Self)> = None;
        let mut here = Self::median(features);
        let (first, smallest, largest) = STEP;
        let mut steps = vec![first; features + 1];
        let mut before = vec![0.0_f64; features + 1];
        for _ in 0..STEPS {
            let Some((height, gradient)) = here.posterior(rows, &values) else { break };
            if best.as_ref().is_none_or(|(highest, _)| height > *highest) {
                best = Some((height, here.clone()));
            }
            for (place, slope) in gradient.iter().enumerate() {
                let agrees = slope * before[place];
                if agrees > 0.0 {
                    steps[place] = (steps[place] * 1.2).min(largest);
                } else if agrees < 0.0 {
                    steps[place] = (steps[place] * 0.5).max(smallest);
                }
                // After a change of sign, the next step has none to compare with.
                before[place] = if agrees < 0.0 { 0.0 } else { *slope };
                here.shift(place, steps[place] * before[place].signum() * f64::from(u8::from(before[place] != 0.0)));
            }
        }
        best.map(|(_, found)| found)
    }

    fn shift(&mut self, place: usize, by: f64) {
        match self.log_scales.get_mut(place) {
            Some(scale) => *scale = (*scale + by).clamp(LOG_SCALES.0, LOG_SCALES.1),
            None => self.log_noise = (self.log_noise + by).clamp(LOG_NOISES.0, LOG_NOISES.1),
        }
    }

    /// Matérn 5/2 with unit variance.
    pub(super) fn kernel(&self, left: &[f64], right: &[f64]) -> f64 {
        let root = (5.0 * self.square_distance(left, right)).sqrt();
        (1.0 + root + root * root / 3.0) * (-root).exp()
    }

    fn square_distance(&self, left: &[f64], right: &[f64]) -> f64 {
        let terms = left.iter().zip(right).zip(&self.log_scales);
        terms.map(|((left, right), scale)| ((left - right) * (-scale).exp()).powi(2)).sum()
    }

    /// The covariance of noisy values, as a share of the variance of the function.
    pub(super) fn covariance(&self, rows: &[Vec<f64>]) -> DMatrix<f64> {
        let mut covariance = symmetric(rows, |left, right| self.kernel(left, right));
        let noise = self.log_noise.exp();
        for place in 0..rows.len() {
            covariance[(place, place)] += noise;
        }
        covariance
    }

    /// Logarithm of the posterior density, up to a constant, with its gradient; the variance of the
    /// function is at its maximum (Rasmussen & Williams, eq. 5.9).
    fn posterior(&self, rows: &[Vec<f64>], values: &DVector<f64>) -> Option<(f64, Vec<f64>)> {
        let count = rows.len() as f64;
        let factor = Cholesky::new(self.covariance(rows))?;
        let weights = factor.solve(values);
        let variance = (values.dot(&weights) / count).max(f64::MIN_POSITIVE);
        let log_determinant: f64 = factor.l_dirty().diagonal().iter().map(|entry| entry.ln()).sum::<f64>() * 2.0;
        let inverse = factor.inverse();
        let mut height = -0.5 * (count * variance.ln() + log_determinant);
        let mut gradient = vec![0.0; self.log_scales.len() + 1];
        let square_scales: Vec<f64> = self.log_scales.iter().map(|scale| (-2.0 * scale).exp()).collect();
        for (column, right) in rows.iter().enumerate() {
            for (row, left) in rows.iter().enumerate().skip(column + 1) {
                let pull = weights[row] * weights[column] / variance - inverse[(row, column)];
                let root = (5.0 * self.square_distance(left, right)).sqrt();
                let slope = pull * 5.0 / 3.0 * (1.0 + root) * (-root).exp();
                for ((total, scale), (left, right)) in
                    gradient.iter_mut().zip(&square_scales).zip(left.iter().zip(right))
                {
                    // Both halves of the matrix, times 1/2.
                    *total += slope * (left - right).powi(2) * scale;
                }
            }
        }
        let noise = self.log_noise.exp();
        let on_diagonal: f64 =
            (0..rows.len()).map(|place| weights[place].powi(2) / variance - inverse[(place, place)]).sum();
        let last = self.log_scales.len();
        gradient[last] += 0.5 * noise * on_diagonal;
        let median = Self::median(self.log_scales.len());
        let prior = |at: f64, middle: f64, spread: f64| ((at - middle) / spread, spread);
        for (place, scale) in self.log_scales.iter().enumerate() {
            let (off, spread) = prior(*scale, median.log_scales[place], SCALE_SPREAD);
            height -= 0.5 * off * off;
            gradient[place] -= off / spread;
        }
        let (off, spread) = prior(self.log_noise, median.log_noise, NOISE_SPREAD);
        height -= 0.5 * off * off;
        gradient[last] -= off / spread;
        height.is_finite().then_some((height, gradient))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let rows: Vec<Vec<f64>> =
            (0..8).map(|row| vec![f64::from(row) / 8.0, f64::from(row * row % 7) / 7.0]).collect();
        let values = DVector::from_iterator(8, (0..8).map(|row| (f64::from(row) * 0.9).sin()));
        let here = Hyperparameters { log_scales: vec![-0.7, 0.2], log_noise: -4.0 };
        let (_, gradient) = here.posterior(&rows, &values).unwrap();
        for (place, slope) in gradient.iter().enumerate() {
            let at = |by: f64| {
                let mut moved = here.clone();
                moved.shift(place, by);
                moved.posterior(&rows, &values).unwrap().0
            };
            let estimated = (at(1e-5) - at(-1e-5)) / 2e-5;
            // A central difference with a step of 1e-5 is exact to about 1e-8.
            assert!((slope - estimated).abs() < 1e-5 * (1.0 + slope.abs()), "{place}: {slope} and {estimated}");
        }
    }

    #[test]
    fn a_feature_without_effect_gets_the_longer_scale() {
        let rows: Vec<Vec<f64>> =
            (0..30).map(|row| vec![f64::from(row * 7 % 30) / 30.0, f64::from(row * 11 % 30) / 30.0]).collect();
        let values: Vec<f64> = rows.iter().map(|row| (row[0] * 6.0).sin()).collect();
        let fitted = Hyperparameters::fit(&rows, &values).unwrap();
        assert!(fitted.log_scales[1] > fitted.log_scales[0] + 1.0, "{fitted:?}");
    }
}
