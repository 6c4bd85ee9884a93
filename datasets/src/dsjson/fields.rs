//! Features of contexts and actions as flat fields.
//!
//! Namespaces become prefixes (`Geo.state`), except for those that carry no name of their own: `FromUrl` of a context,
//! and `i` and `j` of an action, in which Personalizer puts what its clients send. A feature `color=red` of value 1,
//! Vowpal Wabbit's form of a categorical feature, is the field `color` with the text `red`. Names that begin with an
//! underscore are instructions to Vowpal Wabbit, not features.

use serde_json::{Map, Number, Value};

/// Namespaces of a context without a name of their own.
const OF_CONTEXT: &[&str] = &["FromUrl"];

/// The same of an action.
const OF_ACTION: &[&str] = &["i", "j"];

/// Deeper objects are left out.
const DEPTH_MAX: usize = 8;

/// The fields of a context.
#[must_use]
pub fn of_context(context: &Map<String, Value>) -> Map<String, Value> {
    let mut fields = Map::new();
    add_all(&mut fields, "", context, OF_CONTEXT, DEPTH_MAX);
    fields
}

/// The fields of an action, without its id.
#[must_use]
pub fn of_action(action: &Map<String, Value>) -> Map<String, Value> {
    let mut fields = Map::new();
    add_all(&mut fields, "", action, OF_ACTION, DEPTH_MAX);
    // Neither says anything about the action: `constant` is 1 for all.
    fields.remove("id");
    fields.remove("constant");
    fields
}

fn add_all(
    fields: &mut Map<String, Value>,
    prefix: &str,
    object: &Map<String, Value>,
    nameless: &[&str],
    depth: usize,
) {
    for (key, value) in object.iter().filter(|(key, _)| !key.starts_with('_')) {
        let is_nameless = prefix.is_empty() && nameless.contains(&key.as_str());
        let is_namespace = matches!(value, Value::Object(_) | Value::Array(_));
        let name = if is_nameless && is_namespace { String::new() } else { format!("{prefix}{key}") };
        add(fields, &name, value, nameless, depth);
    }
}

fn add(fields: &mut Map<String, Value>, name: &str, value: &Value, nameless: &[&str], depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let prefix = || if name.is_empty() { String::new() } else { format!("{name}.") };
    match value {
        Value::Null => {}
        Value::Object(object) => {
            // Within a namespace, no other one is nameless.
            let nameless = if name.is_empty() { &[] } else { nameless };
            add_all(fields, &prefix(), object, nameless, depth);
        }
        Value::Array(values) if values.iter().all(Value::is_number) && !name.is_empty() => {
            for (index, number) in values.iter().enumerate() {
                insert(fields, format!("{}{index}", prefix()), number.clone());
            }
        }
        Value::Array(values) => values.iter().for_each(|value| add(fields, name, value, nameless, depth)),
        scalar if name.is_empty() => insert(fields, "value".to_owned(), scalar.clone()),
        scalar => match name.split_once('=') {
            Some((name, text)) if !name.is_empty() && !text.is_empty() && is_one(scalar) => {
                insert(fields, name.to_owned(), text.into());
            }
            _ => insert(fields, name.to_owned(), scalar.clone()),
        },
    }
}

fn is_one(value: &Value) -> bool {
    value.as_bool().unwrap_or_else(|| value.as_f64() == Some(1.0))
}

/// Adds a field. Several texts of one name are a list; of other values the first counts.
fn insert(fields: &mut Map<String, Value>, name: String, value: Value) {
    match (fields.get_mut(&name), value) {
        (None, value) => {
            fields.insert(name, value);
        }
        (Some(Value::Array(texts)), Value::String(text)) => texts.push(text.into()),
        (Some(first @ Value::String(_)), Value::String(text)) => {
            *first = Value::Array(vec![first.take(), text.into()]);
        }
        (Some(_), _) => {}
    }
}

/// A field as a number, if it is one.
#[must_use]
pub fn number(value: &Value) -> Option<f64> {
    value.as_number().and_then(Number::as_f64).filter(|number| number.is_finite())
}
