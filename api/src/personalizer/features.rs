//! Features as Personalizer has them: lists of objects with names, namespaces and arrays, of any depth.
//!
//! They become flat fields, `{"user": {"country": "US"}}` the field `user.country`, as far as they fit the bounds of
//! contexts and attributes. What does not fit is left out, in the order of the names, and counted.

use std::collections::BTreeMap;

use celeris_model::context::{BYTES_MAX, FIELDS_MAX, NAME_BYTES_MAX, NUMBER_ABS_MAX};
use celeris_model::{Context, ContextValue, UserId};
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_128;

use crate::config;

/// Objects within objects that are read.
const DEPTH_MAX: usize = 8;

/// Fields of one request, or of one action, that are read.
const READ_MAX: usize = 1024;

/// Texts of a list that are read.
const TEXTS_MAX: usize = 64;

/// The bounds of the attributes of an action.
const ATTRIBUTES_MAX: usize = 64;
const ATTRIBUTES_BYTES_MAX: usize = 8 << 10;
const ATTRIBUTE_BYTES_MAX: usize = 1024;

/// The user of requests that name none.
const ANYONE: &str = "anyone";

/// Fields by their names.
pub type Fields = BTreeMap<String, ContextValue>;

/// Who asks, and in which circumstances.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Circumstances {
    /// Always there once the features were read.
    pub user: Option<UserId>,
    pub fields: Fields,
}

/// The fields of features.
#[must_use]
pub fn flattened(features: &[Map<String, Value>]) -> Fields {
    let mut reading = Reading { fields: Fields::new(), left_out: 0 };
    features.iter().for_each(|object| reading.object("", object, 0));
    count_left_out(reading.left_out);
    reading.fields
}

struct Reading {
    fields: Fields,
    left_out: u64,
}

impl Reading {
    fn object(&mut self, prefix: &str, object: &Map<String, Value>, depth: usize) {
        for (name, value) in object {
            let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            self.value(name, value, depth);
        }
    }

    fn value(&mut self, name: String, value: &Value, depth: usize) {
        if depth >= DEPTH_MAX || self.fields.len() >= READ_MAX {
            self.left_out += 1;
            return;
        }
        match value {
            Value::Null => {}
            Value::Object(object) => self.object(&name, object, depth + 1),
            Value::Array(values) => self.array(&name, values, depth),
            scalar => match field_of(scalar) {
                Some(field) => self.put(name, field),
                None => self.left_out += 1,
            },
        }
    }

    /// Scalars are a list of texts; objects are read as if each were given alone.
    fn array(&mut self, name: &str, values: &[Value], depth: usize) {
        let mut texts = Vec::new();
        for value in values {
            match value {
                Value::Null => {}
                Value::Object(object) => self.object(name, object, depth + 1),
                Value::Array(_) => self.left_out += 1,
                scalar if texts.len() < TEXTS_MAX => texts.push(text_of(scalar)),
                _ => self.left_out += 1,
            }
        }
        if !texts.is_empty() {
            self.put(name.to_owned(), ContextValue::Texts(texts));
        }
    }

    /// Of a name that is given twice, lists are joined, and of other values the last one counts.
    fn put(&mut self, name: String, value: ContextValue) {
        if let (Some(ContextValue::Texts(there)), ContextValue::Texts(more)) = (self.fields.get_mut(&name), &value) {
            let room = TEXTS_MAX.saturating_sub(there.len());
            there.extend(more.iter().take(room).cloned());
            return;
        }
        self.fields.insert(name, value);
    }
}

fn field_of(scalar: &Value) -> Option<ContextValue> {
    Some(match scalar {
        Value::Bool(truth) => ContextValue::Boolean(*truth),
        Value::Number(number) => ContextValue::Number(number.as_f64().filter(|number| number.abs() <= NUMBER_ABS_MAX)?),
        Value::String(text) => ContextValue::Text(text.clone()),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    })
}

