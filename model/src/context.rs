//! The circumstances of a request, as the client describes them: the device, the page, the hour.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::ModelError;

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
}

impl Context {
    /// # Errors
    /// [`ModelError::Context`] beyond the limits, or for a number that is not finite.
    pub fn new(fields: impl IntoIterator<Item = (String, ContextValue)>) -> Result<Self, ModelError> {
        let mut context = Self::default();
        let mut bytes = 0;
        for (name, value) in fields {
            let refused = |problem: &str| ModelError::Context { problem: format!("{name}: {problem}") };
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                return Err(refused(&format!("names of fields have 1 to {NAME_BYTES_MAX} bytes, got {}", name.len())));
            }
            let value = match value {
                ContextValue::Number(number) if number.is_finite() && number.abs() <= NUMBER_ABS_MAX => {
                    // Equal values have equal bytes.
                    ContextValue::Number(if number == 0.0 { 0.0 } else { number })
                }
                ContextValue::Number(_) => return Err(refused("numbers are from -1e30 to 1e30")),
                value => value,
            };
            bytes += name.len() + value.bytes();
            if bytes > BYTES_MAX {
                let problem = format!("names and values take more than {BYTES_MAX} bytes");
                return Err(ModelError::Context { problem });
            }
            context.0.insert(name, value);
            if context.0.len() > FIELDS_MAX {
                return Err(ModelError::Context { problem: format!("there are more than {FIELDS_MAX} fields") });
            }
        }
        Ok(context)
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

    /// The form in which logs and decisions store it. Equal contexts have equal bytes. Each field is the length of its
    /// name, its name, its kind and its value; lengths, counts and integers are varints, seven bits per byte, the least
    /// significant first.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_bytes_max());
        for (name, value) in &self.0 {
            put_text(&mut bytes, name);
            match value {
                ContextValue::Boolean(truth) => bytes.push(if *truth { kind::TRUE } else { kind::FALSE }),
                ContextValue::Number(number) => match integer(*number) {
                    Some(integer) => {
                        bytes.push(kind::INTEGER);
                        put_varint(&mut bytes, ((integer << 1) ^ (integer >> 63)).cast_unsigned());
                    }
                    None => {
                        bytes.push(kind::NUMBER);
                        bytes.extend_from_slice(&number.to_le_bytes());
                    }
                },
                ContextValue::Text(text) => {
                    bytes.push(kind::TEXT);
                    put_text(&mut bytes, text);
                }
                ContextValue::Texts(texts) => {
                    bytes.push(kind::TEXTS);
                    put_varint(&mut bytes, texts.len() as u64);
                    texts.iter().for_each(|text| put_text(&mut bytes, text));
                }
            }
        }
        bytes
    }

    /// Reads the output of [`Context::encode`]; `None` if it is not such.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let name = text(&mut bytes)?;
            let (kind, rest) = bytes.split_first()?;
            bytes = rest;
            let value = match *kind {
                kind::FALSE => ContextValue::Boolean(false),
                kind::TRUE => ContextValue::Boolean(true),
                kind::INTEGER => {
                    let number = varint(&mut bytes)?;
                    ContextValue::Number(((number >> 1).cast_signed() ^ -(number & 1).cast_signed()) as f64)
                }
                kind::NUMBER => {
                    let (number, rest) = bytes.split_first_chunk()?;
                    bytes = rest;
                    ContextValue::Number(f64::from_le_bytes(*number))
                }
                kind::TEXT => ContextValue::Text(text(&mut bytes)?),
                kind::TEXTS => {
                    let count = varint(&mut bytes)?;
                    ContextValue::Texts((0..count).map(|_| text(&mut bytes)).collect::<Option<_>>()?)
                }
                _ => return None,
            };
            fields.push((name, value));
        }
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

fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_varint(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn text(bytes: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(varint(bytes)?).ok()?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    String::from_utf8(text.to_owned()).ok()
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
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = object.next_entry::<String, Option<ContextValue>>()? {
            if fields.len() == FIELDS_MAX && !fields.contains_key(&name) {
                return Err(A::Error::custom(format!("there are more than {FIELDS_MAX} fields")));
            }
            if let Some(value) = value {
                fields.insert(name, value);
            }
        }
        Context::new(fields).map_err(A::Error::custom)
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
