//! Scores that were computed before: bounded, keyed by everything that a score depends on, and used only where finding
//! one is cheaper than computing it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use celeris_model::{Estimate, ItemId, UserEpoch, UserId, UserModel};

use crate::cache::{BoundedCache, Held};
use crate::version::ServingVersion;

/// When predictions are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PredictionCaching {
    /// Of requests whose look-ups are cheaper than their scores, by what both took when the version was activated.
    #[default]
    Measured,
    /// Always: for tests and for measuring.
    Always,
    /// Never.
    Never,
}

/// What a score is a function of. The version, the user's epoch and the item's revision are part of it, so nothing in
/// the cache can be stale.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PredictionKey {
    /// [`ServingVersion::serial`].
    pub(crate) version: u64,
    pub(crate) user: UserId,
    pub(crate) epoch: UserEpoch,
    pub(crate) item: ItemId,
    pub(crate) revision: u64,
}

/// All that a reply says of an item, so that it need not be looked up elsewhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CachedPrediction {
    pub(crate) estimate: Estimate,
    /// Whether anything is known of the item.
    pub(crate) known: bool,
}

impl Held for CachedPrediction {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

/// The prediction cache.
pub(crate) type PredictionCache = BoundedCache<PredictionKey, CachedPrediction>;

/// Keys among which look-ups are timed: more than the fastest cache of a processor holds.
const MEASURED_KEYS: usize = 4096;

/// Scores or look-ups that are timed together.
const MEASURED_BATCH: usize = 64;

/// Repetitions, of which the fastest counts, since only it is free of what else the machine does.
const MEASURED_ROUNDS: usize = 9;

/// States among which single scores are timed, in bytes: more than what is next to a core holds.
const MEASURED_STATES_BYTES: usize = 4 << 20;

/// What predictions under a version take, as measured when it was activated.
///
/// A request of one user's `n` items takes `n` look-ups, or brings the user's matrix from memory once and computes `n`
/// scores with it. Where a look-up takes longer than a score at hand, the cache is still the cheaper one for requests of
/// few items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PredictionCosts {
    /// Finding one prediction.
    look_up: Duration,
    /// Computing one with a state that is at hand.
    score: Duration,
    /// Having the state at hand.
    state: Duration,
}

impl PredictionCosts {
    pub(crate) fn measured(version: &ServingVersion) -> Self {
        let (look_up, score) = (measured_look_up(), measured_score(version));
        Self { look_up, score, state: measured_single(version).saturating_sub(score) }
    }

    /// The same, as if look-ups took no time.
    pub(crate) fn with_free_look_ups(self) -> Self {
        Self { look_up: Duration::ZERO, ..self }
    }

    fn computing(&self, items: u32) -> Duration {
        if items == 0 { Duration::ZERO } else { self.state + self.score * items }
    }

    /// Whether a request of so many items is looked up.
    pub(crate) fn favour_look_ups(&self, items: usize) -> bool {
        let items = u32::try_from(items).unwrap_or(u32::MAX);
        self.look_up.saturating_mul(items) < self.computing(items)
    }

    /// The time saved by a request of which so many items were found, and the others computed.
    pub(crate) fn saved(&self, found: usize, missing: usize) -> Duration {
        let [found, missing] = [found, missing].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let items = found.saturating_add(missing);
        self.computing(items).saturating_sub(self.look_up.saturating_mul(items) + self.computing(missing))
    }
}

fn measured_look_up() -> Duration {
    let cache = PredictionCache::unreported(usize::MAX);
    let keys: Vec<PredictionKey> = (0..MEASURED_KEYS).map(key).collect();
    let estimate = Estimate { score: 0.0, std_error: 1.0, label_std: 1.0 };
    for key in &keys {
        cache.insert(key.clone(), CachedPrediction { estimate, known: true });
    }
    let mut batches = keys.chunks_exact(MEASURED_BATCH).cycle();
    let look_ups = fastest(|| {
        for key in batches.next().into_iter().flatten() {
            black_box(cache.get(&black_box(key).clone()));
        }
    });
    look_ups / MEASURED_BATCH as u32
}

fn measured_score(version: &ServingVersion) -> Duration {
    let features = vec![1.0_f32; MEASURED_BATCH * version.dim()];
    let offsets = [0.0_f32; MEASURED_BATCH];
    let mut out = Vec::with_capacity(MEASURED_BATCH);
    let scores = fastest(|| {
        out.clear();
        version.newcomer.estimate_all(&version.learning, black_box(&offsets), black_box(&features), &mut out);
        black_box(&out);
    });
    scores / MEASURED_BATCH as u32
}

/// One score with a state that was last used long ago.
fn measured_single(version: &ServingVersion) -> Duration {
    let features = vec![1.0_f32; version.dim()];
    let count = (MEASURED_STATES_BYTES / version.newcomer.bytes()).clamp(2, MEASURED_KEYS);
    let states = vec![UserModel::clone(&version.newcomer); count];
    let batch = count.min(MEASURED_BATCH);
    let mut batches = states.chunks_exact(batch).cycle();
    let mut out = Vec::with_capacity(1);
    let singles = fastest(|| {
        for state in batches.next().into_iter().flatten() {
            out.clear();
            state.estimate_all(&version.learning, black_box(&[0.0]), black_box(&features), &mut out);
            black_box(&out);
        }
    });
    singles / u32::try_from(batch).unwrap_or(u32::MAX)
}

fn key(index: usize) -> PredictionKey {
    let user = UserId::new(format!("user {}", index % 97)).expect("a short text is an id");
    let item = ItemId::new(format!("item {index}")).expect("a short text is an id");
    PredictionKey { version: 0, user, epoch: UserEpoch(1), item, revision: 0 }
}

fn fastest(mut work: impl FnMut()) -> Duration {
    let time = |_| {
        let started = Instant::now();
        work();
        started.elapsed()
    };
    (0..MEASURED_ROUNDS).map(time).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: PredictionCosts = PredictionCosts {
        look_up: Duration::from_nanos(200),
        score: Duration::from_nanos(100),
        state: Duration::from_nanos(1_000),
    };

    #[test]
    fn small_requests_are_looked_up_where_a_state_takes_long_to_bring() {
        assert!((1..10).all(|items| COSTS.favour_look_ups(items)));
        assert!([0, 10, 1_000].into_iter().all(|items| !COSTS.favour_look_ups(items)));
        let quick = PredictionCosts { look_up: Duration::from_nanos(99), ..COSTS };
        assert!([1, 1_000, usize::MAX].into_iter().all(|items| quick.favour_look_ups(items)));
    }

    #[test]
    fn what_a_miss_brings_is_not_saved() {
        let nanos = |found, missing| COSTS.saved(found, missing).as_nanos();
        assert_eq!(nanos(1, 0), 1_100 - 200);
        assert_eq!(nanos(3, 0), 1_300 - 600);
        // The state is brought all the same, and every item was looked up in vain or in place of a cheaper score.
        assert_eq!(nanos(3, 1), 0);
        assert_eq!(nanos(0, 2), 0);
    }
}
