//! How far a node of a cluster has given default rewards.
//!
//! The decisions of a user are on the node that owned the user's shard when they were made, and so
//! is the progress over them: the registry of the cluster has only where each model begins, and a
//! file of the node how far it is. The file may be lost: the same decisions are then read again
//! without effect.
//!
//! Only the owner of a shard can give rewards to its users. If a shard moves, the decisions that the
//! former owner has made stay with it: it waits for a while, in case the shard comes back, and then
//! leaves their slots without a reward. The decisions of a node that is lost are lost with it;
//! rewards for them join none, as those of any decision that is not found.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use celeris_model::{DecisionId, ModelId, Shard};
use celeris_storage::Storage;

use crate::error::ManagerError;

/// How long the decisions for users of a shard that another node owns wait for the shard to return.
const WAITS_FOR_SHARD: Duration = Duration::from_secs(60);

/// What to do with the decisions for a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// This node owns the user.
    Give,
    /// It may own the user again soon.
    Wait,
    /// Another node has owned the user for long.
    Skip,
}

/// The progress of a node of a cluster.
pub(super) struct Progress {
    storage: Storage,
    /// By model; `None` before the file is read.
    reached: Option<BTreeMap<ModelId, DecisionId>>,
    /// Since when the node has not owned a shard.
    without: HashMap<Shard, Instant>,
}

impl Progress {
    pub(super) fn new(storage: Storage) -> Self {
        Self { storage, reached: None, without: HashMap::new() }
    }

    fn file(&self) -> PathBuf {
        self.storage.dir().join("default_rewards.json")
    }

    /// Notes which shards the node owns at this time.
    pub(super) fn look(&mut self, now: Instant) {
        let log = self.storage.log();
        for shard in log.shards().all() {
            if log.owns(shard) {
                self.without.remove(&shard);
            } else {
                self.without.entry(shard).or_insert(now);
            }
        }
    }

    pub(super) fn turn(&self, shard: Shard, now: Instant) -> Turn {
        match self.without.get(&shard) {
            None => Turn::Give,
            Some(since) if now.duration_since(*since) < WAITS_FOR_SHARD => Turn::Wait,
            Some(_) => Turn::Skip,
        }
    }

    /// The decision up to which the rewards of a model are given, at least `begin`.
    pub(super) fn of(&mut self, model: ModelId, begin: DecisionId) -> DecisionId {
        let reached = self.read().entry(model).or_insert_with(|| begin.clone());
        if *reached < begin {
            *reached = begin;
        }
        reached.clone()
    }

    /// Forgets the models for which `is_wanted` does not hold.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(ModelId) -> bool) {
        self.read().retain(|model, _| is_wanted(*model));
    }

    /// Moves on to a decision, in the file too. The file is replaced as a whole.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn moved(&mut self, model: ModelId, decision: DecisionId) -> Result<(), ManagerError> {
        let reached = self.read();
        reached.insert(model, decision);
        let text = serde_json::to_vec(&reached).expect("ids are texts");
        let file = self.file();
        let draft = file.with_extension("json.tmp");
        fs::write(&draft, text).and_then(|()| fs::rename(&draft, &file)).map_err(ManagerError::io(file))
    }

    fn read(&mut self) -> &mut BTreeMap<ModelId, DecisionId> {
        let file = self.file();
        self.reached.get_or_insert_with(|| {
            let text = fs::read(&file).ok();
            text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::{Shards, Timestamp};
    use celeris_storage::{ClusterIdentity, StorageOptions};

    use super::*;

    #[test]
    fn progress_is_kept_and_decisions_of_lost_shards_wait_before_they_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let (shards, hash_key) = (Shards::new(2).unwrap(), [1; 16]);
        let identity = ClusterIdentity { name: "test".to_owned(), incarnation: 1, shards, hash_key };
        let storage = Storage::open_replica(dir.path(), &StorageOptions::default(), &identity).unwrap();
        let id = |time| DecisionId::first_at(Timestamp(time));
        let mut progress = Progress::new(storage.clone());
        assert_eq!(progress.of(ModelId(1), id(5)), id(5));
        progress.moved(ModelId(1), id(9)).unwrap();
        assert_eq!(progress.of(ModelId(1), id(5)), id(9));
        let mut restarted = Progress::new(storage);
        assert_eq!(restarted.of(ModelId(1), id(5)), id(9));
        assert_eq!(restarted.of(ModelId(1), id(12)), id(12), "the setting was changed");
        let begun = Instant::now();
        restarted.look(begun);
        let shard = shards.get(1).unwrap();
        assert_eq!(restarted.turn(shard, begun), Turn::Wait);
        let later = begun + WAITS_FOR_SHARD;
        restarted.look(later);
        assert_eq!(restarted.turn(shard, later), Turn::Skip);
    }
}
