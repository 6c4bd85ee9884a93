//! The circumstances of a request, as the client describes them: the device, the page, the hour.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

mod stream_fields;

pub use self::stream_fields::{
    ContextType, FieldNumber, NumberedContext, RecordedContext, STREAM_FIELDS_MAX, StreamField, StreamFields,
};

use crate::error::ModelError;
use crate::wire::{Reader, Writer};

/// Maximum number of fields.
pub const FIELDS_MAX: usize = 32;

/// Maximum size of a context, in bytes: those of its names and texts, eight for each number, and one for each other
/// value and each text of a list.
pub const BYTES_MAX: usize = 1024;

/// Maximum length of a field's name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// The largest magnitude of a number, so that it is finite as `f32` too.
pub const NUMBER_ABS_MAX: f64 = 1e30;

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum ContextValue {
    Number(f64),
    Text(String),
    Boolean(bool),
    Texts(Vec<String>),
}

/// Typed fields of a request, at most [`FIELDS_MAX`] and [`BYTES_MAX`]. In JSON an object, in which null stands for a
/// field that is not given.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Context(BTreeMap<String, ContextValue>);

impl ContextValue {
    fn bytes(&self) -> usize {
        match self {
            Self::Number(_) => size_of::<f64>(),
            Self::Text(text) => text.len(),
            Self::Boolean(_) => 1,
            Self::Texts(texts) => texts.iter().map(|text| text.len() + 1).sum(),
        }
    }

    /// Appends its kind and its value.
    fn encode(&self, bytes: &mut Writer) {
        match self {
            Self::Boolean(truth) => bytes.0.push(if *truth { kind::TRUE } else { kind::FALSE }),
            Self::Number(number) => match integer(*number) {
                Some(integer) => {
                    bytes.0.push(kind::INTEGER);
                    bytes.signed(integer);
                }
                None => {
                    bytes.0.push(kind::NUMBER);
                    bytes.double(*number);
                }
            },
            Self::Text(text) => {
                bytes.0.push(kind::TEXT);
                bytes.text(text);
            }
            Self::Texts(texts) => {
                bytes.0.push(kind::TEXTS);
                bytes.varint(texts.len() as u64);
                texts.iter().for_each(|text| bytes.text(text));
            }
        }
    }

    fn decode(bytes: &mut Reader) -> Option<Self> {
        let (kind, rest) = bytes.0.split_first()?;
        bytes.0 = rest;
        Some(match *kind {
            kind::FALSE => Self::Boolean(false),
            kind::TRUE => Self::Boolean(true),
            kind::INTEGER => Self::Number(bytes.signed()? as f64),
            kind::NUMBER => Self::Number(bytes.double()?),
            kind::TEXT => Self::Text(bytes.text()?.to_owned()),
            kind::TEXTS => {
                let count = bytes.varint()?;
                Self::Texts((0..count).map(|_| bytes.text().map(str::to_owned)).collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }
}

impl Context {
    /// # Errors
    /// [`ModelError::Context`] beyond the limits, or for a number that is not finite.
    pub fn new(fields: impl IntoIterator<Item = (String, ContextValue)>) -> Result<Self, ModelError> {
        let mut context = Self::default();
        fields.into_iter().try_for_each(|(name, value)| context.insert(name, value))?;
        Ok(context)
    }

    /// Adds a field, or replaces the one of this name.
    fn insert(&mut self, name: String, value: ContextValue) -> Result<(), ModelError> {
        let refused = |problem: String| Err(ModelError::Context { problem });
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let length = name.len();
            return refused(format!("{name}: names of fields have 1 to {NAME_BYTES_MAX} bytes, got {length}"));
        }
        let value = match value {
            ContextValue::Number(number) if !number.is_finite() || number.abs() > NUMBER_ABS_MAX => {
                return refused(format!("{name}: numbers are from -1e30 to 1e30"));
            }
            // Equal values have equal bytes.
            ContextValue::Number(0.0) => ContextValue::Number(0.0),
            value => value,
        };
        self.0.insert(name, value);
        if self.0.len() > FIELDS_MAX {
            return refused(format!("there are more than {FIELDS_MAX} fields"));
        }
        if self.fields().map(|(name, value)| name.len() + value.bytes()).sum::<usize>() > BYTES_MAX {
            return refused(format!("names and values take more than {BYTES_MAX} bytes"));
        }
        Ok(())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ContextValue> {
        self.0.get(name)
    }

    /// The fields, ascending by name.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &ContextValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// An upper bound of the length of [`Context::encode`].
    #[must_use]
    pub fn encoded_bytes_max(&self) -> usize {
        /// Of a field: the lengths of its name and its value, and its kind.
        const OVERHEAD: usize = 1 + 2 + 1;
        self.0.iter().map(|(name, value)| OVERHEAD + name.len() + 2 * value.bytes().max(5)).sum()
    }

    /// The form in which logs and decisions store it: name and value of each field, in the encodings of [`crate::wire`].
    /// Equal contexts have equal bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Writer(Vec::with_capacity(self.encoded_bytes_max()));
        for (name, value) in &self.0 {
            bytes.text(name);
            value.encode(&mut bytes);
        }
        bytes.0
    }

    /// Reads the output of [`Context::encode`]; `None` if it is not such.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let fields = Reader(bytes).rest(|bytes| Some((bytes.text()?.to_owned(), ContextValue::decode(bytes)?)))?;
        Self::new(fields).ok()
    }
}

mod kind {
    pub const FALSE: u8 = 0;
    pub const TRUE: u8 = 1;
    pub const INTEGER: u8 = 2;
    pub const NUMBER: u8 = 3;
    pub const TEXT: u8 = 4;
    pub const TEXTS: u8 = 5;
}

/// The number as an integer of at most 32 bits, if it is one.
fn integer(number: f64) -> Option<i64> {
    let integer = number as i32;
    (f64::from(integer) == number).then_some(integer.into())
}

impl Serialize for ContextValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => match integer(*number) {
                Some(integer) => serializer.serialize_i64(integer),
                None => serializer.serialize_f64(*number),
            },
            Self::Text(text) => serializer.serialize_str(text),
            Self::Boolean(truth) => serializer.serialize_bool(*truth),
            Self::Texts(texts) => texts.serialize(serializer),
        }
    }
}

