//! Reading of fields.

use std::fmt::Write;

use celeris_model::ContextValue;
use serde_json::Value;

use super::{FieldOp, Record};
use crate::attributes::AttributeEncoder;
use crate::limits::TEXTS_MAX;
use crate::spec::{FieldType, Side};
use crate::text::bounded_text;
use crate::values::{Slot, Span, View, bounded};

/// The value of a field, of either side.
#[derive(Clone, Copy)]
enum Found<'a> {
    Item(&'a Value),
    Context(&'a ContextValue),
}

fn find<'a>(field: &FieldOp, record: Record<'a>) -> Option<Found<'a>> {
    match field.of {
        Side::Item => record.item.get(&*field.name).map(Found::Item),
        Side::Context => record.context.get(&field.name).map(Found::Context),
    }
}

impl<'a> Found<'a> {
    fn number(self) -> Option<f64> {
        match self {
            Self::Item(value) => value.as_f64(),
            Self::Context(ContextValue::Number(number)) => Some(*number),
            Self::Context(_) => None,
        }
    }

    /// A number; 1 and 0 for a boolean.
    fn number_or_truth(self) -> Option<f64> {
        self.number().or_else(|| self.boolean().map(|truth| f64::from(u8::from(truth))))
    }

    fn boolean(self) -> Option<bool> {
        match self {
            Self::Item(value) => value.as_bool(),
            Self::Context(ContextValue::Boolean(truth)) => Some(*truth),
            Self::Context(_) => None,
        }
    }

    fn text(self) -> Option<&'a str> {
        match self {
            Self::Item(value) => value.as_str(),
            Self::Context(ContextValue::Text(text)) => Some(text),
            Self::Context(_) => None,
        }
    }
}

/// The text of a field of type `text`.
#[must_use]
pub fn text_of<'a>(field: &FieldOp, record: Record<'a>) -> Option<&'a str> {
    find(field, record)?.text().map(bounded_text)
}

/// Appends the text of a string, a number or a boolean; returns whether it is one of them.
fn append_category(value: Found, text: &mut String) -> bool {
    if let Some(string) = value.text() {
        text.push_str(bounded_text(string));
    } else if let Some(number) = value.number() {
        // Equal numbers have equal texts, whether written as 7 or 7.0; -0 is 0.
        write!(text, "{}", number + 0.0).expect("writing into a string does not fail");
    } else if let Some(truth) = value.boolean() {
        text.push_str(if truth { "true" } else { "false" });
    } else {
        return false;
    }
    true
}

/// Writes the columns of all attributes of the item.
pub(super) fn attributes(rules: &AttributeEncoder, record: Record, out: &mut Slot) {
    let (columns, values) = out.sparse();
    for (column, value) in rules.encode(record.item) {
        columns.push(column);
        values.push(value);
    }
}

/// Whether the record has a value that the field can be read from.
#[must_use]
pub fn has(field: &FieldOp, record: Record) -> bool {
    let mut slot = Slot::default();
    read(field, record, &mut slot);
    match slot.view() {
        View::Missing => false,
        View::Number(number) => !number.is_nan(),
        View::Texts(_, spans) => !spans.is_empty(),
        View::Dense(numbers) => numbers.iter().any(|number| !number.is_nan()),
        _ => true,
    }
}

/// Writes the value of a field.
pub(super) fn read(field: &FieldOp, record: Record, out: &mut Slot) {
    let found = find(field, record);
    match field.kind {
        FieldType::Number => out.set_number(found.and_then(Found::number_or_truth).map(bounded)),
        FieldType::Boolean => out.set_number(found.and_then(Found::boolean).map(|truth| f32::from(u8::from(truth)))),
        FieldType::Text => match found.and_then(Found::text) {
            Some(text) => out.text().push_str(bounded_text(text)),
            None => out.set_missing(),
        },
        FieldType::Category => {
            let is_one = found.is_some_and(|value| append_category(value, out.text()));
            if !is_one {
                out.set_missing();
            }
        }
        FieldType::Texts => read_texts(found, out),
        FieldType::Numbers => read_numbers(found, field.dim, out),
    }
}

fn read_texts(found: Option<Found>, out: &mut Slot) {
    let (text, spans) = out.texts();
    let mut add = |value: Found| {
        let begin = text.len() as u32;
        if append_category(value, text) {
            spans.push([begin, text.len() as u32] as Span);
        }
    };
    match found {
        Some(Found::Item(Value::Array(values))) => {
            values.iter().take(TEXTS_MAX).for_each(|value| add(Found::Item(value)));
        }
        Some(Found::Context(ContextValue::Texts(texts))) => {
            for string in texts.iter().take(TEXTS_MAX) {
                let begin = text.len() as u32;
                text.push_str(string);
                spans.push([begin, text.len() as u32]);
            }
        }
        Some(value) => add(value),
        None => {}
    }
}

/// Writes a list of numbers; all entries are missing if it is no list of `dim` numbers.
fn read_numbers(found: Option<Found>, dim: usize, out: &mut Slot) {
    let entries = out.dense();
    match found {
        Some(Found::Item(Value::Array(values))) if values.len() == dim => {
            entries.extend(values.iter().map_while(Value::as_f64).map(bounded));
        }
        Some(value) if dim == 1 => entries.extend(value.number_or_truth().map(bounded)),
        _ => {}
    }
    if entries.len() != dim {
        entries.clear();
        entries.resize(dim, f32::NAN);
    }
}
