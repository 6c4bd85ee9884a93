//! The types of columns: of the attributes of items, and of the fields of contexts.

use serde_json::Value;

use crate::cell::{Cell, DecimalComma};

/// The separator of lists in a cell.
const LIST_SEPARATOR: char = '|';

/// The type of a column, from all of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kind {
    single: Option<Single>,
    /// Whether some value is a list; then all are.
    list: bool,
    declared: Declared,
}

/// What a schema says of the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Declared {
    #[default]
    Nothing,
    /// The type, also of values that look like another, and that no value is a list.
    One,
    /// The type of the value or values.
    OneOrList,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Single {
    Number,
    Bool,
    Text,
}

impl Kind {
    /// A number, by a schema.
    pub(crate) const NUMBER: Self = Self { single: Some(Single::Number), list: false, declared: Declared::One };
    /// True or false, by a schema.
    pub(crate) const BOOLEAN: Self = Self { single: Some(Single::Bool), list: false, declared: Declared::One };
    /// A text, by a schema.
    pub(crate) const TEXT: Self = Self { single: Some(Single::Text), list: false, declared: Declared::One };
    /// One or more texts, by a schema.
    pub(crate) const CATEGORY: Self = Self { single: Some(Single::Text), list: false, declared: Declared::OneOrList };

    pub(crate) fn note(&mut self, cell: &Cell, comma: DecimalComma) {
        if self.declared == Declared::One {
            return;
        }
        let single = match cell {
            Cell::Missing | Cell::Object(_) | Cell::Unusable(_) => return,
            Cell::Texts(_) => {
                self.list = true;
                return;
            }
            Cell::Text(text) if text.contains(LIST_SEPARATOR) => {
                self.list = true;
                return;
            }
            _ if self.declared == Declared::OneOrList => return,
            Cell::Integer(_) | Cell::Number(_) => Single::Number,
            Cell::Bool(_) => Single::Bool,
            Cell::Text(text) if is_bool(text).is_some() => Single::Bool,
            Cell::Text(_) if cell.number(comma).is_ok() => Single::Number,
            Cell::Text(_) | Cell::Time(_) => Single::Text,
        };
        self.single = match self.single {
            None => Some(single),
            Some(before) if before == single => Some(single),
            Some(_) => Some(Single::Text),
        };
    }

    pub(crate) fn value(self, cell: &Cell, comma: DecimalComma) -> Option<Value> {
        if self.list {
            let texts = match cell {
                Cell::Missing => return None,
                Cell::Texts(texts) => texts.clone(),
                other => other.content().split(LIST_SEPARATOR).map(|part| part.trim().to_owned()).collect(),
            };
            return Some(texts.into_iter().filter(|text| !text.is_empty()).collect());
        }
        match (cell, self.single) {
            (Cell::Missing | Cell::Object(_) | Cell::Unusable(_), _) => None,
            (Cell::Integer(number), Some(Single::Number)) => Some((*number).into()),
            (Cell::Text(text), Some(Single::Number)) if text.parse::<i64>().is_ok() => {
                text.parse::<i64>().ok().map(Value::from)
            }
            (cell, Some(Single::Number)) => cell.number(comma).ok().map(Value::from),
            (Cell::Bool(flag), Some(Single::Bool)) => Some((*flag).into()),
            (Cell::Text(text), Some(Single::Bool)) => is_bool(text).map(Value::from),
            (cell, _) => Some(cell.content().into()),
        }
    }

    /// What is wrong with a value, where a schema gives the type.
    pub(crate) fn problem(self, cell: &Cell, comma: DecimalComma) -> Option<String> {
        if self.declared != Declared::One || *cell == Cell::Missing || self.value(cell, comma).is_some() {
            return None;
        }
        Some(format!("{} is not of the schema's type, {}", cell.quoted(), self.words()))
    }

    /// The type for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match (self.list, self.single) {
            (true, _) => "list",
            (false, Some(Single::Number)) => "number",
            (false, Some(Single::Bool)) => "true or false",
            (false, Some(Single::Text)) => "text",
            (false, None) => "empty",
        }
    }
}

fn is_bool(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// The types of columns, in the order in which the caller names them.
pub type Kinds = Vec<Kind>;
