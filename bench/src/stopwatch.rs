//! Timing code in process.

use std::time::{Duration, Instant};

/// The duration of one piece of work: the minimum of many samples, in seconds.
///
/// On a shared machine, disturbances only add time, so the minimum is closest to the true duration.
/// It is used for both sides of every ratio.
#[derive(Debug, Clone, Copy)]
pub struct Least(f64);

impl Least {
    /// No samples yet.
    pub const NONE: Self = Self(f64::INFINITY);

    /// Runs `work`, which repeats its piece `times` times, as one sample.
    pub fn sample<T>(&mut self, times: usize, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        let seconds = started.elapsed().as_secs_f64() / times as f64;
        self.0 = self.0.min(seconds);
        result
    }

    /// Seconds per piece.
    pub fn seconds(self) -> f64 {
        self.0
    }

    /// Microseconds per piece.
    pub fn micros(self) -> f64 {
        self.0 * 1e6
    }
}

/// Durations of requests, one by one.
#[derive(Debug, Default, Clone)]
pub struct Durations(Vec<f64>);

impl Durations {
    /// Times `work`.
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        self.0.push(started.elapsed().as_secs_f64());
        result
    }

    /// Adds a duration measured elsewhere.
    pub fn add(&mut self, duration: Duration) {
        self.0.push(duration.as_secs_f64());
    }

    /// The mean of the durations, in microseconds; NaN if there are none.
    pub fn mean_micros(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64 * 1e6
    }

    /// The quantile of the durations, in microseconds; NaN if there are none.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index into a vector")]
    pub fn quantile_micros(&mut self, quantile: f64) -> f64 {
        let Some(last) = self.0.len().checked_sub(1) else { return f64::NAN };
        self.0.sort_unstable_by(f64::total_cmp);
        self.0[(last as f64 * quantile).round() as usize] * 1e6
    }
}
