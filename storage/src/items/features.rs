//! Item features: those given by callers, and those frozen by versions.

use celeris_model::{ItemId, ModelId, VersionId};

use super::Items;
use crate::database::Column;
use crate::error::StorageError;
use crate::layout::features::{self, FrozenFeatures, ItemFeatures};
use crate::layout::keys;
use crate::log::CommitPosition;

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

    /// The features that a version has frozen for an item, if it has learnt from it.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn frozen(
        &self,
        model: ModelId,
        version: VersionId,
        item: &ItemId,
    ) -> Result<Option<FrozenFeatures>, StorageError> {
        let value = self.database.get(Column::Frozen, &keys::frozen(model, version, item))?;
        value.map(|value| features::decode_frozen(model, version, item, &value)).transpose()
    }

    /// Freezes the features of an item under a version, after all earlier appends; durable at the
    /// returned position.
    ///
    /// The caller guarantees that an item of a version is always frozen with the same features. The
    /// write is accepted even if the disk is nearly full: without it the state that learns from the
    /// features could not be rebuilt.
    ///
    /// # Errors
    /// `Overloaded`, `Poisoned` or `Closed`; nothing is frozen then.
    pub fn freeze(&self, frozen: &FrozenFeatures) -> Result<CommitPosition, StorageError> {
        self.log.freeze(features::encode_frozen(frozen))
    }

    /// Deletes the features frozen by a version of a model. Returns once the deletion is durable.
    ///
    /// # Errors
    /// `Poisoned`, `Closed` or `Database`.
    pub fn delete_frozen(&self, model: ModelId, version: VersionId) -> Result<(), StorageError> {
        let mut batch = self.database.batch();
        batch.delete_prefix(Column::Frozen, &keys::frozen_by(model, version));
        self.log.commit(batch)
    }
}
