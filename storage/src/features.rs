//! Item features: those given by callers, and those frozen by versions.

use celeris_model::{FeatureOrigin, ItemId, ModelId, VersionId};
use serde::{Deserialize, Serialize};

use crate::database::Column;
use crate::envelope::{corrupt, sealed, unseal};
use crate::error::StorageError;
use crate::items::Items;
use crate::keys;
use crate::log::CommitPosition;

/// The features that a caller has given for an item; versions created later use them.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemFeatures {
    /// The features as given.
    pub features: Vec<f32>,
    /// Increases with every change of the item's features, also across a deletion; not consecutive.
    pub revision: u64,
}

/// The features of one item that a version uses from the first observation that it learnt from on.
#[derive(Debug, Clone, PartialEq)]
pub struct FrozenFeatures {
    pub model: ModelId,
    pub version: VersionId,
    pub item: ItemId,
    pub offset: f32,
    /// Length `dim`, the last entry 1.
    pub features: Vec<f32>,
    pub origin: FeatureOrigin,
}

/// The field order is the stored order (postcard).
#[derive(Serialize, Deserialize)]
struct StoredFeatures {
    revision: u64,
    features: Vec<f32>,
}

/// The field order is the stored order (postcard). `origin` is an index into [`ORIGINS`].
#[derive(Serialize, Deserialize)]
struct StoredFrozen {
    offset: f32,
    features: Vec<f32>,
    origin: u8,
}

/// Origins by their stored byte; the order is part of the format.
const ORIGINS: [FeatureOrigin; 4] =
    [FeatureOrigin::Trained, FeatureOrigin::Given, FeatureOrigin::Attributes, FeatureOrigin::StandIn];

impl Items<'_> {
    /// The features that a caller has given for an item.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn given_features(&self, model: ModelId, item: &ItemId) -> Result<Option<ItemFeatures>, StorageError> {
        let stored = self.get_stored(Column::ItemFeatures, &keys::item_features(model, item))?;
        Ok(stored.map(|StoredFeatures { revision, features }| ItemFeatures { features, revision }))
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
        let key = keys::frozen(model, version, item);
        let Some(stored) = self.get_stored(Column::Frozen, &key)? else { return Ok(None) };
        let StoredFrozen { offset, features, origin } = stored;
        let unknown = || corrupt(Column::Frozen, &key, "it has an unknown origin");
        let origin = *ORIGINS.get(usize::from(origin)).ok_or_else(unknown)?;
        Ok(Some(FrozenFeatures { model, version, item: item.clone(), offset, features, origin }))
    }

    /// Freezes the features of an item under a version, after all earlier appends; durable at the returned position.
    ///
    /// The caller guarantees that an item of a version is always frozen with the same features. The write is accepted
    /// even if the disk is nearly full: without it the state that learns from the features could not be rebuilt.
    ///
    /// # Errors
    /// `Overloaded`, `Poisoned` or `Closed`; nothing is frozen then.
    pub fn freeze(&self, frozen: &FrozenFeatures) -> Result<CommitPosition, StorageError> {
        self.0.log().freeze(encode_frozen(frozen))
    }

    /// Deletes the features frozen by a version of a model. Returns once the deletion is durable.
    ///
    /// # Errors
    /// `Poisoned`, `Closed` or `Database`.
    pub fn delete_frozen(&self, model: ModelId, version: VersionId) -> Result<(), StorageError> {
        let mut batch = self.0.database().batch();
        batch.delete_prefix(Column::Frozen, &keys::frozen_by(model, version));
        self.0.commit(batch)
    }

    fn get_stored<T: for<'de> Deserialize<'de>>(&self, column: Column, key: &[u8]) -> Result<Option<T>, StorageError> {
        let Some(value) = self.0.database().get(column, key)? else { return Ok(None) };
        let body = unseal(column, key, &value)?;
        postcard::from_bytes(body).map(Some).map_err(|error| corrupt(column, key, &error.to_string()))
    }
}

/// Key and value of features given by a caller.
pub(crate) fn encode_given(model: ModelId, item: &ItemId, revision: u64, features: &[f32]) -> (Vec<u8>, Vec<u8>) {
    let key = keys::item_features(model, item);
    let value = encode(&key, &StoredFeatures { revision, features: features.to_vec() });
    (key, value)
}

/// Key and value of an item's frozen features.
pub(crate) fn encode_frozen(frozen: &FrozenFeatures) -> (Vec<u8>, Vec<u8>) {
    let key = keys::frozen(frozen.model, frozen.version, &frozen.item);
    let place = (0_u8..).zip(ORIGINS).find_map(|(place, origin)| (origin == frozen.origin).then_some(place));
    let origin = place.expect("every origin has a place");
    let value = encode(&key, &StoredFrozen { offset: frozen.offset, features: frozen.features.clone(), origin });
    (key, value)
}

fn encode(key: &[u8], stored: &impl Serialize) -> Vec<u8> {
    sealed(key, &to_bytes(stored))
}

fn to_bytes(stored: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(stored, Vec::new()).expect("a vector takes any bytes, and every length is known")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn feature_values_keep_their_stored_format() {
        let put = encode(b"k", &StoredFeatures { revision: 300, features: vec![0.5, 1.0] });
        assert_eq!(keys::hex(unseal(Column::ItemFeatures, b"k", &put).unwrap()), "ac02020000003f0000803f");
        for (place, origin) in ORIGINS.into_iter().enumerate() {
            let frozen = FrozenFeatures {
                model: ModelId(7),
                version: VersionId(3),
                item: ItemId::new("m1").unwrap(),
                offset: -1.0,
                features: vec![1.0],
                origin,
            };
            let (key, value) = encode_frozen(&frozen);
            let hex = keys::hex(unseal(Column::Frozen, &key, &value).unwrap());
            assert_eq!(hex, format!("000080bf010000803f0{place}"));
        }
    }
}
