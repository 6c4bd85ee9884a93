//! Item features: those given by callers, and those frozen by versions.

use std::ops::ControlFlow;

use celeris_model::{ItemId, ModelId, Shard, Shards, VersionId};

use super::Items;
use crate::database::{Access, Change, Column, Database, Durability, KeyRange};
use crate::error::StorageError;
use crate::layout::envelope::{corrupt, sealed, unseal};
use crate::layout::features::{self, FrozenFeatures, ItemFeatures};
use crate::layout::keys;
use crate::log::Ticket;

/// Entries that [`freeze_for_all`] writes with one sync.
const COPIED_AT_ONCE: usize = 1 << 14;

/// Copies the features that a node on its own has frozen, in its only shard, to all shards of a cluster.
///
/// # Errors
/// `Corrupt`, `CorruptLog` or `Database`; the call can be repeated.
pub(crate) fn freeze_for_all(database: &Database, shards: Shards) -> Result<(), StorageError> {
    let mut batch = database.batch();
    let mut copied = 0;
    database.scan(Column::Frozen, KeyRange::from(Vec::new()), Access::Sweep, |key, value| {
        let body = unseal(Column::Frozen, key, value)?;
        let malformed = || corrupt(Column::Frozen, key, "its key names no item of a version");
        for shard in shards.all() {
            let key = keys::frozen_in(key, shard).ok_or_else(malformed)?;
            batch.put(Column::Frozen, &key, &sealed(&key, body));
            copied += 1;
        }
        if copied >= COPIED_AT_ONCE {
            copied = 0;
            std::mem::replace(&mut batch, database.batch()).commit(Durability::Synced)?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    batch.commit(Durability::Synced)
}

impl Items<'_> {
    /// The features that a caller has given for an item.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn given_features(&self, model: ModelId, item: &ItemId) -> Result<Option<ItemFeatures>, StorageError> {
        let key = keys::item_features(model, item);
        let value = self.database.get(Column::ItemFeatures, &key)?;
        value.map(|value| features::decode_given(&key, &value)).transpose()
    }

    /// The features that a version has frozen for an item and the users of a shard, if it has learnt
    /// from one of them.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn frozen(
        &self,
        of: (ModelId, VersionId),
        shard: Shard,
        item: &ItemId,
    ) -> Result<Option<FrozenFeatures>, StorageError> {
        let value = self.database.get(Column::Frozen, &keys::frozen(of, shard, item))?;
        value.map(|value| features::decode_frozen(of, shard, item, &value)).transpose()
    }

    /// Freezes the features of an item under a version for the users of a shard, after all earlier
    /// appends to the shard; durable with the returned ticket.
    ///
    /// The caller guarantees that a shard freezes an item of a version only once. The
    /// write is accepted even if the disk is nearly full: without it the state that learns from the
    /// features could not be rebuilt.
    ///
    /// # Errors
    /// `Overloaded`, `Poisoned`, `Closed`, `NotOwner` or `Fenced`; nothing is frozen then.
    pub fn freeze(&self, shard: Shard, frozen: &FrozenFeatures) -> Result<Ticket, StorageError> {
        self.log.freeze(shard, features::encode_frozen(shard, frozen))
    }

    /// Deletes the features frozen by a version of a model. Returns once the deletion is durable.
    ///
    /// # Errors
    /// `Poisoned`, `Closed`, `NotOwner`, `Fenced` or `Database`.
    pub fn delete_frozen(&self, model: ModelId, version: VersionId) -> Result<(), StorageError> {
        let change = Change::DeletePrefix(Column::Frozen, keys::frozen_by(model, version));
        self.catalog.commit(|_| vec![change]).map(drop)
    }
}
