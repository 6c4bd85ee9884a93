//! Makes an observation's JSON of a message's.

use std::collections::BTreeMap;

use celeris_model::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// The fields that an observation may take from a message.
pub const FIELDS: [&str; 9] =
    ["user", "item", "label", "weight", "timestamp", "observation_id", "decision_id", "feedback", "context"];

/// Why a message is no observation, and cannot become one by being read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poison {
    /// The field of the observation, if it is about one.
    pub field: Option<String>,
    pub reason: String,
}

impl Poison {
    fn new(reason: &(impl ToString + ?Sized)) -> Self {
        Self { field: None, reason: reason.to_string() }
    }

    fn at(field: &str, reason: &(impl ToString + ?Sized)) -> Self {
        Self { field: Some(field.to_owned()), reason: reason.to_string() }
    }
}

/// The unit of times that are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum TimeUnit {
    #[serde(rename = "s")]
    Seconds,
    #[default]
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "us")]
    Microseconds,
}

/// Which fields of a message are the fields of an observation. The default takes a message as the body of `observe`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Mapping {
    /// By field of the observation: the keys that lead to its value.
    paths: Vec<(String, Vec<String>)>,
    /// By field of the context.
    context: Vec<(String, Vec<String>)>,
    values: Vec<(String, Value)>,
    labels: BTreeMap<String, f64>,
    time_unit: TimeUnit,
}

impl Mapping {
    /// `map` has the paths of fields, keys separated by dots; `context` those of fields of the context; `values` what fields have
    /// in every observation; `labels` the label for each text at the path of the label.
    ///
    /// # Errors
    /// What is wrong, with the name of the key.
    pub fn new(
        map: &BTreeMap<String, String>,
        context: &BTreeMap<String, String>,
        values: &BTreeMap<String, Value>,
        (labels, time_unit): (&BTreeMap<String, f64>, TimeUnit),
    ) -> Result<Self, String> {
        let known = |section: &str, field: &str| {
            let expected = FIELDS.join(", ");
            FIELDS
                .contains(&field)
                .then_some(())
                .ok_or(format!("{section}.{field}: no field of observations; expected {expected}"))
        };
        let mut mapping = Self { labels: labels.clone(), time_unit, ..Self::default() };
        for (field, text) in map {
            known("map", field)?;
            mapping.paths.push((field.clone(), path("map", field, text)?));
        }
        for (field, text) in context {
            mapping.context.push((field.clone(), path("context", field, text)?));
        }
        for (field, value) in values {
            known("values", field)?;
            if map.contains_key(field) {
                return Err(format!("values.{field}: the message gives it too, by map.{field}"));
            }
            mapping.values.push((field.clone(), value.clone()));
        }
        if !context.is_empty() && (map.contains_key("context") || values.contains_key("context")) {
            return Err("context: map and values give it too".to_owned());
        }
        if !labels.is_empty() && !map.contains_key("label") {
            return Err("labels: map.label is missing: the path of what decides the label".to_owned());
        }
        if let Some((text, _)) = labels.iter().find(|(_, label)| !label.is_finite()) {
            return Err(format!("labels.{text}: must be a finite number"));
        }
        if !mapping.is_identity() {
            for field in ["user", "item", "label"] {
                if !map.contains_key(field) && !values.contains_key(field) {
                    return Err(format!("map.{field}: missing; give the path of it in a message"));
                }
            }
        }
        Ok(mapping)
    }

    fn is_identity(&self) -> bool {
        self.paths.is_empty() && self.context.is_empty() && self.values.is_empty()
    }

    /// The body of `observe` for a message. Without a time of its own, the observation has that of the message.
    ///
    /// # Errors
    /// If the message has no JSON object, or not what the mapping names.
    pub fn observation(&self, payload: &[u8], published: Timestamp) -> Result<Vec<u8>, Poison> {
        let message: Value =
            serde_json::from_slice(payload).map_err(|error| Poison::new(&format!("no JSON: {error}")))?;
        let Value::Object(message) = message else { return Err(Poison::new("expected a JSON object")) };
        let mut observation = if self.is_identity() { message } else { self.picked(&message)? };
        if observation.get("timestamp").is_none_or(Value::is_null) {
            observation.insert("timestamp".to_owned(), published.0.into());
        }
        serde_json::to_vec(&observation).map_err(|error| Poison::new(&error))
    }

    fn picked(&self, message: &Map<String, Value>) -> Result<Map<String, Value>, Poison> {
        let mut observation = Map::new();
        for (field, path) in &self.paths {
            let Some(value) = at(message, path) else {
                if matches!(field.as_str(), "user" | "item" | "label") {
                    return Err(Poison::at(field, &format!("the message has no {}", path.join("."))));
                }
                continue;
            };
            observation.insert(field.clone(), self.value(field, value)?);
        }
        observation.extend(self.values.iter().cloned());
        let context: Map<String, Value> = self
            .context
            .iter()
            .filter_map(|(field, path)| at(message, path).map(|value| (field.clone(), value.clone())))
            .collect();
        if !context.is_empty() {
            observation.insert("context".to_owned(), Value::Object(context));
        }
        Ok(observation)
    }

