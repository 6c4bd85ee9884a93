//! The section `[memory]`.

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sizes;

/// Memory budgets of the caches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// User states and histories.
    #[serde(serialize_with = "sizes::serialize")]
    #[schema(value_type = String)]
    pub users: ByteSize,
    /// Features of items added after training.
    #[serde(serialize_with = "sizes::serialize")]
    #[schema(value_type = String)]
    pub features: ByteSize,
    /// Cached predictions.
    #[serde(serialize_with = "sizes::serialize")]
    #[schema(value_type = String)]
    pub predictions: ByteSize,
    /// The most items of a request whose predictions are cached and looked up; 0 disables the
    /// cache. `celeris-bench topk` measures it: at dimension 50 a repeated request of 4 items takes
    /// 0.45 of the time, a new one 1.35.
    pub prediction_items: usize,
    /// Per-user states of selections.
    #[serde(serialize_with = "sizes::serialize")]
    #[schema(value_type = String)]
    pub selections: ByteSize,
    /// Items that users have seen, which recommendations can exclude.
    #[serde(serialize_with = "sizes::serialize")]
    #[schema(value_type = String)]
    pub seen: ByteSize,
    /// Block cache of the store.
    #[serde(serialize_with = "sizes::serialize")]
    #[schema(value_type = String)]
    pub blocks: ByteSize,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            users: ByteSize::gib(1),
            features: ByteSize::mib(128),
            predictions: ByteSize::mib(128),
            prediction_items: 4,
            selections: ByteSize::mib(64),
            seen: ByteSize::mib(64),
            blocks: ByteSize::mib(128),
        }
    }
}
