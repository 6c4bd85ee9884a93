//! Removes the old bytes of erased decisions from the disk.
//!
//! The write that deletes a user's decisions also notes their models. The note is deleted once the
//! bytes are gone, so that a process that is killed in between completes it at its next start.

use std::ops::ControlFlow;

use celeris_model::ModelId;

use super::Shared;
use crate::database::{Access, Batch, Column, Durability, KeyRange};
use crate::error::StorageError;
use crate::layout::envelope::sealed;
use crate::layout::keys::{self, KeyReader};

/// Notes that the sorted files may have deleted decisions of a model.
pub(super) fn note(batch: &mut Batch, model: ModelId) {
    let key = keys::unscrubbed_decisions(model);
    batch.put(Column::DecisionsErased, &key, &sealed(&key, &[]));
}

impl Shared {
    pub(super) fn is_unscrubbed(&self, model: ModelId) -> Result<bool, StorageError> {
        Ok(self.database.get(Column::DecisionsErased, &keys::unscrubbed_decisions(model))?.is_some())
    }

    /// Rewrites the decisions of models, and deletes their notes. Blocks the thread.
    pub(super) fn scrub(&self, models: &[ModelId]) -> Result<(), StorageError> {
        let database = &self.database;
        database.flush()?;
        for model in models {
            let range = KeyRange::prefix(keys::of_model(*model));
            database.compact(Column::DecidedFor, &range)?;
            database.compact(Column::Decisions, &range)?;
            database.compact(Column::RankingEvents, &range)?;
        }
        // These changes, one of them without content, have the manifest rewritten without the
        // deleted files.
        let mut batch = database.batch();
        batch.delete(Column::DecidedFor, &[]);
        batch.delete(Column::RankingEvents, &[]);
        for model in models {
            batch.delete(Column::DecisionsErased, &keys::unscrubbed_decisions(*model));
        }
        batch.commit(Durability::Synced)?;
        database.flush()
    }

    /// Completes the erasures during which the process ended.
    pub(super) fn scrub_unfinished(&self) -> Result<(), StorageError> {
        let _erasing = self.erasing.lock();
        let mut models = Vec::new();
        self.database.scan(Column::DecisionsErased, KeyRange::from(Vec::new()), Access::Lookup, |key, _| {
            let model = KeyReader::new(key).number().map(ModelId);
            models.extend(model.filter(|model| key == keys::unscrubbed_decisions(*model)));
            Ok(ControlFlow::Continue(()))
        })?;
        if models.is_empty() { Ok(()) } else { self.scrub(&models) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::fs;
    use std::path::Path;

    use celeris_model::{UserEpoch, UserId};

    use super::super::stored::tests::decision_of;
    use super::*;
    use crate::options::StorageOptions;
    use crate::store::Storage;

    /// Nothing else in a store has it, and nothing in it is found twice by a compressor.
    const USER: &str = "q7Zk2VxR9bTnW4";

    fn open(dir: &Path) -> Storage {
        Storage::open(dir, &StorageOptions::default()).unwrap()
    }

    fn has_user(dir: &Path) -> bool {
        let has = |bytes: Vec<u8>| bytes.windows(USER.len()).any(|window| window == USER.as_bytes());
        fs::read_dir(dir.join("decisions")).unwrap().any(|entry| has(fs::read(entry.unwrap().path()).unwrap()))
    }

    #[test]
    fn an_erasure_that_a_kill_has_interrupted_is_completed_by_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let (user, model) = (UserId::new(USER).unwrap(), ModelId(7));
        let storage = open(dir.path());
        assert!(storage.decisions().record(decision_of(USER), None));
        drop(storage);
        let storage = open(dir.path());
        assert!(has_user(dir.path()));
        // Of the erasure only the write is done.
        let shared = &storage.decisions().shared;
        let mut batch = shared.database.batch();
        assert_eq!(shared.erase_from(&mut batch, model, &user).unwrap(), 1);
        note(&mut batch, model);
        batch.commit(Durability::Synced).unwrap();
        drop(storage);
        assert!(has_user(dir.path()));
        let storage = open(dir.path());
        // The client that had no answer asks again.
        let erased = storage.decisions().erase(&[model], &user).unwrap();
        assert_eq!(erased.finish(UserEpoch(301)), 0);
        assert!(!has_user(dir.path()));
    }
}
