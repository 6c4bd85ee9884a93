//! What is known of a user beside the events: the attributes that a caller has given.

use std::sync::Arc;

use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes in memory for each byte of attributes as JSON: names and values are allocated one by one.
const BYTES_A_BYTE: usize = 4;

/// The attributes of a user, at least one.
#[derive(Debug)]
pub(crate) struct Profile {
    attributes: Map<String, Value>,
    revision: u64,
    bytes: usize,
}

impl Profile {
    /// The revision of no attributes.
    pub(crate) const NONE: u64 = 0;

    /// The profile of these attributes; `None` if there are none.
    pub(crate) fn of(attributes: Map<String, Value>) -> Option<Arc<Self>> {
        if attributes.is_empty() {
            return None;
        }
        let text = serde_json::to_vec(&attributes).expect("JSON values have text keys");
        let revision = xxh3_64(&text).max(Self::NONE + 1);
        Some(Arc::new(Self { attributes, revision, bytes: size_of::<Self>() + BYTES_A_BYTE * text.len() }))
    }

    pub(crate) fn attributes(&self) -> &Map<String, Value> {
        &self.attributes
    }

    /// Identifies the attributes, in keys of what was computed from them.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Size on the heap and inline.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
