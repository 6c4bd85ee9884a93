//! The fields of the contexts of a stream, and contexts that refer to them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use super::{Context, ContextValue, NAME_BYTES_MAX};
use crate::error::ModelError;
use crate::wire::{Reader, Writer};

/// Maximum number of different fields in the contexts of a stream.
pub const STREAM_FIELDS_MAX: usize = 256;

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextType {
    Number,
    Text,
    Boolean,
    Texts,
}

impl fmt::Display for ContextType {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(match self {
            Self::Number => "a number",
            Self::Text => "a string",
            Self::Boolean => "a boolean",
            Self::Texts => "a list of strings",
        })
    }
}

impl ContextValue {
    #[must_use]
    pub fn context_type(&self) -> ContextType {
        match self {
            Self::Number(_) => ContextType::Number,
            Self::Text(_) => ContextType::Text,
            Self::Boolean(_) => ContextType::Boolean,
            Self::Texts(_) => ContextType::Texts,
        }
    }
}

/// The number of a field within its stream, from 0 in the order of definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldNumber(pub u16);

/// A field of the contexts of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamField {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: ContextType,
}

/// The fields of the contexts of a stream, at most [`STREAM_FIELDS_MAX`]. A field keeps its number and its type.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamFields(Vec<StreamField>);

impl StreamFields {
    /// The fields, in the order of their numbers.
    #[must_use]
    pub fn as_slice(&self) -> &[StreamField] {
        &self.0
    }

    /// A linear search: there are few fields, and fewer in a context.
    fn get(&self, name: &str) -> Option<(FieldNumber, ContextType)> {
        let number = self.0.iter().position(|field| field.name == name)?;
        Some((FieldNumber(u16::try_from(number).ok()?), self.0[number].kind))
    }

    /// Checks that the fields of a context have the types of those of the stream, and that there is room for those that
    /// the stream does not have.
    ///
    /// # Errors
    /// [`ModelError::Context`], naming the field.
    pub fn check(&self, context: &Context) -> Result<(), ModelError> {
        let refused = |name: &str, problem: String| Err(ModelError::Context { problem: format!("{name}: {problem}") });
        let mut room = STREAM_FIELDS_MAX - self.0.len();
        for (name, value) in context.fields() {
            let received = value.context_type();
            match self.get(name) {
                Some((_, expected)) if expected != received => {
                    let problem = format!("the stream has {expected} in this field, got {received}");
                    return refused(name, format!("{problem}; send it as a field of another name"));
                }
                None if room == 0 => {
                    let problem = format!("the contexts of a stream have at most {STREAM_FIELDS_MAX} different fields");
                    return refused(name, problem);
                }
                Some(_) => {}
                None => room -= 1,
            }
        }
        Ok(())
    }

    /// The part of a context whose fields the stream has, with their types.
    #[must_use]
    pub fn known(&self, context: &Context) -> Context {
        let is_known =
            |name: &str, value: &ContextValue| self.get(name).is_some_and(|(_, kind)| kind == value.context_type());
        Context(context.0.iter().filter(|(name, value)| is_known(name, value)).map(cloned).collect())
    }

    /// The fields of a context that the stream does not have.
    #[must_use]
    pub fn missing(&self, context: &Context) -> Vec<StreamField> {
        let missing = context.fields().filter(|(name, _)| self.get(name).is_none());
        missing.map(|(name, value)| StreamField { name: name.to_owned(), kind: value.context_type() }).collect()
    }

    /// These fields, and after them those of `added` that are not among them, while there is room.
    #[must_use]
    pub fn extended(&self, added: &[StreamField]) -> Self {
        let mut fields = self.clone();
        for field in added {
            let is_name = !field.name.is_empty() && field.name.len() <= NAME_BYTES_MAX;
            if is_name && fields.0.len() < STREAM_FIELDS_MAX && fields.get(&field.name).is_none() {
                fields.0.push(field.clone());
            }
        }
        fields
    }

    /// The part of a context whose fields have the types of those of the stream, or are not among them while there is
    /// room for them.
    #[must_use]
    pub fn fitting(&self, context: &Context) -> Context {
        let mut room = STREAM_FIELDS_MAX - self.0.len();
        let mut fits = |name: &str, value: &ContextValue| match self.get(name) {
            Some((_, kind)) => kind == value.context_type(),
            None => {
                let has_room = room > 0;
                room = room.saturating_sub(1);
                has_room
            }
        };
        Context(context.0.iter().filter(|(name, value)| fits(name, value)).map(cloned).collect())
    }

    /// The context with the numbers of its fields; `None` if the stream does not have all of them.
    #[must_use]
    pub fn numbered(&self, context: &Context) -> Option<RecordedContext> {
        let field = |(name, value): (&String, &ContextValue)| {
            let (number, _) = self.get(name)?;
            Some(RecordedField { number, name: name.clone(), value: value.clone() })
        };
        context.0.iter().map(field).collect::<Option<_>>().map(RecordedContext)
    }
}

fn cloned((name, value): (&String, &ContextValue)) -> (String, ContextValue) {
    (name.clone(), value.clone())
}

#[derive(Debug, Clone, PartialEq)]
struct RecordedField {
    number: FieldNumber,
    name: String,
    value: ContextValue,
}

/// The context of a record. Its fields have their names, so that the log can be read without the fields of the stream,
/// and their numbers, so that what is derived from the log can do without the names.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedContext(Vec<RecordedField>);

impl RecordedContext {
    /// Whether it has the fields of `context`, and no others.
    #[must_use]
    pub fn is(&self, context: &Context) -> bool {
        self.0.iter().map(|field| (field.name.as_str(), &field.value)).eq(context.fields())
    }

