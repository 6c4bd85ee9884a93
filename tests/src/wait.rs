//! Waiting for a condition.

use std::thread;
use std::time::{Duration, Instant};

/// Maximum duration of any wait in a test. Far longer than any wait takes, so that only a fault
/// reaches it, even on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Interval between two polls: short compared with the awaited event, long compared with a poll.
const PAUSE: Duration = Duration::from_millis(10);

/// Polls `look` until it returns a value, and returns that value.
///
/// # Panics
/// If there is no value by the deadline; the message begins with `what`.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(started.elapsed() < DEADLINE, "{what}: not within {} seconds", DEADLINE.as_secs());
        thread::sleep(PAUSE);
    }
}
