//! Cache of computed scores: bounded, keyed by everything that a score depends on, and used only if a look-up is
//! cheaper than the computation.

use std::hint::black_box;
use std::time::{Duration, Instant};

use celeris_model::{Estimate, ItemId, UserEpoch, UserId, UserModel};

use crate::cache::{BoundedCache, Held};
use crate::version::ServingVersion;

/// When predictions are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PredictionCaching {
    /// For requests whose look-ups cost less than their scores, as measured when the version was activated.
    #[default]
    Measured,
    /// Always: for tests and measurements.
    Always,
    Never,
}

/// All inputs of a score. They include the version, the user's epoch and the item's revision, so a cached score is
/// never stale.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PredictionKey {
    /// [`ServingVersion::serial`].
    pub(crate) version: u64,
    pub(crate) user: UserId,
    pub(crate) epoch: UserEpoch,
    pub(crate) item: ItemId,
    pub(crate) revision: u64,
}

/// The fields of a scored item, so that an answer needs no other look-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CachedPrediction {
    pub(crate) estimate: Estimate,
    /// Whether the item is known.
    pub(crate) known: bool,
}

impl Held for CachedPrediction {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

pub(crate) type PredictionCache = BoundedCache<PredictionKey, CachedPrediction>;

/// Number of keys for timing look-ups: more than the fastest processor cache holds.
const MEASURED_KEYS: usize = 4096;

/// Scores or look-ups timed together.
const MEASURED_BATCH: usize = 64;

/// Repetitions, of which the fastest counts, as it is the least disturbed by other load.
const MEASURED_ROUNDS: usize = 9;

/// Bytes of states for timing single scores: more than a core's cache holds.
const MEASURED_STATES_BYTES: usize = 4 << 20;

/// Costs of predictions under a version, measured when it was activated.
///
/// A request for `n` items of one user takes `n` look-ups, or loads the user's matrix from memory once and computes `n`
/// scores. Even if a look-up takes longer than a score with the matrix in cache, the look-ups are cheaper for few
/// items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PredictionCosts {
    /// Cost of one look-up.
    look_up: Duration,
    /// Cost of one score with the state in the processor's cache.
    score: Duration,
    /// Cost of loading the state into the processor's cache.
    state: Duration,
}

impl PredictionCosts {
    pub(crate) fn measured(version: &ServingVersion) -> Self {
        let (look_up, score) = (measured_look_up(), measured_score(version));
        Self { look_up, score, state: measured_single(version).saturating_sub(score) }
    }

    /// The same costs with free look-ups.
    pub(crate) fn with_free_look_ups(self) -> Self {
        Self { look_up: Duration::ZERO, ..self }
    }

    fn computing(&self, items: u32) -> Duration {
        if items == 0 { Duration::ZERO } else { self.state + self.score * items }
    }

    /// Whether look-ups are cheaper for a request of so many items.
    pub(crate) fn favour_look_ups(&self, items: usize) -> bool {
        let items = u32::try_from(items).unwrap_or(u32::MAX);
        self.look_up.saturating_mul(items) < self.computing(items)
    }

    /// The time saved if `found` items were cached and `missing` were computed.
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

/// One score with a state that is not in the processor's cache.
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
    fn small_requests_are_looked_up_if_loading_a_state_is_slow() {
        assert!((1..10).all(|items| COSTS.favour_look_ups(items)));
        assert!([0, 10, 1_000].into_iter().all(|items| !COSTS.favour_look_ups(items)));
        let quick = PredictionCosts { look_up: Duration::from_nanos(99), ..COSTS };
        assert!([1, 1_000, usize::MAX].into_iter().all(|items| quick.favour_look_ups(items)));
    }

    #[test]
    fn a_partial_miss_saves_no_state_load() {
        let nanos = |found, missing| COSTS.saved(found, missing).as_nanos();
        assert_eq!(nanos(1, 0), 1_100 - 200);
        assert_eq!(nanos(3, 0), 1_300 - 600);
        // The state is loaded anyway, and each look-up was in vain or replaced a cheaper score.
        assert_eq!(nanos(3, 1), 0);
        assert_eq!(nanos(0, 2), 0);
    }
}