impl Serialize for Context {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_map(&self.0)
        } else {
            serializer.serialize_bytes(&self.encode())
        }
    }
}

impl<'de> Deserialize<'de> for ContextValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = ContextValue;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a number, a string, a boolean or a list of strings")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<ContextValue, E> {
        Ok(ContextValue::Boolean(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<ContextValue, E> {
        Ok(ContextValue::Number(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<ContextValue, E> {
        Ok(ContextValue::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<ContextValue, E> {
        Ok(ContextValue::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<ContextValue, E> {
        Ok(ContextValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ContextValue, A::Error> {
        let (mut texts, mut bytes) = (Vec::new(), 0);
        while let Some(text) = list.next_element::<String>()? {
            bytes += text.len() + 1;
            if bytes > BYTES_MAX {
                return Err(A::Error::custom(format!("its strings take more than {BYTES_MAX} bytes")));
            }
            texts.push(text);
        }
        Ok(ContextValue::Texts(texts))
    }
}

impl<'de> Deserialize<'de> for Context {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_map(ContextVisitor)
        } else {
            deserializer.deserialize_bytes(ContextVisitor)
        }
    }
}

struct ContextVisitor;

impl<'de> Visitor<'de> for ContextVisitor {
    type Value = Context;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object of fields")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Context, E> {
        Context::decode(bytes).ok_or_else(|| E::custom("the bytes are not those of a context"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Context, A::Error> {
        let mut context = Context::default();
        while let Some((name, value)) = object.next_entry::<String, Option<ContextValue>>()? {
            if context.get(&name).is_some() {
                return Err(A::Error::custom(format!("{name}: is given twice")));
            }
            if let Some(value) = value {
                context.insert(name, value).map_err(A::Error::custom)?;
            }
        }
        Ok(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = ContextValue> {
        prop_oneof![
            (-1e30..1e30_f64).prop_map(ContextValue::Number),
            any::<i32>().prop_map(|number| ContextValue::Number(number.into())),
            ".{0,20}".prop_map(ContextValue::Text),
            any::<bool>().prop_map(ContextValue::Boolean),
            prop::collection::vec(".{0,6}", 0..4).prop_map(ContextValue::Texts),
        ]
    }

    proptest! {
        #[test]
        fn stored_and_sent_contexts_are_read_back(fields in prop::collection::btree_map(".{1,8}", value(), 0..6)) {
            let context = Context::new(fields).unwrap();
            let bytes = context.encode();
            prop_assert!(bytes.len() <= context.encoded_bytes_max());
            prop_assert_eq!(Context::decode(&bytes), Some(context.clone()));
            let json = serde_json::to_string(&context).unwrap();
            prop_assert_eq!(serde_json::from_str::<Context>(&json).unwrap(), context);
        }

        #[test]
        fn any_bytes_are_a_context_or_none(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Context::decode(&bytes);
        }
    }

    fn parsed(json: &str) -> Result<Context, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn only_typed_fields_within_the_limits_are_a_context() {
        let context =
            parsed(r#"{"hour": 21, "device": "phone", "new": true, "tags": ["a", "b"], "none": null}"#).unwrap();
        assert_eq!(context.fields().map(|(name, _)| name).collect::<Vec<_>>(), ["device", "hour", "new", "tags"]);
        assert_eq!(context.get("hour"), Some(&ContextValue::Number(21.0)));
        assert_eq!(parsed(r#"{"a": -0.0}"#), parsed(r#"{"a": 0}"#));
        let many: Vec<String> = (0..40).map(|field| format!("\"{field}\": 1")).collect();
        for (json, problem) in [
            (r#"{"hour": {"of": "day"}}"#, "expected a number, a string, a boolean or a list of strings"),
            (r#"{"tags": [1]}"#, "expected a string"),
            (r#"{"": 1}"#, "1 to 64 bytes"),
            (r#"{"hour": 1, "hour": 2}"#, "hour: is given twice"),
            (r#"{"big": 1e300}"#, "big: numbers are from -1e30 to 1e30"),
            (&format!("{{{}}}", many.join(",")), "more than 32 fields"),
            (&format!(r#"{{"text": "{}"}}"#, "x".repeat(1100)), "more than 1024 bytes"),
            (&format!(r#"{{"tags": [{}""]}}"#, r#""","#.repeat(2000)), "more than 1024 bytes"),
            ("7", "expected an object of fields"),
        ] {
            assert!(parsed(json).unwrap_err().contains(problem), "{json}: {:?}", parsed(json));
        }
    }

    #[test]
    fn contexts_keep_their_stored_form() {
        let context = parsed(r#"{"d": "phone", "h": 21, "n": false, "t": ["a"], "x": 0.5}"#).unwrap();
        let bytes: String = context.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(bytes, "0164040570686f6e650168022a016e00017405010161017803000000000000e03f");
    }
}
