//! The holdout: records that a training leaves out, on which its version is evaluated.
//!
//! Half of the records of the newest part of the log are drawn by a hash of their position: every
//! later training of the same log leaves out the same records, as long as no holdout begins before
//! an earlier one. Hence the rule of [`Holdout::of`]: whatever the configured share, a holdout
//! begins after the part of the log that the active version was fully trained on.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use celeris_model::{Partition, RecordKind, Sequence, UserId};
use celeris_storage::{LogRange, Storage, Watermark};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

use crate::error::ManagerError;
use crate::settings::ModelConfig;

/// Largest holdout, in records: enough to measure differences of 0.1 %, and evaluated within
/// seconds.
pub const HOLDOUT_RECORDS_MAX: u64 = 20_000;

/// A small log's holdout exceeds the configured share, up to this number of records.
const HOLDOUT_RECORDS_MIN: u64 = 50;

/// At most one in this many records of a log is held out.
const HOLDOUT_PART_MAX: u64 = 5;

/// Seed of the order of users.
const ORDER_SEED: u64 = 4;

/// The held-out records: those drawn after `from`, up to `to`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Holdout {
    pub(crate) from: Watermark,
    pub(crate) to: Watermark,
}

impl Holdout {
    /// The holdout of a log that ends at `to`: drawn from the newest records of each partition, in
    /// proportion to its size, except those up to `trained`, on which the active version was fully
    /// trained.
    pub(crate) fn of(to: Watermark, share: f64, trained: &Watermark) -> Self {
        let records = to.records();
        let wanted = (records as f64 * share).round() as u64;
        let records_held = if share > 0.0 {
            wanted.clamp(HOLDOUT_RECORDS_MIN, HOLDOUT_RECORDS_MAX).min(records / HOLDOUT_PART_MAX)
        } else {
            0
        };
        let records_newest = 2 * records_held;
        let mut from = to.clone();
        let mut seen: u64 = 0;
        let held_by = |seen: u64| (u128::from(records_newest) * u128::from(seen) / u128::from(records.max(1))) as u64;
        for partition in Partition::all() {
            let Sequence(last) = to.get(partition);
            let held = held_by(seen + last) - held_by(seen);
            seen += last;
            from.set(partition, Sequence(last - held));
        }
        Self { from, to }.beginning_behind(trained)
    }

    /// Removes the records up to `trained`. No training up to the end of the holdout has read the
    /// remaining ones: whether a record is drawn depends only on its position.
    pub(crate) fn beginning_behind(mut self, trained: &Watermark) -> Self {
        for partition in Partition::all() {
            self.from.set(partition, self.from.get(partition).max(trained.get(partition)));
        }
        self
    }

    pub(crate) fn holds(&self, partition: Partition, sequence: Sequence) -> bool {
        sequence > self.from.get(partition) && sequence <= self.to.get(partition) && is_drawn(partition, sequence)
    }

    /// The users with observations in the holdout, in random order.
    pub(crate) fn users(&self, storage: &Storage, config: &ModelConfig) -> Result<Vec<UserId>, ManagerError> {
        let mut users: BTreeMap<UserId, ()> = BTreeMap::new();
        for partition in Partition::all() {
            let (after, up_to) = (self.from.get(partition), self.to.get(partition));
            let range = LogRange { stream: config.stream.clone(), partition, after, up_to };
            let _whole: ControlFlow<()> = storage.log().scan(&range, |sequence, record| {
                if record.kind == RecordKind::Observe && self.holds(partition, sequence) {
                    users.insert(record.user, ());
                }
                ControlFlow::Continue(())
            })?;
        }
        let mut users: Vec<UserId> = users.into_keys().collect();
        // Shuffled, so that an evaluation that reaches its time limit has covered a random sample
        // of users.
        rand::seq::SliceRandom::shuffle(&mut users[..], &mut ChaCha8Rng::seed_from_u64(ORDER_SEED));
        Ok(users)
    }
}

