//! The CSV files of Amazon Personalize, and the Avro schemas that describe them.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::Subject;
use crate::kinds::Kind;
use crate::mapping::listed;

pub(crate) const USER: &str = "USER_ID";
pub(crate) const ITEM: &str = "ITEM_ID";
const TIME: &str = "TIMESTAMP";
pub(crate) const EVENT_TYPE: &str = "EVENT_TYPE";
pub(crate) const EVENT_VALUE: &str = "EVENT_VALUE";

/// Columns of interactions that are not circumstances.
pub(crate) const RESERVED: [&str; 7] = [USER, ITEM, TIME, EVENT_TYPE, EVENT_VALUE, "IMPRESSION", "RECOMMENDATION_ID"];

/// Columns of items that other files hardly have beside `ITEM_ID`.
const OF_ITEMS: [&str; 5] = ["CREATION_TIMESTAMP", "CATEGORY_L1", "GENRES", "PRODUCT_DESCRIPTION", "PRICE"];

/// The size of a schema, at most.
const SCHEMA_BYTES_MAX: u64 = 1 << 20;

pub(crate) fn has(columns: &[String], name: &str) -> bool {
    columns.iter().any(|column| column == name)
}

/// What a file with these columns is about, if it is of Amazon Personalize.
pub(super) fn recognised(columns: &[String]) -> Option<Subject> {
    let has = |name: &&str| has(columns, name);
    if [USER, ITEM, TIME].iter().all(has) && RESERVED[3..].iter().any(has) {
        Some(Subject::Feedback)
    } else {
        (has(&ITEM) && !has(&USER) && OF_ITEMS.iter().any(has)).then_some(Subject::Items)
    }
}

/// What a file of Amazon Personalize with these columns is about.
pub(super) fn subject_of(columns: &[String]) -> Result<Subject, String> {
    match (has(columns, USER), has(columns, ITEM)) {
        (true, true) => Ok(Subject::Feedback),
        (false, true) => Ok(Subject::Items),
        (true, false) => Ok(Subject::Users),
        (false, false) => Err(format!(
            "no columns USER_ID and ITEM_ID of interactions, ITEM_ID of items or USER_ID of users among {}",
            listed(columns)
        )),
    }
}

/// The name of the dataset about a subject.
pub(crate) fn name_of(subject: Subject) -> &'static str {
    match subject {
        Subject::Feedback => "Interactions",
        Subject::Items => "Items",
        Subject::Users => "Users",
    }
}

/// A schema of a dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    subject: Subject,
    fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq)]
struct Field {
    name: String,
    kind: FieldKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldKind {
    Number,
    Boolean,
    /// Text of which `|` is a part.
    Text,
    /// Text in which `|` separates several values.
    Categorical,
}

impl Field {
    fn kind(&self) -> Kind {
        match self.kind {
            FieldKind::Number => Kind::NUMBER,
            FieldKind::Boolean => Kind::BOOLEAN,
            FieldKind::Text => Kind::TEXT,
            FieldKind::Categorical => Kind::CATEGORY,
        }
    }
}

/// A schema as it is written.
#[derive(Deserialize)]
struct Written {
    name: String,
    fields: Vec<WrittenField>,
}

#[derive(Deserialize)]
struct WrittenField {
    name: String,
    #[serde(rename = "type")]
    types: Value,
    #[serde(default)]
    categorical: bool,
}

impl Schema {
    /// What the rows of its dataset are about.
    pub(crate) fn subject(&self) -> Subject {
        self.subject
    }

    /// The columns, in the order of the schema.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name.as_str())
    }

    /// The types of the columns.
    pub(crate) fn kinds(&self) -> Vec<(String, Kind)> {
        self.fields.iter().map(|field| (field.name.clone(), field.kind())).collect()
    }

