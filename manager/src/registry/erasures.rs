//! Finds the versions that were trained on the data of an erased user.
//!
//! Erasure deletes a user's state at once, but the shared parameters of a version were trained on
//! the log as it was then. A version was trained on an erased user if its training read the log at
//! a position after the user's first event and before the erasure. A later cold training reads the
//! log without the user's events, so its version is clean. A warm training also reuses the factors
//! of the latest cold training before it (`celeris_retrain::refresh`), so its version is affected
//! if either of the two trainings read the user's data. A training therefore starts cold if those
//! factors were trained on an erased user, and the first training after an erasure is clean.

use celeris_model::{ModelName, Partition, Sequence, StreamName, VersionId};
use celeris_storage::{Erasure, Watermark};

use super::keys::{models_key, versions_key};
use super::{ModelRecord, Registry, VersionRecord, WarmRecord};
use crate::error::ManagerError;

/// One erasure in a stream's log: the user's events lie from `first` up to `at`, the erasure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErasedSpan {
    pub partition: Partition,
    /// The user's first event since the previous erasure, if any.
    pub first: Sequence,
    /// The erasure event.
    pub at: Sequence,
}

impl From<&Erasure> for ErasedSpan {
    fn from(erasure: &Erasure) -> Self {
        Self { partition: erasure.partition, first: erasure.first, at: erasure.at }
    }
}

/// A version that was trained on an erased user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffectedVersion {
    pub model: ModelName,
    pub version: VersionId,
    /// Whether it is the active version of its model.
    pub active: bool,
}

/// Whether a training up to this watermark read events that were erased later.
#[must_use]
pub fn trained_on_erased(watermark: &Watermark, erased: ErasedSpan) -> bool {
    let read_up_to = watermark.get(erased.partition);
    read_up_to >= erased.first && read_up_to < erased.at
}

/// Number of these erased users that a version was trained on; 0 if it was never trained on the
/// log.
#[must_use]
pub fn erased_users(version: &VersionRecord, erasures: &[ErasedSpan]) -> usize {
    let Some(watermark) = &version.watermark else { return 0 };
    let began_with = |erased| version.warm.is_some() && begins_with(version, erased);
    erasures.iter().filter(|erased| trained_on_erased(watermark, **erased) || began_with(**erased)).count()
}

/// Number of these erased users whose data a warm training from this version would inherit.
pub(crate) fn began_with_erased(version: &VersionRecord, erasures: &[ErasedSpan]) -> usize {
    erasures.iter().filter(|erased| begins_with(version, **erased)).count()
}

/// Whether the cold training whose factors the version holds read events that were erased later.
fn begins_with(version: &VersionRecord, erased: ErasedSpan) -> bool {
    match (&version.warm, &version.watermark) {
        (None, None) => false,
        (None, Some(watermark)) => trained_on_erased(watermark, erased),
        // An unreadable watermark is treated as affected.
        (Some(WarmRecord { cold_watermark: None, .. }), _) => true,
        (Some(WarmRecord { cold_watermark: Some(cold), .. }), _) => trained_on_erased(cold, erased),
    }
}

impl Registry {
    /// The versions that were trained on an erased user, of all models on the stream, in service or
    /// not; ordered by model, then oldest first. Versions that cannot be read are included, since
    /// they may be affected.
    ///
    /// # Errors
    /// `Storage`.
    pub fn versions_trained_on(
        &self,
        stream: &StreamName,
        erased: ErasedSpan,
    ) -> Result<Vec<AffectedVersion>, ManagerError> {
        let mut affected = Vec::new();
        for (key, record) in self.storage.registry().list::<ModelRecord>(&models_key()?)? {
            let Some(Ok(model)) = key.parts().get(1).map(|name| ModelName::new(name.as_str())) else { continue };
            let record = record.ok();
            if record.as_ref().is_some_and(|record| record.config.stream != *stream) {
                continue;
            }
            for (key, version) in self.storage.registry().list::<VersionRecord>(&versions_key(&model)?)? {
                let number = key.parts().last().and_then(|number| number.parse().ok()).map(VersionId);
                let is_affected = version.map_or(true, |version| erased_users(&version, &[erased]) > 0);
                if let Some(version) = number.filter(|_| is_affected) {
                    let active = record.as_ref().is_some_and(|record| record.active == version);
                    affected.push(AffectedVersion { model: model.clone(), version, active });
                }
            }
        }
        Ok(affected)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn watermark(sequence: u64) -> Watermark {
        let sequences: Vec<u64> = (0..64).map(|partition| if partition == 3 { sequence } else { 100 }).collect();
        serde_json::from_value(serde_json::json!(sequences)).unwrap()
    }

    #[test]
    fn only_trainings_between_the_first_event_and_the_erasure_are_affected() {
        let partition = Partition::from_index(3).unwrap();
        let erased = ErasedSpan { partition, first: Sequence(10), at: Sequence(20) };
        for (read_up_to, knows) in [(0, false), (9, false), (10, true), (19, true), (20, false), (50, false)] {
            assert_eq!(trained_on_erased(&watermark(read_up_to), erased), knows, "trained up to {read_up_to}");
        }
    }

    #[test]
    fn a_warm_version_inherits_the_erased_users_of_its_cold_training() {
        let partition = Partition::from_index(3).unwrap();
        let erased = ErasedSpan { partition, first: Sequence(10), at: Sequence(20) };
        // Cold training up to the first number, then warm training up to the second.
        let cases = [(15, 16, 1), (15, 50, 1), (5, 15, 1), (5, 9, 0), (5, 50, 0), (20, 50, 0)];
        for (cold, read, knows) in cases {
            let warm = WarmRecord { from: VersionId(1), cold_watermark: Some(watermark(cold)) };
            let mut version = version(&watermark(read));
            version.warm = Some(warm);
            assert_eq!(erased_users(&version, &[erased]), knows, "cold up to {cold}, then warm up to {read}");
            let next = began_with_erased(&version, &[erased]);
            assert_eq!(next, usize::from(trained_on_erased(&watermark(cold), erased)), "cold up to {cold}");
            version.warm = Some(WarmRecord { from: VersionId(1), cold_watermark: None });
            assert_eq!(erased_users(&version, &[erased]), 1, "the cold watermark is unknown");
        }
    }

    fn version(watermark: &Watermark) -> VersionRecord {
        let record = serde_json::json!({
            "version": 2, "parent": 1, "algorithm": "als", "created": 0, "dim": 2, "items": 0, "label_range": null,
            "metrics": {}, "watermark": watermark,
        });
        serde_json::from_value(record).unwrap()
    }
}
