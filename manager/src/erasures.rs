//! Which versions still know of an erased user.
//!
//! A user's state forgets at once, but a version's shared parameters were trained on what the log held then. A version
//! knows of an erased user if its training read the log from behind the user's first event, and before the erasure. A
//! later training from nothing reads what the log holds by then, in which the user never was, so its version does not know
//! of them. A training that goes on from an earlier version takes over the factors of the last training from nothing
//! before it (`celeris_retrain::refresh`), and its version knows of everyone of whom either of the two does. So a training
//! begins from nothing by itself where those factors know of an erased user, and the first after an erasure is clean of it.

use celeris_model::{ModelName, Partition, Sequence, StreamName, VersionId};
use celeris_storage::{Erasure, Watermark};

use crate::error::ManagerError;
use crate::manager::Manager;
use crate::records::{ModelRecord, VersionRecord, WarmRecord, models_key, versions_key};

/// One erasure of a stream's log: what the user had said lay from `first` up to `at`, where it was erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErasedSpan {
    /// The user's partition.
    pub partition: Partition,
    /// The user's first event since they were last unknown.
    pub first: Sequence,
    /// The erasure itself.
    pub at: Sequence,
}

impl From<&Erasure> for ErasedSpan {
    fn from(erasure: &Erasure) -> Self {
        Self { partition: erasure.partition, first: erasure.first, at: erasure.at }
    }
}

/// A version that knows of an erased user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnowingVersion {
    /// Its model.
    pub model: ModelName,
    /// Its number.
    pub version: VersionId,
    /// Whether it is the one that serves, if its model does.
    pub active: bool,
}

/// Whether a training up to this watermark has read what was erased later.
#[must_use]
pub fn trained_on_erased(watermark: &Watermark, erased: ErasedSpan) -> bool {
    let read_up_to = watermark.get(erased.partition);
    read_up_to >= erased.first && read_up_to < erased.at
}

/// How many of these erased users a version knows of. One that was never trained on the log knows of nobody.
#[must_use]
pub fn erased_users(version: &VersionRecord, erasures: &[ErasedSpan]) -> usize {
    let Some(watermark) = &version.watermark else { return 0 };
    let began_with = |erased| version.warm.is_some() && begins_with(version, erased);
    erasures.iter().filter(|erased| trained_on_erased(watermark, **erased) || began_with(**erased)).count()
}

/// How many of these erased users a version would know of that goes on from this one now.
pub(crate) fn began_with_erased(version: &VersionRecord, erasures: &[ErasedSpan]) -> usize {
    erasures.iter().filter(|erased| begins_with(version, **erased)).count()
}

/// Whether the training from nothing that the version holds the factors of has read what was erased later.
fn begins_with(version: &VersionRecord, erased: ErasedSpan) -> bool {
    match (&version.warm, &version.watermark) {
        (None, None) => false,
        (None, Some(watermark)) => trained_on_erased(watermark, erased),
        // What cannot be read may have been anywhere.
        (Some(WarmRecord { cold_watermark: None, .. }), _) => true,
        (Some(WarmRecord { cold_watermark: Some(cold), .. }), _) => trained_on_erased(cold, erased),
    }
}

impl Manager {
    /// The versions that know of an erased user, of all models on the stream, in service or not; by model, oldest first.
    /// What cannot be read may be on any stream and may know of anybody.
    ///
    /// # Errors
    /// `Storage`.
    pub fn versions_knowing(
        &self,
        stream: &StreamName,
        erased: ErasedSpan,
    ) -> Result<Vec<KnowingVersion>, ManagerError> {
        let mut knowing = Vec::new();
        for (key, record) in self.storage.list_registry::<ModelRecord>(&models_key()?)? {
            let Some(Ok(model)) = key.parts().get(1).map(|name| ModelName::new(name.as_str())) else { continue };
            let record = record.ok();
            if record.as_ref().is_some_and(|record| record.config.stream != *stream) {
                continue;
            }
            for (key, version) in self.storage.list_registry::<VersionRecord>(&versions_key(&model)?)? {
                let number = key.parts().last().and_then(|number| number.parse().ok()).map(VersionId);
                let knows = version.map_or(true, |version| erased_users(&version, &[erased]) > 0);
                if let Some(version) = number.filter(|_| knows) {
                    let active = record.as_ref().is_some_and(|record| record.active == version);
                    knowing.push(KnowingVersion { model: model.clone(), version, active });
                }
            }
        }
        Ok(knowing)
    }

    /// One version of a model.
    ///
    /// # Errors
    /// `UnknownVersion` or `Storage`.
    pub fn version(&self, model: &ModelName, version: VersionId) -> Result<VersionRecord, ManagerError> {
        let found = self.storage.registry(&crate::records::version_key(model, version)?)?;
        found.ok_or_else(|| ManagerError::UnknownVersion { model: model.clone(), version })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    /// A watermark at `sequence` in partition 3 and at 100 in all others.
    fn watermark(sequence: u64) -> Watermark {
        let sequences: Vec<u64> = (0..64).map(|partition| if partition == 3 { sequence } else { 100 }).collect();
        serde_json::from_value(serde_json::json!(sequences)).unwrap()
    }

    #[test]
    fn only_trainings_between_the_first_event_and_the_erasure_know_of_the_user() {
        let partition = Partition::from_index(3).unwrap();
        let erased = ErasedSpan { partition, first: Sequence(10), at: Sequence(20) };
        for (read_up_to, knows) in [(0, false), (9, false), (10, true), (19, true), (20, false), (50, false)] {
            assert_eq!(trained_on_erased(&watermark(read_up_to), erased), knows, "trained up to {read_up_to}");
        }
    }

    #[test]
    fn a_version_knows_whom_the_training_that_it_went_on_from_knew() {
        let partition = Partition::from_index(3).unwrap();
        let erased = ErasedSpan { partition, first: Sequence(10), at: Sequence(20) };
        // From nothing up to the first number, then on up to the second.
        let cases = [(15, 16, 1), (15, 50, 1), (5, 15, 1), (5, 9, 0), (5, 50, 0), (20, 50, 0)];
        for (cold, read, knows) in cases {
            let warm = WarmRecord { from: VersionId(1), cold_watermark: Some(watermark(cold)) };
            let mut version = version(&watermark(read));
            version.warm = Some(warm);
            assert_eq!(erased_users(&version, &[erased]), knows, "from nothing up to {cold}, then on up to {read}");
            let next = began_with_erased(&version, &[erased]);
            assert_eq!(next, usize::from(trained_on_erased(&watermark(cold), erased)), "from nothing up to {cold}");
            version.warm = Some(WarmRecord { from: VersionId(1), cold_watermark: None });
            assert_eq!(erased_users(&version, &[erased]), 1, "nobody knows where it began");
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