    /// The context, without the numbers.
    #[must_use]
    pub fn named(&self) -> Context {
        Context(self.0.iter().map(|field| (field.name.clone(), field.value.clone())).collect())
    }

    /// Number, name and value of each field, ascending by name, in the encodings of [`crate::wire`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Writer(Vec::new());
        for RecordedField { number, name, value } in &self.0 {
            bytes.varint(number.0.into());
            bytes.text(name);
            value.encode(&mut bytes);
        }
        bytes.0
    }

    /// Reads the output of [`RecordedContext::encode`]; `None` if it is not such.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let field = |bytes: &mut Reader| {
            let number = FieldNumber(u16::try_from(bytes.varint()?).ok()?);
            Some(RecordedField { number, name: bytes.text()?.to_owned(), value: ContextValue::decode(bytes)? })
        };
        Reader(bytes).rest(field).map(Self)
    }

    /// The context without names.
    #[must_use]
    pub fn numbers(&self) -> NumberedContext {
        NumberedContext(self.0.iter().map(|field| (field.number, field.value.clone())).collect())
    }
}

/// As a JSON object of names and values.
impl Serialize for RecordedContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|field| (&field.name, &field.value)))
    }
}

/// The context of an event from which states learn: its fields by their numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct NumberedContext(Vec<(FieldNumber, ContextValue)>);

impl NumberedContext {
    /// Number and value of each field, in the encodings of [`crate::wire`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Writer(Vec::new());
        for (number, value) in &self.0 {
            bytes.varint(number.0.into());
            value.encode(&mut bytes);
        }
        bytes.0
    }

    /// Reads the output of [`NumberedContext::encode`]; `None` if it is not such.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let field = |bytes: &mut Reader| {
            let number = FieldNumber(u16::try_from(bytes.varint()?).ok()?);
            Some((number, ContextValue::decode(bytes)?))
        };
        Reader(bytes).rest(field).map(Self)
    }

    /// The context, of a stream with these fields; `None` if the stream does not have all of them.
    #[must_use]
    pub fn named(&self, fields: &StreamFields) -> Option<Context> {
        let named = self.0.iter().map(|(number, value)| {
            let field = fields.0.get(usize::from(number.0))?;
            Some((field.name.clone(), value.clone()))
        });
        named.collect::<Option<BTreeMap<_, _>>>().map(Context)
    }

    /// Heap bytes, approximately.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let fields = self.0.capacity() * size_of::<(FieldNumber, ContextValue)>();
        fields + self.0.iter().map(|(_, value)| value.bytes()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    fn context(json: &str) -> Context {
        serde_json::from_str(json).unwrap()
    }

    fn fields() -> StreamFields {
        let none = StreamFields::default();
        none.extended(&none.missing(&context(r#"{"hour": 21, "device": "phone"}"#)))
    }

    #[test]
    fn fields_keep_their_numbers_and_types() {
        let fields = fields();
        assert_eq!(serde_json::to_value(&fields).unwrap()[1], serde_json::json!({"name": "hour", "type": "number"}));
        let later = context(r#"{"app": true, "hour": 3}"#);
        let grown = fields.extended(&fields.missing(&later));
        assert_eq!(grown.as_slice()[..2], *fields.as_slice());
        assert_eq!(grown.get("app"), Some((FieldNumber(2), ContextType::Boolean)));
        let other = context(r#"{"hour": "late", "app": true}"#);
        let refused = grown.check(&other).unwrap_err().to_string();
        assert!(refused.contains("hour: the stream has a number in this field, got a string"), "{refused}");
        assert_eq!(grown.extended(&StreamFields::default().missing(&other)), grown);
        assert_eq!(grown.fitting(&other), context(r#"{"app": true}"#));
        assert_eq!((fields.check(&later), fields.numbered(&later)), (Ok(()), None));
    }

    #[test]
    fn a_stream_has_a_bounded_number_of_fields() {
        let text = |name: String| StreamField { name, kind: ContextType::Text };
        let fields = fields().extended(&(0..300).map(|number| text(number.to_string())).collect::<Vec<_>>());
        assert_eq!(fields.as_slice().len(), STREAM_FIELDS_MAX);
        let more = context(r#"{"hour": 1, "more": "x"}"#);
        assert!(
            fields.check(&more).unwrap_err().to_string().contains("more: the contexts of a stream have at most 256")
        );
        assert_eq!(fields.fitting(&more), context(r#"{"hour": 1}"#));
        assert_eq!(StreamFields::default().extended(&[text("x".repeat(65))]), StreamFields::default());
    }

    #[test]
    fn recorded_contexts_have_names_and_numbers() {
        let given = context(r#"{"device": "phone", "hour": 21}"#);
        let recorded = fields().numbered(&given).unwrap();
        assert!(recorded.is(&given) && !recorded.is(&context(r#"{"hour": 21}"#)));
        let bytes = recorded.encode();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(&bytes), "0006646576696365040570686f6e650104686f7572022a");
        assert_eq!(RecordedContext::decode(&bytes), Some(recorded.clone()));
        assert_eq!(serde_json::to_string(&recorded).unwrap(), r#"{"device":"phone","hour":21}"#);
        let numbers = recorded.numbers();
        assert_eq!(hex(&numbers.encode()), "00040570686f6e6501022a");
        assert_eq!(NumberedContext::decode(&numbers.encode()).unwrap().named(&fields()), Some(given));
        assert_eq!(RecordedContext::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(NumberedContext::decode(&numbers.encode()[..3]), None);
    }
}
