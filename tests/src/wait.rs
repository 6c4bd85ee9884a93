//! Waiting for something to become true.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything that a scenario waits for may take. Far beyond what it takes, so that only a fault runs into it,
/// however busy the machine is.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Between two looks: short beside what is waited for, long beside a look.
const PAUSE: Duration = Duration::from_millis(10);

/// Looks until there is something to see, and returns it.
///
/// # Panics
/// With `what`, where there is nothing by the deadline.
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
