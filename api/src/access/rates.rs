//! Rates of keys: a token bucket for requests and one for observations.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use celeris_manager::Grant;
use parking_lot::Mutex;

/// A bucket holds what its key may use in this time, and at least 1.
const BURST: Duration = Duration::from_secs(1);

/// The buckets of the keys that were used on this node. A key has two at most, and keys are bounded.
#[derive(Default)]
pub struct Rates(Mutex<HashMap<(String, Counted), Bucket>>);

/// What a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counted {
    Requests,
    Observations,
}

struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Rates {
    /// Takes some of what a key may use.
    ///
    /// # Errors
    /// With the time after which to try again, if nothing is left. More than is left may be taken: what follows waits
    /// longer then.
    pub fn take(&self, key: &str, grant: &Grant, counted: Counted, amount: f64, now: Instant) -> Result<(), Duration> {
        let rate = match counted {
            Counted::Requests => grant.requests_per_second,
            Counted::Observations => grant.observations_per_second,
        };
        let Some(rate) = rate else { return Ok(()) };
        let burst = (rate * BURST.as_secs_f64()).max(1.0);
        let mut buckets = self.0.lock();
        let bucket = buckets.entry((key.to_owned(), counted)).or_insert_with(|| Bucket { tokens: burst, filled: now });
        let elapsed = now.saturating_duration_since(bucket.filled).as_secs_f64();
        (bucket.tokens, bucket.filled) = ((bucket.tokens + elapsed * rate).min(burst), now.max(bucket.filled));
        if bucket.tokens < amount.min(1.0) {
            return Err(Duration::from_secs_f64(((amount.min(1.0) - bucket.tokens) / rate).min(3600.0)));
        }
        bucket.tokens -= amount;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_its_rate_in_the_mean_and_a_second_of_it_at_once() {
        let rates = Rates::default();
        let grant = Grant { requests_per_second: Some(10.0), ..Grant::all() };
        let begin = Instant::now();
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        let taken = |milliseconds| rates.take("one", &grant, Counted::Requests, 1.0, at(milliseconds)).is_ok();
        assert_eq!((0..20).filter(|_| taken(0)).count(), 10);
        let wait = rates.take("one", &grant, Counted::Requests, 1.0, at(0)).unwrap_err();
        assert_eq!(wait.as_millis(), 100);
        assert!(!taken(90) && taken(101) && !taken(101));
        assert_eq!((2000..5000).filter(|milliseconds| taken(*milliseconds)).count(), 10 + 29);
        // Keys and what is counted are apart.
        assert!(rates.take("other", &grant, Counted::Requests, 1.0, at(5000)).is_ok());
        assert!(rates.take("one", &grant, Counted::Observations, 1e6, at(5000)).is_ok());
    }

    #[test]
    fn what_is_taken_beyond_the_rest_is_waited_for() {
        let rates = Rates::default();
        let grant = Grant { observations_per_second: Some(100.0), ..Grant::all() };
        let begin = Instant::now();
        let take = |amount, seconds| {
            rates.take("one", &grant, Counted::Observations, amount, begin + Duration::from_secs(seconds))
        };
        assert!(take(1000.0, 0).is_ok());
        let wait = take(1.0, 0).unwrap_err().as_secs_f64();
        assert!((wait - 9.01).abs() < 1e-6, "{wait}");
        assert!(take(1.0, 9).is_err() && take(1.0, 10).is_ok());
    }
}