    fn value(&self, field: &str, value: &Value) -> Result<Value, Poison> {
        match (field, value) {
            ("label", Value::String(text)) if !self.labels.is_empty() => {
                let label = self.labels.get(text);
                let label = label.ok_or_else(|| Poison::at(field, &format!("`labels` has no label for {text:?}")))?;
                Number::from_f64(*label).map(Value::Number).ok_or_else(|| Poison::at(field, "not a finite number"))
            }
            ("timestamp", Value::Number(number)) => {
                let milliseconds = match self.time_unit {
                    TimeUnit::Milliseconds => return Ok(value.clone()),
                    TimeUnit::Seconds => number.as_f64().map(|seconds| seconds * 1e3),
                    TimeUnit::Microseconds => number.as_f64().map(|micros| micros / 1e3),
                };
                // Beyond this, whole milliseconds are no numbers of a double; the node refuses such times anyway.
                let whole = milliseconds.map(f64::round).filter(|time| time.abs() < 9e15);
                whole.map(|time| Value::from(time as i64)).ok_or_else(|| Poison::at(field, "out of range"))
            }
            _ => Ok(value.clone()),
        }
    }
}

fn path(section: &str, field: &str, text: &str) -> Result<Vec<String>, String> {
    let keys: Vec<String> = text.split('.').map(str::to_owned).collect();
    if keys.iter().any(String::is_empty) {
        return Err(format!(
            "{section}.{field}: {text:?} is no path; give keys separated by dots, such as \"user.id\""
        ));
    }
    Ok(keys)
}

/// What a path leads to; nothing if that is null. A key that has dots itself is tried first.
fn at<'m>(message: &'m Map<String, Value>, path: &[String]) -> Option<&'m Value> {
    let whole = message.get(&path.join("."));
    let found = whole.or_else(|| {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(message.get(first)?, |value, key| value.get(key))
    });
    found.filter(|value| !value.is_null())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn clicks() -> Mapping {
        let map = texts(&[("user", "user.id"), ("item", "sku"), ("label", "event"), ("timestamp", "at")]);
        let values = [("feedback".to_owned(), json!("click"))].into();
        let labels = [("view".to_owned(), 0.0), ("purchase".to_owned(), 1.0)].into();
        let context = texts(&[("device", "client.device")]);
        Mapping::new(&map, &context, &values, (&labels, TimeUnit::Seconds)).unwrap()
    }

    fn observed(mapping: &Mapping, message: &Value) -> Result<Value, Poison> {
        let body = mapping.observation(message.to_string().as_bytes(), Timestamp(7))?;
        Ok(serde_json::from_slice(&body).unwrap())
    }

    #[test]
    fn fields_are_picked_by_their_paths() {
        let message =
            json!({ "user": { "id": 12 }, "sku": "a", "event": "purchase", "at": 1.7e9, "client": { "device": "tv" } });
        let expected = json!({
            "user": 12, "item": "a", "label": 1.0, "timestamp": 1_700_000_000_000_i64, "feedback": "click",
            "context": { "device": "tv" },
        });
        assert_eq!(observed(&clicks(), &message).unwrap(), expected);
    }

    #[test]
    fn a_message_without_a_mapping_is_the_body_of_observe() {
        let mapping = Mapping::new(&texts(&[]), &texts(&[]), &BTreeMap::new(), (&BTreeMap::new(), TimeUnit::default()));
        let mapping = mapping.unwrap();
        let expected = json!({ "user": "u", "item": "i", "label": 0.1, "timestamp": 7 });
        for message in [
            json!({ "user": "u", "item": "i", "label": 0.1 }),
            json!({ "user": "u", "item": "i", "label": 0.1, "timestamp": null }),
        ] {
            assert_eq!(observed(&mapping, &message).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let poison = |message: Value| observed(&clicks(), &message).unwrap_err();
        let whole = json!({ "user": { "id": 12 }, "sku": "a", "event": "purchase" });
        for (field, path) in [("user", "/user/id"), ("item", "/sku"), ("label", "/event")] {
            let mut message = whole.clone();
            *message.pointer_mut(path).unwrap() = Value::Null;
            assert_eq!(poison(message).field.as_deref(), Some(field));
        }
        let unknown = poison(json!({ "user": { "id": 12 }, "sku": "a", "event": "hover" }));
        assert_eq!((unknown.field.as_deref(), unknown.reason.contains("hover")), (Some("label"), true));
        let far = poison(json!({ "user": { "id": 1 }, "sku": "a", "event": "view", "at": 1e300 }));
        assert_eq!(far.field.as_deref(), Some("timestamp"));
        assert_eq!(poison(json!([1])).field, None);
        assert!(clicks().observation(b"\xff{", Timestamp(0)).is_err());
    }

    #[test]
    fn a_mapping_that_cannot_work_is_refused_with_its_key() {
        let refused = |map: &[(&str, &str)]| {
            Mapping::new(&texts(map), &texts(&[]), &BTreeMap::new(), (&BTreeMap::new(), TimeUnit::default()))
                .unwrap_err()
        };
        assert!(refused(&[("user", "u"), ("item", "i")]).starts_with("map.label: missing"));
        assert!(refused(&[("usr", "u")]).starts_with("map.usr: no field"));
        assert!(refused(&[("user", "u..id")]).starts_with("map.user: "));
    }
}
