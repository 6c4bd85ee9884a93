//! Errors of predicted ratings with their standard errors, and the coverage of intervals.
//!
//! Rows of one user are not independent, so that standard errors are those of a mean over users
//! with all of their rows (clusters), and that of a root follows by the delta method.

use serde::Serialize;

use crate::{DEVIATIONS_95, Prediction};

/// A root mean squared error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rmse {
    pub rmse: f64,
    /// Its standard error over users; 0 with fewer than two.
    pub std_error: f64,
}

/// Quality of predicted ratings and of their intervals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Accuracy {
    #[serde(flatten)]
    pub error: Rmse,
    /// The share of labels inside their served 95 % interval.
    pub coverage_95: f64,
    /// The same for predicted rows of items that have one to five training labels.
    pub rare: Option<Rare>,
}

/// Predicted rows of items with few training labels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rare {
    pub rows: usize,
    pub rmse: f64,
    pub coverage_95: f64,
}

/// Numbers of training labels with which an item is rare.
const RARE: std::ops::RangeInclusive<u32> = 1..=5;

/// The squared error of a score that is clamped to the range of labels.
pub(crate) fn clamped_square(range: (f32, f32), label: f32, score: f32) -> f64 {
    f64::from(label - score.clamp(range.0, range.1)).powi(2)
}

/// Squared errors, by user.
#[derive(Debug, Clone, Default)]
pub(crate) struct Squares {
    /// Sum and number of each user's squared errors.
    by_user: Vec<(f64, f64)>,
}

impl Squares {
    pub(crate) fn add(&mut self, user: u32, square: f64) {
        let user = user as usize;
        if self.by_user.len() <= user {
            self.by_user.resize(user + 1, (0.0, 0.0));
        }
        let (sum, count) = &mut self.by_user[user];
        *sum += square;
        *count += 1.0;
    }

    /// The root of the mean of everything added; NaN if that is nothing.
    pub(crate) fn rmse(&self) -> Rmse {
        let (sum, count) = self.by_user.iter().fold((0.0, 0.0), |(sum, count), (one, rows)| (sum + one, count + rows));
        let mean: f64 = sum / count;
        let users = self.by_user.iter().filter(|(_, rows)| *rows > 0.0).count() as f64;
        let deviations: f64 = self.by_user.iter().map(|(one, rows)| (one - rows * mean).powi(2)).sum();
        let of_mean = if users > 1.0 { (deviations * users / (users - 1.0)).sqrt() / count } else { 0.0 };
        let rmse = mean.sqrt();
        Rmse { rmse, std_error: if rmse > 0.0 { of_mean / (2.0 * rmse) } else { 0.0 } }
    }
}

/// Collects the predictions of several orders of the ratings.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    squares: Squares,
    covered: Share,
    rare: Share,
    rare_squares: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Share {
    of: usize,
    count: usize,
}

impl Share {
    fn add(&mut self, holds: bool) {
        self.of += 1;
        self.count += usize::from(holds);
    }

    fn share(self) -> f64 {
        self.count as f64 / self.of as f64
    }
}

impl Collected {
    /// Adds predictions, with scores clamped to `range`. `labels` holds the number of training
    /// labels of each item.
    pub(crate) fn add(&mut self, range: (f32, f32), predictions: &[Prediction], labels: &[u32]) {
        for one in predictions {
            let square = clamped_square(range, one.label, one.served.score);
            let covered = (one.label - one.served.score).abs() <= DEVIATIONS_95 * one.served.label_std;
            self.squares.add(one.user, square);
            self.covered.add(covered);
            if RARE.contains(&labels[one.item as usize]) {
                self.rare.add(covered);
                self.rare_squares += square;
            }
        }
    }

    pub(crate) fn accuracy(&self) -> Accuracy {
        let Self { squares, covered, rare, rare_squares } = self;
        Accuracy {
            error: squares.rmse(),
            coverage_95: covered.share(),
            rare: (rare.of > 0).then(|| Rare {
                rows: rare.of,
                rmse: (rare_squares / rare.of as f64).sqrt(),
                coverage_95: rare.share(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_error_is_that_of_users_with_all_of_their_rows() {
        let mut squares = Squares::default();
        // Sums 2, 8 and 2 over 2, 2 and 4 rows: a mean of 1.5.
        for (user, values) in [(0, vec![1.0, 1.0]), (3, vec![3.0, 5.0]), (7, vec![0.0, 0.0, 2.0, 0.0])] {
            values.into_iter().for_each(|value| squares.add(user, value));
        }
        let found = squares.rmse();
        assert!((found.rmse - 1.5_f64.sqrt()).abs() < 1e-12);
        // Deviations of the sums from 3, 3 and 6.
        let of_mean = ((1.0 + 25.0 + 16.0) * 3.0 / 2.0_f64).sqrt() / 8.0;
        assert!((found.std_error - of_mean / (2.0 * 1.5_f64.sqrt())).abs() < 1e-12);
    }

    #[test]
    fn one_user_has_no_standard_error() {
        let mut squares = Squares::default();
        squares.add(2, 4.0);
        assert_eq!(squares.rmse(), Rmse { rmse: 2.0, std_error: 0.0 });
    }
}
