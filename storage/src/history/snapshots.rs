//! Snapshots of a user's sums, with which a long history need not be read again when a state is
//! built.
//!
//! A snapshot is a cache, not a source of truth. It passes through the log's queue, after the
//! observations that it sums up, so it is never on disk without them; every amendment of its user
//! deletes it in the same atomic write.

use std::ops::ControlFlow;

use celeris_model::{GramSums, ModelId, Partition, StreamName, UserEpoch, UserId, VersionId};

use super::Histories;
use crate::database::{Access, Column, KeyRange};
use crate::error::StorageError;
use crate::layout::envelope::{begin, corrupt, seal, unseal};
use crate::layout::keys;
use crate::log::SNAPSHOT_EPOCH_MIN;
use celeris_model::wire::{Reader, Writer};

/// The sums over the first observations of a user, [`celeris_model::canonical::CHECKPOINT_EVERY`]
/// or more, under one version of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The version whose features were summed.
    pub version: VersionId,
    /// Identifies the learning rule and the features; chosen and compared by the caller.
    pub rule: u64,
    /// The epoch of the last observation in the sums.
    pub epoch: UserEpoch,
    /// The epoch of the last amendment (correction, retraction or erasure) of the user when the
    /// sums were computed, 0 if there was none. The sums are valid only while no later amendment
    /// has been appended, durable or not.
    pub amended: UserEpoch,
    pub sums: GramSums,
}

impl Histories<'_> {
    /// Stores a snapshot of a user's state under a model, replacing the previous one. It is written
    /// after all earlier appends, asynchronously.
    ///
    /// The caller guarantees that it holds off other appends for the user, and that the sums are
    /// those of the user's observations up to the epoch, as in the log once it is written.
    ///
    /// # Errors
    /// `Overloaded`, `StorageFull`, `Poisoned`, `Closed`, `NotOwner` or `Fenced`; the snapshot is not stored then, and
    /// nothing is lost.
    pub fn keep_snapshot(
        &self,
        stream: &StreamName,
        model: ModelId,
        user: &UserId,
        snapshot: &Snapshot,
    ) -> Result<(), StorageError> {
        debug_assert!(snapshot.epoch >= SNAPSHOT_EPOCH_MIN, "only long histories have snapshots");
        self.log.keep_snapshot(Partition::of(user), encode(keys::snapshot(stream, user, model), snapshot))
    }

    /// The snapshot of a user's state under a model, if there is one.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn snapshot(
        &self,
        stream: &StreamName,
        model: ModelId,
        user: &UserId,
    ) -> Result<Option<Snapshot>, StorageError> {
        let key = keys::snapshot(stream, user, model);
        let Some(value) = self.database.get(Column::Snapshots, &key)? else { return Ok(None) };
        let snapshot = decode(unseal(Column::Snapshots, &key, &value)?);
        snapshot.map(Some).ok_or_else(|| corrupt(Column::Snapshots, &key, "it holds no sums"))
    }

    /// Deletes all snapshots of a model, except those in the queue.
    pub(crate) fn delete_snapshots(&self, model: ModelId) -> Result<(), StorageError> {
        let mut keys = Vec::new();
        self.database.scan(Column::Snapshots, KeyRange::from(Vec::new()), Access::Sweep, |key, _| {
            if keys::model_of_snapshot(key).is_some_and(|of| of == model) {
                keys.push(key.to_vec());
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let mut batch = self.database.batch();
        keys.iter().for_each(|key| batch.delete(Column::Snapshots, key));
        self.log.write_derived(batch)
    }
}

fn encode(key: Vec<u8>, Snapshot { version, rule, epoch, amended, sums }: &Snapshot) -> (Vec<u8>, Vec<u8>) {
    let mut value = Writer(begin());
    value.varint(version.0);
    value.varint(epoch.0);
    value.varint(amended.0);
    value.0.extend_from_slice(&rule.to_le_bytes());
    value.0.extend_from_slice(&sums.to_bytes());
    seal(&key, &mut value.0);
    (key, value.0)
}

fn decode(body: &[u8]) -> Option<Snapshot> {
    let mut body = Reader(body);
    let version = VersionId(body.varint()?);
    let (epoch, amended) = (UserEpoch(body.varint()?), UserEpoch(body.varint()?));
    let (rule, sums) = body.0.split_first_chunk()?;
    Some(Snapshot { version, rule: u64::from_le_bytes(*rule), epoch, amended, sums: GramSums::from_bytes(sums)? })
}