    /// Reads a schema from a file: the schema itself, or the answer of `aws personalize describe-schema` with it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(path: &str) -> Result<Self, String> {
        let length = Path::new(path).metadata().map_err(|error| error.to_string())?.len();
        if length > SCHEMA_BYTES_MAX {
            return Err(format!("is larger than {SCHEMA_BYTES_MAX} bytes, so it is no schema; the data go before it"));
        }
        Self::parse(&std::fs::read_to_string(path).map_err(|error| error.to_string())?)
    }

    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut value: Value = serde_json::from_str(text)
            .map_err(|error| format!("is not JSON: {error}; it must be the Avro schema of a dataset"))?;
        if let Some(schema) = value.get("schema").and_then(|answer| answer.get("schema")).and_then(Value::as_str) {
            value = serde_json::from_str(schema).map_err(|error| format!("schema.schema: is not JSON: {error}"))?;
        }
        let written: Written = serde_json::from_value(value)
            .map_err(|error| format!("is not the Avro schema of a dataset, an object with name and fields: {error}"))?;
        let subject = match written.name.as_str() {
            "Interactions" => Subject::Feedback,
            "Items" => Subject::Items,
            "Users" => Subject::Users,
            other => {
                return Err(format!("name: {other:?} cannot be imported; expected Interactions, Items or Users"));
            }
        };
        let mut fields: Vec<Field> = Vec::with_capacity(written.fields.len());
        for (index, field) in written.fields.into_iter().enumerate() {
            let kind = kind_of(&field).map_err(|problem| format!("fields[{index}], {}: {problem}", field.name))?;
            if fields.iter().any(|before| before.name == field.name) {
                return Err(format!("fields[{index}], {}: an earlier field has this name", field.name));
            }
            fields.push(Field { name: field.name, kind });
        }
        Ok(Self { subject, fields })
    }

    /// Checks that a file has all columns of the schema.
    pub(crate) fn check(&self, columns: &[String]) -> Result<(), String> {
        match self.fields.iter().find(|field| !has(columns, &field.name)) {
            None => Ok(()),
            Some(field) => Err(format!(
                "the schema has the field {}, which is no column; the columns are {}",
                field.name,
                listed(columns)
            )),
        }
    }
}

fn kind_of(field: &WrittenField) -> Result<FieldKind, String> {
    let expected = "expected string, int, long, float, double or boolean, possibly in a list with null";
    let of_name = |name: &Value| match name.as_str() {
        Some("string") if field.categorical => Some(FieldKind::Categorical),
        Some("string") => Some(FieldKind::Text),
        Some("int" | "long" | "float" | "double") => Some(FieldKind::Number),
        Some("boolean") => Some(FieldKind::Boolean),
        _ => None,
    };
    let found = match &field.types {
        Value::Array(types) => {
            let mut others = types.iter().filter(|name| *name != "null");
            match (others.next(), others.next()) {
                (Some(one), None) => of_name(one),
                _ => None,
            }
        }
        one => of_name(one),
    };
    found.ok_or_else(|| format!("type {}: {expected}", field.types))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    const ITEMS: &str = r#"{"type": "record", "name": "Items", "namespace": "com.amazonaws.personalize.schema", "fields": [
        {"name": "ITEM_ID", "type": "string"}, {"name": "GENRES", "type": ["null", "string"], "categorical": true},
        {"name": "TEXT", "type": "string", "textual": true}, {"name": "PRICE", "type": "float"}], "version": "1.0"}"#;

    #[test]
    fn a_schema_is_read_bare_or_as_it_is_described() {
        let schema = Schema::parse(ITEMS).unwrap();
        let kinds: Vec<FieldKind> = schema.fields.iter().map(|field| field.kind).collect();
        assert_eq!(kinds, [FieldKind::Text, FieldKind::Categorical, FieldKind::Text, FieldKind::Number]);
        let answer = serde_json::json!({"schema": {"name": "mine", "schemaArn": "arn", "schema": ITEMS}});
        assert_eq!(Schema::parse(&answer.to_string()).unwrap(), schema);
    }

    #[test]
    fn what_is_no_schema_is_refused_with_the_field() {
        for (text, problem) in [
            ("x", "is not JSON"),
            ("[]", "name and fields"),
            (r#"{"name": "Actions", "fields": []}"#, "expected Interactions, Items or Users"),
            (r#"{"name": "Items", "fields": [{"name": "A", "type": "bytes"}]}"#, "fields[0], A: type \"bytes\""),
            (r#"{"name": "Items", "fields": [{"name": "A", "type": ["int", "string"]}]}"#, "fields[0], A: type"),
            (r#"{"name": "Items", "fields": [{"name": "A", "type": ["null"]}]}"#, "fields[0], A: type"),
            (
                r#"{"name": "Items", "fields": [{"name": "A", "type": "int"}, {"name": "A", "type": "int"}]}"#,
                "fields[1], A: an earlier field",
            ),
        ] {
            let found = Schema::parse(text).unwrap_err();
            assert!(found.contains(problem), "{found}");
        }
    }
}
