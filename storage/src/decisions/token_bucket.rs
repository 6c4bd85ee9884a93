//! Limits the byte rate of decisions.

use std::time::Instant;

use parking_lot::Mutex;

/// A token bucket: it fills at a steady rate up to one second's worth; a request for more than it
/// holds is rejected.
pub(crate) struct TokenBucket {
    bytes_per_second: f64,
    level: Mutex<Level>,
}

struct Level {
    bytes: f64,
    at: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub(crate) fn new(bytes_per_second: u64, now: Instant) -> Self {
        let bytes_per_second = bytes_per_second as f64;
        Self { bytes_per_second, level: Mutex::new(Level { bytes: bytes_per_second, at: now }) }
    }

    /// Takes `bytes` tokens, or none and returns false. Times of concurrent calls may be slightly
    /// out of order.
    pub(crate) fn take(&self, bytes: usize, now: Instant) -> bool {
        let mut level = self.level.lock();
        let earned = now.saturating_duration_since(level.at).as_secs_f64() * self.bytes_per_second;
        level.bytes = (level.bytes + earned).min(self.bytes_per_second);
        level.at = level.at.max(now);
        let enough = level.bytes >= bytes as f64;
        if enough {
            level.bytes -= bytes as f64;
        }
        enough
    }

    /// Corrects an earlier `take` of an estimate by the actual cost.
    pub(crate) fn settle(&self, taken: usize, cost: usize) {
        self.level.lock().bytes -= cost as f64 - taken as f64;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_limited_to_one_second_and_the_rate_holds_after_it() {
        let start = Instant::now();
        let token_bucket = TokenBucket::new(1_000, start);
        let taken = |from: Instant, every: Duration, count: u32| {
            (0..count).filter(|n| token_bucket.take(100, from + every * *n)).count()
        };
        assert_eq!(taken(start, Duration::ZERO, 50), 10, "the capacity of the bucket");
        // Twenty per second are offered for ten seconds, twice the rate.
        let second = start + Duration::from_secs(1);
        let after = taken(second, Duration::from_millis(50), 200);
        assert!((100..=120).contains(&after), "{after} of 200");
        token_bucket.settle(100, 10_100);
        assert!(!token_bucket.take(100, second + Duration::from_secs(11)), "the debt is paid first");
        assert!(!token_bucket.take(1_001, second + Duration::from_secs(60)), "more than a second's worth never fits");
    }
}
