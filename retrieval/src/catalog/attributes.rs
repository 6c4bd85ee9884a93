//! What of an item's attributes can be filtered by, and which attributes are accepted at all.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::filter::{FIELD_BYTES_MAX, KEYWORD_BYTES_MAX};
use crate::times::unix_milliseconds;

/// The attribute from which time on an item is available, that instant included.
pub const AVAILABLE_FROM: &str = "available_from";

/// The attribute until which time an item is available, that instant excluded.
pub const AVAILABLE_UNTIL: &str = "available_until";

/// Attributes of one item, at most.
pub const ATTRIBUTES_MAX: usize = 256;

/// Bytes of one item's attributes as JSON, at most: a page of a listing shows those of a thousand items.
pub const BYTES_MAX: usize = 64 << 10;

/// Different attributes in one stream, at most.
pub const FIELDS_MAX: usize = 256;

/// Texts in one list of tags, at most.
pub const TAGS_MAX: usize = 256;

/// Attributes that a catalog does not take.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AttributeError {
    /// There are too many.
    #[error("attributes: an item may have at most {ATTRIBUTES_MAX}, got {count}")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// They are too long.
    #[error("attributes: may take at most {BYTES_MAX} bytes as JSON, got {bytes}")]
    TooLong {
        /// Their length.
        bytes: usize,
    },
    /// A name that cannot be filtered by.
    #[error("attributes: names have 1 to {FIELD_BYTES_MAX} bytes, got one of {bytes}")]
    Name {
        /// Its length.
        bytes: usize,
    },
    /// A list of texts that is too long.
    #[error("attributes.{field}: a list of tags may hold at most {TAGS_MAX}, got {count}")]
    Tags {
        /// The attribute.
        field: String,
        /// How many.
        count: usize,
    },
    /// A reserved attribute is no time.
    #[error("attributes.{field}: is reserved for availability; expected a time as RFC 3339 or Unix milliseconds")]
    Time {
        /// The attribute.
        field: String,
    },
    /// A new attribute where the stream has as many as it may.
    #[error("attributes.{field}: would be more than {FIELDS_MAX} different attributes in this stream; use one it has")]
    Fields {
        /// The attribute.
        field: String,
    },
}

/// What an attribute's value is to a filter.
#[derive(Debug, Default)]
pub(super) struct Meaning<'v> {
    /// Texts that `eq` and `in` find.
    pub(super) keywords: Vec<&'v str>,
    /// A number, or the Unix milliseconds of a time.
    pub(super) number: Option<f64>,
    pub(super) boolean: Option<bool>,
}

impl<'v> Meaning<'v> {
    /// `None` where the attribute counts as absent.
    pub(super) fn of(value: &'v Value) -> Option<Self> {
        let keyword = |text: &'v String| (text.len() <= KEYWORD_BYTES_MAX).then_some(text.as_str());
        match value {
            Value::Null => None,
            Value::Bool(truth) => Some(Self { boolean: Some(*truth), ..Self::default() }),
            Value::Number(number) => Some(Self { number: number.as_f64(), ..Self::default() }),
            Value::String(text) => Some(Self {
                keywords: keyword(text).into_iter().collect(),
                number: unix_milliseconds(text),
                boolean: None,
            }),
            Value::Array(values) => {
                let texts: Option<Vec<&String>> = values.iter().map(text).collect();
                let keywords = texts.into_iter().flatten().filter_map(keyword).collect();
                Some(Self { keywords, ..Self::default() })
            }
            // Known to be there, and no more than that.
            Value::Object(_) => Some(Self::default()),
        }
    }
}

fn text(value: &Value) -> Option<&String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

fn json_bytes(attributes: &Map<String, Value>) -> usize {
    serde_json::to_string(attributes).map_or(usize::MAX, |text| text.len())
}

/// Refuses what no catalog takes. That the stream's attributes are not too many, the catalog checks itself.
pub(super) fn check(attributes: &Map<String, Value>) -> Result<(), AttributeError> {
    if attributes.len() > ATTRIBUTES_MAX {
        return Err(AttributeError::TooMany { count: attributes.len() });
    }
    let bytes = json_bytes(attributes);
    if bytes > BYTES_MAX {
        return Err(AttributeError::TooLong { bytes });
    }
    for (name, value) in attributes {
        if name.is_empty() || name.len() > FIELD_BYTES_MAX {
            return Err(AttributeError::Name { bytes: name.len() });
        }
        let reserved = name == AVAILABLE_FROM || name == AVAILABLE_UNTIL;
        if reserved && Meaning::of(value).is_some_and(|meaning| meaning.number.is_none()) {
            return Err(AttributeError::Time { field: name.clone() });
        }
        if let Value::Array(values) = value
            && values.len() > TAGS_MAX
            && values.iter().all(Value::is_string)
        {
            return Err(AttributeError::Tags { field: name.clone(), count: values.len() });
        }
    }
    Ok(())
}
