//! The stored form of item features: those given by callers, and those frozen by versions.

use celeris_model::{FeatureOrigin, ItemId, ModelId, Shard, VersionId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::envelope::{corrupt, sealed, unseal};
use super::keys;
use crate::database::Column;
use crate::error::StorageError;

/// The features that a caller has given for an item; versions created later use them.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemFeatures {
    /// The features as given.
    pub features: Vec<f32>,
    /// Increases with every change of the item's features, also across a deletion; not consecutive.
    pub revision: u64,
}

/// The features of one item that a version uses for the users of a shard, from the first observation
/// that it learnt from there on.
#[derive(Debug, Clone, PartialEq)]
pub struct FrozenFeatures {
    pub model: ModelId,
    pub version: VersionId,
    pub item: ItemId,
    pub offset: f32,
    /// Length `dim`, the last entry 1.
    pub features: Vec<f32>,
    pub origin: FeatureOrigin,
    /// The attributes from which computed parts of the features are recomputed; `None` if there are none.
    pub attributes: Option<Map<String, Value>>,
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

/// Key and value of features given by a caller.
pub(crate) fn encode_given(model: ModelId, item: &ItemId, revision: u64, features: &[f32]) -> (Vec<u8>, Vec<u8>) {
    let key = keys::item_features(model, item);
    let value = encode(&key, &StoredFeatures { revision, features: features.to_vec() });
    (key, value)
}

/// Key and value of an item's frozen features.
pub(crate) fn encode_frozen(shard: Shard, frozen: &FrozenFeatures) -> (Vec<u8>, Vec<u8>) {
    let key = keys::frozen((frozen.model, frozen.version), shard, &frozen.item);
    let place = (0_u8..).zip(ORIGINS).find_map(|(place, origin)| (origin == frozen.origin).then_some(place));
    let origin = place.expect("every origin has a place");
    let stored = StoredFrozen { offset: frozen.offset, features: frozen.features.clone(), origin };
    let body = postcard::to_extend(&stored, Vec::new());
    let mut body = body.expect("a vector takes any bytes, and every length is known");
    // Attributes are JSON up to the end, and nothing if there are none.
    if let Some(attributes) = &frozen.attributes {
        serde_json::to_writer(&mut body, attributes).expect("JSON values have text keys");
    }
    let value = sealed(&key, &body);
    (key, value)
}

fn encode(key: &[u8], stored: &impl Serialize) -> Vec<u8> {
    let body = postcard::to_extend(stored, Vec::new());
    sealed(key, &body.expect("a vector takes any bytes, and every length is known"))
}

/// The features that a caller has given, from the value under `key`.
///
/// # Errors
/// [`StorageError::Corrupt`].
pub(crate) fn decode_given(key: &[u8], value: &[u8]) -> Result<ItemFeatures, StorageError> {
    let StoredFeatures { revision, features } = decode(Column::ItemFeatures, key, value)?;
    Ok(ItemFeatures { features, revision })
}

/// An item's frozen features, from the value under their key.
///
/// # Errors
/// [`StorageError::Corrupt`].
pub(crate) fn decode_frozen(
    (model, version): (ModelId, VersionId),
    shard: Shard,
    item: &ItemId,
    value: &[u8],
) -> Result<FrozenFeatures, StorageError> {
    let key = keys::frozen((model, version), shard, item);
    let invalid = |problem: String| corrupt(Column::Frozen, &key, &problem);
    let body = unseal(Column::Frozen, &key, value)?;
    let (stored, rest) = postcard::take_from_bytes(body).map_err(|error| invalid(error.to_string()))?;
    let StoredFrozen { offset, features, origin } = stored;
    let attributes = if rest.is_empty() { None } else { Some(serde_json::from_slice(rest)) };
    let attributes = attributes.transpose().map_err(|error| invalid(error.to_string()))?;
    let unknown = || corrupt(Column::Frozen, &key, "it has an unknown origin");
    let origin = *ORIGINS.get(usize::from(origin)).ok_or_else(unknown)?;
    Ok(FrozenFeatures { model, version, item: item.clone(), offset, features, origin, attributes })
}

fn decode<T: for<'de> Deserialize<'de>>(column: Column, key: &[u8], value: &[u8]) -> Result<T, StorageError> {
    let body = unseal(column, key, value)?;
    postcard::from_bytes(body).map_err(|error| corrupt(column, key, &error.to_string()))
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
                attributes: None,
            };
            let (key, value) = encode_frozen(Shard::default(), &frozen);
            let hex = keys::hex(unseal(Column::Frozen, &key, &value).unwrap());
            assert_eq!(hex, format!("000080bf010000803f0{place}"));
            let attributes = serde_json::json!({"genre": "drama"}).as_object().cloned();
            let with_attributes = FrozenFeatures { attributes, ..frozen.clone() };
            for frozen in [frozen, with_attributes] {
                let (_, value) = encode_frozen(Shard::default(), &frozen);
                let of = (frozen.model, frozen.version);
                assert_eq!(decode_frozen(of, Shard::default(), &frozen.item, &value).unwrap(), frozen);
            }
        }
    }
}
