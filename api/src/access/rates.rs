//! Rates of keys: a token bucket for requests and one for observations.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use celeris_manager::Grant;
use parking_lot::Mutex;

/// A bucket holds what its key may use in this time, and at least 1.
const BURST: Duration = Duration::from_secs(1);

/// What streams take of a full bucket, in seconds of the rate: they leave the rest, which is for single requests that come
/// at once. A stream goes on for long, so many that begin together would otherwise have the rate twice in the first second.
const STREAM_BURST: Duration = Duration::from_millis(100);

/// How much of a bucket may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// All that is in it, as by a single request.
    Whole,
    /// What is above [`STREAM_BURST`] below the rim, as by a block of a stream.
    Rim,
}

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
    pub fn take(
        &self,
        (key, grant): (&str, &Grant),
        (counted, of): (Counted, Use),
        amount: f64,
        now: Instant,
    ) -> Result<(), Duration> {
        let Some(rate) = rate_of(grant, counted) else { return Ok(()) };
        let burst = (rate * BURST.as_secs_f64()).max(1.0);
        let least = match of {
            Use::Whole => 0.0,
            Use::Rim => burst - rim(rate),
        };
        let mut buckets = self.0.lock();
        let bucket = buckets.entry((key.to_owned(), counted)).or_insert_with(|| Bucket { tokens: burst, filled: now });
        let elapsed = now.saturating_duration_since(bucket.filled).as_secs_f64();
        (bucket.tokens, bucket.filled) = ((bucket.tokens + elapsed * rate).min(burst), now.max(bucket.filled));
        let needed = least + amount.min(1.0);
        if bucket.tokens < needed {
            return Err(Duration::from_secs_f64(((needed - bucket.tokens) / rate).min(3600.0)));
        }
        bucket.tokens -= amount;
        Ok(())
    }

    /// How many observations a stream of a key takes at once.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is from 0.01 to 1e9")]
    pub fn block(grant: &Grant) -> usize {
        grant.observations_per_second.map_or(usize::MAX, |rate| rim(rate) as usize)
    }
}

fn rate_of(grant: &Grant, counted: Counted) -> Option<f64> {
    match counted {
        Counted::Requests => grant.requests_per_second,
        Counted::Observations => grant.observations_per_second,
    }
}

/// What streams may use of a full bucket.
fn rim(rate: f64) -> f64 {
    (rate * STREAM_BURST.as_secs_f64()).max(1.0)
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
        let taken =
            |milliseconds| rates.take(("one", &grant), (Counted::Requests, Use::Whole), 1.0, at(milliseconds)).is_ok();
        assert_eq!((0..20).filter(|_| taken(0)).count(), 10);
        let wait = rates.take(("one", &grant), (Counted::Requests, Use::Whole), 1.0, at(0)).unwrap_err();
        assert_eq!(wait.as_millis(), 100);
        assert!(!taken(90) && taken(101) && !taken(101));
        assert_eq!((2000..5000).filter(|milliseconds| taken(*milliseconds)).count(), 10 + 29);
        // Keys and what is counted are apart.
        assert!(rates.take(("other", &grant), (Counted::Requests, Use::Whole), 1.0, at(5000)).is_ok());
        assert!(rates.take(("one", &grant), (Counted::Observations, Use::Whole), 1e6, at(5000)).is_ok());
    }

    #[test]
    fn what_is_taken_beyond_the_rest_is_waited_for() {
        let rates = Rates::default();
        let grant = Grant { observations_per_second: Some(100.0), ..Grant::all() };
        let begin = Instant::now();
        let take = |amount, seconds| {
            rates.take(
                ("one", &grant),
                (Counted::Observations, Use::Whole),
                amount,
                begin + Duration::from_secs(seconds),
            )
        };
        assert!(take(1000.0, 0).is_ok());
        let wait = take(1.0, 0).unwrap_err().as_secs_f64();
        assert!((wait - 9.01).abs() < 1e-6, "{wait}");
        assert!(take(1.0, 9).is_err() && take(1.0, 10).is_ok());
    }
    #[test]
    fn parallel_streams_have_the_rate_of_their_key_from_the_beginning() {
        for (rate, seconds) in [(1000.0, 2), (100.0, 3), (5.0, 10), (0.5, 60)] {
            let rates = Rates::default();
            let grant = Grant { observations_per_second: Some(rate), ..Grant::all() };
            let begin = Instant::now();
            let block = Rates::block(&grant) as f64;
            let taken = (0..seconds * 1000).flat_map(|millisecond| (0..16).map(move |_| millisecond)).filter(|at| {
                let now = begin + Duration::from_millis(*at);
                rates.take(("one", &grant), (Counted::Observations, Use::Rim), block, now).is_ok()
            });
            let (sent, fair) = (taken.count() as f64 * block, rate * seconds as f64);
            // A tenth of a second's worth first, and a block that is not paid for yet.
            assert!(sent <= fair + 2.0 * block && sent >= fair - block, "{rate}: {sent} of {fair}");
            // The rest of the bucket is there for single ones.
            let single = || rates.take(("one", &grant), (Counted::Observations, Use::Whole), 1.0, begin).is_ok();
            assert!((0..2000).filter(|_| single()).count() as f64 >= (rate * 0.7).floor());
        }
    }
}