fn text_of(scalar: &Value) -> String {
    match scalar {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn bytes_of(value: &ContextValue) -> usize {
    match value {
        ContextValue::Number(_) => size_of::<f64>(),
        ContextValue::Boolean(_) => 1,
        ContextValue::Text(text) => text.len(),
        ContextValue::Texts(texts) => texts.iter().map(|text| text.len() + 1).sum(),
    }
}

fn count_left_out(fields: u64) {
    if fields > 0 {
        metrics::counter!("celeris_personalizer_features_left_out_total").increment(fields);
    }
}

impl Circumstances {
    pub(super) fn of(features: &[Map<String, Value>], settings: &config::Personalizer) -> Self {
        let mut fields = flattened(features);
        let user = user_of(&fields, &settings.user_fields);
        if !settings.context_fields.is_empty() {
            fields.retain(|name, _| settings.context_fields.contains(name));
        }
        Self { user: Some(user), fields }
    }

    /// The context: those of the request with those of a slot, as many as fit.
    #[must_use]
    pub fn context(&self, of_slot: &Fields) -> Option<Box<Context>> {
        let (mut kept, mut bytes, mut left_out) = (Fields::new(), 0, 0);
        for (name, value) in of_slot.iter().chain(&self.fields) {
            let size = name.len() + bytes_of(value);
            if name.is_empty() || name.len() > NAME_BYTES_MAX || kept.len() >= FIELDS_MAX || bytes + size > BYTES_MAX {
                left_out += 1;
            } else if !kept.contains_key(name) {
                bytes += size;
                kept.insert(name.clone(), value.clone());
            }
        }
        count_left_out(left_out);
        let context = Context::new(kept).ok().filter(|context| !context.is_empty());
        context.map(Box::new)
    }
}

/// The user whom fields name: their values, with a bar between those of several. One whose name would be too long is
/// named by its hash.
fn user_of(fields: &Fields, names: &[String]) -> UserId {
    let anyone = || UserId::new(ANYONE).expect("a word is a valid id");
    let value = |name: &String| match fields.get(name) {
        Some(ContextValue::Text(text)) => text.clone(),
        Some(ContextValue::Number(number)) => number.to_string(),
        Some(ContextValue::Boolean(truth)) => truth.to_string(),
        Some(ContextValue::Texts(texts)) => texts.join(","),
        None => String::new(),
    };
    let values: Vec<String> = names.iter().map(value).collect();
    if values.iter().all(String::is_empty) {
        return anyone();
    }
    let joined = values.join("|");
    UserId::new(joined.as_str())
        .or_else(|_| UserId::new(format!("{:032x}", xxh3_128(joined.as_bytes()))))
        .unwrap_or_else(|_| anyone())
}

/// The attributes of an action, as many as fit.
#[must_use]
pub fn attributes(fields: &Fields) -> Map<String, Value> {
    let (mut attributes, mut bytes, mut left_out) = (Map::new(), 0, 0);
    for (name, value) in fields {
        let size = name.len() + bytes_of(value);
        let is_bounded = !name.is_empty() && name.len() <= NAME_BYTES_MAX && size <= ATTRIBUTE_BYTES_MAX;
        if !is_bounded || attributes.len() >= ATTRIBUTES_MAX || bytes + size > ATTRIBUTES_BYTES_MAX {
            left_out += 1;
            continue;
        }
        bytes += size;
        attributes.insert(name.clone(), serde_json::to_value(value).unwrap_or_default());
    }
    count_left_out(left_out);
    attributes
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects(value: Value) -> Vec<Map<String, Value>> {
        serde_json::from_value(value).unwrap()
    }

    fn circumstances(features: Value, user_fields: &[&str]) -> Circumstances {
        let user_fields = user_fields.iter().map(|name| (*name).to_owned()).collect();
        Circumstances::of(&objects(features), &config::Personalizer { user_fields, ..config::Personalizer::default() })
    }

    #[test]
    fn namespaces_objects_and_arrays_become_flat_fields() {
        let features = json!([
            {"timeOfDay": "morning", "weekend": false},
            {"user": {"country": "US", "age": 31.5, "tags": ["a", "b"], "plan": null}},
            {"device": [{"os": "ios"}, {"model": "x"}], "scores": [1, 2.5, true]},
            {"user": {"tags": ["c"]}}
        ]);
        let context = circumstances(features, &[]).context(&Fields::new()).unwrap();
        let expected = json!({"device.model": "x", "device.os": "ios", "scores": ["1", "2.5", "true"],
            "timeOfDay": "morning", "user.age": 31.5, "user.country": "US", "user.tags": ["a", "b", "c"],
            "weekend": false});
        assert_eq!(serde_json::to_value(&*context).unwrap(), expected);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_nothing_fails() {
        let mut deep = json!("end");
        for _ in 0..100 {
            deep = json!({ "x": deep });
        }
        let many: Map<String, Value> = (0..5_000).map(|n| (format!("f{n:04}"), json!(n))).collect();
        let features = json!([{"deep": deep, "long": "x".repeat(5_000), ("n".repeat(65)): 1, "": "nameless", "huge": 1e300,
            "matrix": [[1], [2]]}, many]);
        let circumstances = circumstances(features, &[]);
        let context = circumstances.context(&Fields::new()).unwrap();
        assert_eq!(context.fields().count(), FIELDS_MAX);
        assert!(attributes(&circumstances.fields).len() <= ATTRIBUTES_MAX);
        assert_eq!(Circumstances::default().context(&Fields::new()), None);
    }

    #[test]
    fn the_features_of_a_slot_come_first() {
        let of_request = circumstances(json!([{"page": "home", "slot": "theirs"}]), &[]);
        let of_slot = Fields::from([("slot".to_owned(), ContextValue::Text("top".to_owned()))]);
        let context = of_request.context(&of_slot).unwrap();
        assert_eq!(serde_json::to_value(&*context).unwrap(), json!({"page": "home", "slot": "top"}));
    }

    #[test]
    fn a_user_is_named_by_fields_or_shared() {
        let user = |features: Value, names: &[&str]| circumstances(features, names).user.unwrap().to_string();
        let features = json!([{"user": {"id": "u-42"}, "device": "phone", "hour": 8}]);
        assert_eq!(user(features.clone(), &["user.id"]), "u-42");
        assert_eq!(user(features.clone(), &["device", "hour"]), "phone|8");
        assert_eq!(user(features.clone(), &["device", "none"]), "phone|");
        for names in [&[][..], &["none"], &["none", "none"]] {
            assert_eq!(user(features.clone(), names), ANYONE);
        }
        assert_eq!(user(json!([{"id": "x".repeat(300)}]), &["id"]).len(), 32);
        assert_eq!(user(json!([{"id": "a\u{7}b"}]), &["id"]).len(), 32);
    }
}