/// Whether the record at this position is held out while it is new, which is true for half of them:
/// one bit of SplitMix64 (Steele, Lea & Flood 2014).
fn is_drawn(partition: Partition, Sequence(sequence): Sequence) -> bool {
    let mut bits = (sequence + (u64::from(partition.index()) << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ (bits >> 31)) & 1 == 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn log(sequences: impl Fn(u64) -> u64) -> Watermark {
        let sequences: Vec<u64> = (0..64).map(sequences).collect();
        serde_json::from_value(serde_json::json!(sequences)).unwrap()
    }

    #[test]
    fn a_holdout_is_half_of_the_newest_records_of_every_partition_within_its_bounds() {
        for (log, share, expected) in [
            (log(|partition| partition * 100), 0.05, 10_080),
            (log(|_| 10_000), 0.05, HOLDOUT_RECORDS_MAX),
            (log(|partition| u64::from(partition < 5) * 100), 0.05, HOLDOUT_RECORDS_MIN),
            (log(|partition| u64::from(partition == 7) * 20), 0.05, 4),
            (log(|_| 1000), 0.0, 0),
            (log(|_| 0), 0.05, 0),
        ] {
            let holdout = Holdout::of(log.clone(), share, &Watermark::start());
            assert_eq!(log.records() - holdout.from.records(), 2 * expected);
            let records = Partition::all()
                .flat_map(|partition| (1..=log.get(partition).0).map(move |sequence| (partition, Sequence(sequence))));
            let held = records.filter(|(partition, sequence)| holdout.holds(*partition, *sequence)).count() as f64;
            // Four standard deviations of a binomial distribution with p = 1/2.
            let deviation = 4.0 * (2.0 * expected as f64).sqrt() / 2.0;
            assert!((held - expected as f64).abs() <= deviation, "{held} of {expected} are held out");
            for partition in Partition::all() {
                let (all, kept) = (log.get(partition).0, holdout.from.get(partition).0);
                let part = 2.0 * expected as f64 * all as f64 / log.records().max(1) as f64;
                assert!((all - kept) as f64 >= part.floor() && (all - kept) as f64 <= part.ceil(), "in proportion");
            }
        }
    }

    /// The records that a version was trained on: the log without the holdout of its training, and
    /// those of the version before.
    #[derive(Clone, Default)]
    struct Version {
        read: HashSet<(u8, u64)>,
        tail_from: Option<Watermark>,
    }

    proptest! {
        /// For any growth of the log, changes of the share, cold or warm trainings and any active
        /// version: no record of a holdout was used to train the active version or the candidate.
        #[test]
        fn no_holdout_contains_records_that_either_version_was_trained_on(
            steps in prop::collection::vec(
                (prop::collection::vec(0_u64..40, 8), 0.0..=0.5_f64, any::<prop::sample::Index>(), any::<bool>()),
                1..8,
            ),
        ) {
            let mut lengths = [0_u64; 64];
            let mut versions = vec![Version::default()];
            for (grown, share, serving, warm) in steps {
                for (place, more) in grown.iter().enumerate() {
                    lengths[place * 8] += more;
                }
                let serving = versions[serving.index(versions.len())].clone();
                let trained = serving.tail_from.clone().unwrap_or_else(Watermark::start);
                let holdout = Holdout::of(log(|partition| lengths[partition as usize]), share, &trained);
                let mut read = if warm { serving.read.clone() } else { HashSet::new() };
                for partition in Partition::all() {
                    for sequence in 1..=lengths[usize::from(partition.index())] {
                        let record = (partition.index(), sequence);
                        if holdout.holds(partition, Sequence(sequence)) {
                            prop_assert!(!serving.read.contains(&record) && !read.contains(&record), "{record:?}");
                        } else {
                            read.insert(record);
                        }
                    }
                }
                versions.push(Version { read, tail_from: Some(holdout.from) });
            }
        }
    }
}
