//! Limits of attributes, and the interpretation of those of items by filters.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::filter::{FIELD_BYTES_MAX, KEYWORD_BYTES_MAX};
use crate::times::unix_milliseconds;

/// The attribute with the time from which an item is available, inclusive.
pub const AVAILABLE_FROM: &str = "available_from";

/// The attribute with the time until which an item is available, exclusive.
pub const AVAILABLE_UNTIL: &str = "available_until";

/// Maximum number of attributes of one item or user.
pub const ATTRIBUTES_MAX: usize = 256;

/// Maximum size of the attributes of one item or user as JSON, in bytes: one page of a listing returns those of
/// a thousand items.
pub const BYTES_MAX: usize = 64 << 10;

/// Maximum number of distinct attributes in one stream.
pub const FIELDS_MAX: usize = 256;

/// Maximum number of strings in one list of tags.
pub const TAGS_MAX: usize = 256;

/// Attributes that are rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AttributeError {
    /// Too many attributes.
    #[error("attributes: there may be at most {ATTRIBUTES_MAX}, got {count}")]
    TooMany { count: usize },
    /// The attributes are too large.
    #[error("attributes: may take at most {BYTES_MAX} bytes as JSON, got {bytes}")]
    TooLong { bytes: usize },
    /// An attribute name that is empty or too long.
    #[error("attributes: names have 1 to {FIELD_BYTES_MAX} bytes, got one of {bytes}")]
    Name {
        /// Length of the name.
        bytes: usize,
    },
    /// A list of strings with too many entries.
    #[error("attributes.{field}: a list of tags may hold at most {TAGS_MAX}, got {count}")]
    Tags { field: String, count: usize },
    /// An attribute of a user that says nothing.
    #[error("attributes.{field}: must be a text, a number, true, false, or a list of texts or numbers")]
    Value { field: String },
    /// A reserved attribute is not a time.
    #[error("attributes.{field}: is reserved for availability; expected a time as RFC 3339 or Unix milliseconds")]
    Time { field: String },
    /// A new attribute in a stream with the maximum number of attributes.
    #[error("attributes.{field}: would be more than {FIELDS_MAX} different attributes in this stream; use one it has")]
    Fields { field: String },
}

/// The interpretation of an attribute's value by filters.
#[derive(Debug, Default)]
pub(super) struct Meaning<'v> {
    /// Strings that `eq` and `in` match.
    pub(super) keywords: Vec<&'v str>,
    /// A number, or the Unix milliseconds of a time.
    pub(super) number: Option<f64>,
    pub(super) boolean: Option<bool>,
}

impl<'v> Meaning<'v> {
    /// `None` if the attribute counts as absent.
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
            // Matches `exists` only.
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

/// Rejects attributes beyond the limits per item. The catalog checks the number of attributes of
/// the stream.
pub(super) fn check(attributes: &Map<String, Value>) -> Result<(), AttributeError> {
    check_limits(attributes)?;
    for name in [AVAILABLE_FROM, AVAILABLE_UNTIL] {
        let meaning = attributes.get(name).and_then(Meaning::of);
        if meaning.is_some_and(|meaning| meaning.number.is_none()) {
            return Err(AttributeError::Time { field: name.to_owned() });
        }
    }
    Ok(())
}

/// Rejects attributes of a user beyond the limits, and those that no user can have.
///
/// # Errors
/// [`AttributeError`].
pub fn check_of_user(attributes: &Map<String, Value>) -> Result<(), AttributeError> {
    check_limits(attributes)?;
    let is_single = |value: &Value| value.is_string() || value.is_number();
    let wrong = attributes.iter().find(|(_, value)| match value {
        Value::Object(_) => true,
        Value::Array(values) => !values.iter().all(is_single),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    });
    wrong.map_or(Ok(()), |(field, _)| Err(AttributeError::Value { field: field.clone() }))
}

/// Rejects attributes of an item or user that are too many or too large.
fn check_limits(attributes: &Map<String, Value>) -> Result<(), AttributeError> {
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
        if let Value::Array(values) = value
            && values.len() > TAGS_MAX
            && values.iter().all(Value::is_string)
        {
            return Err(AttributeError::Tags { field: name.clone(), count: values.len() });
        }
    }
    Ok(())
}
