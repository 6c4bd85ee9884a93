//! What is known of a user beside the events: the attributes that a caller has given.

use std::sync::Arc;

use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

/// Entries of a full node of a [`Map`], which is a B-tree; other nodes are at least half full.
const NODE_ENTRIES: usize = 11;

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
        let bytes = size_of::<Self>() + map_bytes(&attributes);
        Some(Arc::new(Self { attributes, revision, bytes }))
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

/// Size on the heap, at most.
fn map_bytes(map: &Map<String, Value>) -> usize {
    let nodes = map.len().div_ceil(NODE_ENTRIES / 2);
    let entries = map.iter().map(|(name, value)| name.capacity() + value_bytes(value));
    nodes * NODE_ENTRIES * (size_of::<String>() + size_of::<Value>()) + entries.sum::<usize>()
}

/// Size on the heap.
fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.capacity(),
        Value::Array(values) => values.capacity() * size_of::<Value>() + values.iter().map(value_bytes).sum::<usize>(),
        Value::Object(map) => map_bytes(map),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_size_is_that_in_memory_whatever_the_shape() {
        let bytes = |value: Value| match value {
            Value::Object(attributes) => Profile::of(attributes).unwrap().bytes(),
            _ => unreachable!(),
        };
        // As many bytes of JSON each.
        let (numbers, text) = (bytes(json!({"a": vec![0; 32_000]})), bytes(json!({"a": "x".repeat(64_000)})));
        assert!((1_024_000..1_100_000).contains(&numbers), "{numbers}");
        assert!((64_000..70_000).contains(&text), "{text}");
        let nested = bytes(json!({"a": vec![json!({"b": 1}); 1_000]}));
        assert!((600_000..800_000).contains(&nested), "{nested}");
    }
}
