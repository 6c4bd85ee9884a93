//! Scores that were computed before: bounded, keyed by everything that a score depends on, and used only where finding
//! one is cheaper than computing it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use celeris_model::{Estimate, ItemId, UserEpoch, UserId};

use crate::cache::{BoundedCache, Held};
use crate::version::ServingVersion;

/// When predictions are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PredictionCaching {
    /// Where a look-up was measured to be cheaper than a score when the version was activated.
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

impl Held for Estimate {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

/// The prediction cache.
pub(crate) type PredictionCache = BoundedCache<PredictionKey, Estimate>;

/// Keys among which look-ups are timed: more than the fastest cache of a processor holds.
const MEASURED_KEYS: usize = 4096;

/// Scores or look-ups that are timed together.
const MEASURED_BATCH: usize = 64;

/// Repetitions, of which the fastest counts, since only it is free of what else the machine does.
const MEASURED_ROUNDS: usize = 9;

/// The time that finding a cached score saves over computing it under `version`; `None` where it saves none.
pub(crate) fn measured_gain(version: &ServingVersion) -> Option<Duration> {
    let dim = version.dim();
    let features = vec![1.0_f32; MEASURED_BATCH * dim];
    let offsets = [0.0_f32; MEASURED_BATCH];
    let mut out = Vec::with_capacity(MEASURED_BATCH);
    let score = fastest(|| {
        out.clear();
        version.newcomer.estimate_all(&version.learning, black_box(&offsets), black_box(&features), &mut out);
        black_box(&out);
    });
    let cache = PredictionCache::unreported(usize::MAX);
    let keys: Vec<PredictionKey> = (0..MEASURED_KEYS).map(key).collect();
    let estimate = Estimate { score: 0.0, std_error: 1.0, label_std: 1.0 };
    for key in &keys {
        cache.insert(key.clone(), estimate);
    }
    let mut batches = keys.chunks_exact(MEASURED_BATCH).cycle();
    let look_up = fastest(|| {
        for key in batches.next().into_iter().flatten() {
            black_box(cache.get(&black_box(key).clone()));
        }
    });
    score.checked_sub(look_up).filter(|gain| !gain.is_zero()).map(|gain| gain / MEASURED_BATCH as u32)
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
