//! The search space on the command line: `--search NAME=VALUES`.

use serde_json::{Value, json};

/// One axis of the space.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    pub name: String,
    pub axis: Value,
}

/// Reads `dim=8..64`, `regularization=0.1..10.0:log` or `half_life=null,604800`.
///
/// # Errors
/// What is expected.
pub fn search(text: &str) -> Result<Search, String> {
    let expected =
        || format!("expected NAME=LOW..HIGH, NAME=LOW..HIGH:log or NAME=VALUE,VALUE, as in dim=8..64, got {text:?}");
    let (name, values) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(expected)?;
    let name = name.to_owned();
    let (range, is_log) = values.strip_suffix(":log").map_or((values, false), |range| (range, true));
    let Some((low, high)) = range.split_once("..") else {
        if is_log || !values.contains(',') {
            return Err(expected());
        }
        let choice: Vec<Value> = values.split(',').map(scalar).collect();
        return Ok(Search { name, axis: json!({ "choice": choice }) });
    };
    let mut axis = match (low.parse::<i64>(), high.parse::<i64>()) {
        (Ok(low), Ok(high)) => json!({ "int": [low, high] }),
        _ => {
            let [low, high] = [low, high].map(|end| end.parse::<f64>().ok().filter(|end| end.is_finite()));
            json!({ "float": [low.ok_or_else(expected)?, high.ok_or_else(expected)?] })
        }
    };
    if is_log {
        axis["log"] = true.into();
    }
    Ok(Search { name, axis })
}

/// A number, `true`, `false` or `null` as such, anything else as a text.
fn scalar(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_))) => value,
        _ => text.into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_choices_are_read() {
        for (text, axis) in [
            ("dim=8..64", json!({"int": [8, 64]})),
            ("dim=8..64:log", json!({"int": [8, 64], "log": true})),
            ("dim=0.1..10:log", json!({"float": [0.1, 10.0], "log": true})),
            ("dim=1.0..10.0", json!({"float": [1.0, 10.0]})),
            ("dim=-3..-1", json!({"int": [-3, -1]})),
            ("dim=null,604800,long", json!({"choice": [null, 604_800, "long"]})),
        ] {
            assert_eq!(search(text).unwrap(), Search { name: "dim".to_owned(), axis }, "{text}");
        }
        for text in ["dim", "=8..64", "dim=", "dim=8", "dim=8..", "dim=a..b", "dim=1,2:log", "dim=1..inf"] {
            assert!(search(text).unwrap_err().contains("expected NAME="), "{text}");
        }
    }
}
