//! Parses and validates filters from JSON.

use serde_json::{Map, Value as Json};

use super::{DEPTH_MAX, FIELD_BYTES_MAX, Filter, FilterError, KEYWORD_BYTES_MAX, Range, TERMS_MAX, Value};
use crate::times::unix_milliseconds;

const KINDS: &str = "all, any, not, eq, in, range, exists";

pub(super) fn filter(json: &Json) -> Result<Filter, FilterError> {
    Reader { terms: 0 }.filter(json, "", 1)
}

fn wrong<T>(place: &str, problem: impl Into<String>) -> Result<T, FilterError> {
    Err(FilterError { place: place.to_owned(), problem: problem.into() })
}

/// The path of `name` in `place`.
fn within(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

/// The JSON type of a value, for error messages.
fn kind(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}

fn object<'j>(json: &'j Json, place: &str) -> Result<&'j Map<String, Json>, FilterError> {
    json.as_object().map_or_else(|| wrong(place, format!("expected an object, got {}", kind(json))), Ok)
}

struct Reader {
    /// Number of filters and values so far.
    terms: usize,
}

impl Reader {
    fn count(&mut self, place: &str) -> Result<(), FilterError> {
        self.terms += 1;
        if self.terms > TERMS_MAX {
            return wrong(place, format!("a filter may hold at most {TERMS_MAX} filters and values altogether"));
        }
        Ok(())
    }

    fn filter(&mut self, json: &Json, place: &str, depth: usize) -> Result<Filter, FilterError> {
        self.count(place)?;
        if depth > DEPTH_MAX {
            return wrong(place, format!("filters may lie at most {DEPTH_MAX} deep in one another"));
        }
        let mut entries = object(json, place)?.iter();
        let (Some((name, body)), None) = (entries.next(), entries.next()) else {
            return wrong(place, format!("expected an object with one key, one of {KINDS}"));
        };
        let inside = within(place, name);
        match name.as_str() {
            "all" => self.filters(body, &inside, depth).map(Filter::All),
            "any" => self.filters(body, &inside, depth).map(Filter::Any),
            "not" => Ok(Filter::Not(Box::new(self.filter(body, &inside, depth + 1)?))),
            "eq" => {
                let [value] = known(body, &inside, ["value"])?;
                let Some(value) = value else { return wrong(&inside, "missing field `value`") };
                let value = self.value(value, &within(&inside, "value"))?;
                Ok(Filter::In { field: field(body, &inside)?, values: vec![value] })
            }
            "in" => {
                let [values] = known(body, &inside, ["values"])?;
                let Some(values) = values else { return wrong(&inside, "missing field `values`") };
                let values = self.values(values, &within(&inside, "values"))?;
                Ok(Filter::In { field: field(body, &inside)?, values })
            }
            "range" => Ok(Filter::Range { range: range(body, &inside)?, field: field(body, &inside)? }),
            "exists" => {
                let [] = known(body, &inside, [])?;
                Ok(Filter::Exists { field: field(body, &inside)? })
            }
            other => wrong(place, format!("unknown filter `{other}`, expected one of {KINDS}")),
        }
    }

    fn filters(&mut self, json: &Json, place: &str, depth: usize) -> Result<Vec<Filter>, FilterError> {
        let Some(filters) = json.as_array() else {
            return wrong(place, format!("expected an array of filters, got {}", kind(json)));
        };
        let one = |(at, json)| self.filter(json, &format!("{place}[{at}]"), depth + 1);
        filters.iter().enumerate().map(one).collect()
    }

    fn values(&mut self, json: &Json, place: &str) -> Result<Vec<Value>, FilterError> {
        let Some(values) = json.as_array() else {
            return wrong(place, format!("expected an array of values, got {}", kind(json)));
        };
        values.iter().enumerate().map(|(at, json)| self.value(json, &format!("{place}[{at}]"))).collect()
    }

    fn value(&mut self, json: &Json, place: &str) -> Result<Value, FilterError> {
        self.count(place)?;
        match json {
            Json::String(text) if text.len() > KEYWORD_BYTES_MAX => {
                wrong(place, format!("texts of more than {KEYWORD_BYTES_MAX} bytes cannot be filtered by"))
            }
            Json::String(text) => Ok(Value::Keyword(text.clone())),
            Json::Bool(truth) => Ok(Value::Boolean(*truth)),
            Json::Number(number) => match number.as_f64() {
                Some(number) => Ok(Value::Number(number)),
                None => wrong(place, "expected a number that a 64-bit float can hold"),
            },
            other => wrong(place, format!("expected a text, number or boolean, got {}", kind(other))),
        }
    }
}

/// The fields of `names`, in their order; any other field except `field` is rejected.
fn known<'j, const N: usize>(
    json: &'j Json,
    place: &str,
    names: [&str; N],
) -> Result<[Option<&'j Json>; N], FilterError> {
    let body = object(json, place)?;
    if let Some(unknown) = body.keys().find(|key| *key != "field" && !names.contains(&key.as_str())) {
        let expected = ["field"].iter().chain(&names).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        return wrong(place, format!("unknown field `{unknown}`, expected {expected}"));
    }
    Ok(names.map(|name| body.get(name)))
}

fn field(json: &Json, place: &str) -> Result<String, FilterError> {
    let place = within(place, "field");
    match json.get("field") {
        Some(Json::String(name)) if name.is_empty() || name.len() > FIELD_BYTES_MAX => {
            wrong(&place, format!("attributes have names of 1 to {FIELD_BYTES_MAX} bytes"))
        }
        Some(Json::String(name)) => Ok(name.clone()),
        Some(other) => wrong(&place, format!("expected the name of an attribute, got {}", kind(other))),
        None => wrong(&place, "missing: name the attribute"),
    }
}

fn range(json: &Json, place: &str) -> Result<Range, FilterError> {
    let [gte, gt, lte, lt] = known(json, place, ["gte", "gt", "lte", "lt"])?;
    let bound = |inclusive: Option<&Json>, exclusive: Option<&Json>, names: [&str; 2], step: fn(f64) -> f64| {
        match (inclusive, exclusive) {
            (Some(_), Some(_)) => wrong(place, format!("`{}` and `{}` exclude one another", names[0], names[1])),
            (Some(bound), None) => number(bound, &within(place, names[0])).map(Some),
            // The exclusive bound is the neighbouring number, so that every stored bound is
            // inclusive.
            (None, Some(bound)) => number(bound, &within(place, names[1])).map(step).map(Some),
            (None, None) => Ok(None),
        }
    };
    let low = bound(gte, gt, ["gte", "gt"], f64::next_up)?;
    let high = bound(lte, lt, ["lte", "lt"], f64::next_down)?;
    if low.is_none() && high.is_none() {
        return wrong(place, "expected at least one of `gte`, `gt`, `lte`, `lt`");
    }
    Ok(Range { low: low.unwrap_or(f64::NEG_INFINITY), high: high.unwrap_or(f64::INFINITY) })
}

fn number(json: &Json, place: &str) -> Result<f64, FilterError> {
    let found = match json {
        Json::Number(number) => number.as_f64(),
        Json::String(text) => unix_milliseconds(text),
        _ => None,
    };
    found.map_or_else(|| wrong(place, "expected a number, or a time as RFC 3339 or Unix milliseconds"), Ok)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(json: &Json) -> String {
        filter(json).unwrap_err().to_string()
    }

    #[test]
    fn every_kind_is_parsed() {
        let read = filter(&json!({"all": [
            {"any": [{"eq": {"field": "genres", "value": "Drama"}}, {"in": {"field": "year", "values": [1931, true]}}]},
            {"not": {"exists": {"field": "withdrawn"}}},
            {"range": {"field": "added", "gt": 0, "lte": "1970-01-01T00:00:01Z"}},
        ]}))
        .unwrap();
        let field = |name: &str| name.to_owned();
        let expected = Filter::All(vec![
            Filter::Any(vec![
                Filter::In { field: field("genres"), values: vec![Value::Keyword("Drama".into())] },
                Filter::In { field: field("year"), values: vec![Value::Number(1931.0), Value::Boolean(true)] },
            ]),
            Filter::Not(Box::new(Filter::Exists { field: field("withdrawn") })),
            Filter::Range { field: field("added"), range: Range { low: f64::from_bits(1), high: 1000.0 } },
        ]);
        assert_eq!(read, expected);
    }

    #[test]
    fn errors_name_the_problem_and_its_place() {
        assert_eq!(refused(&json!([])), "expected an object, got an array");
        assert_eq!(refused(&json!({})), format!("expected an object with one key, one of {KINDS}"));
        assert_eq!(refused(&json!({"al": []})), format!("unknown filter `al`, expected one of {KINDS}"));
        let nested = json!({"all": [{"not": {"eq": {"field": "a", "value": 1}}}, {"eq": {"field": "a", "value": []}}]});
        assert_eq!(refused(&nested), "all[1].eq.value: expected a text, number or boolean, got an array");
        let unknown = json!({"any": [{"eq": {"field": "a", "value": 1, "boost": 2}}]});
        assert_eq!(refused(&unknown), "any[0].eq: unknown field `boost`, expected `field`, `value`");
        assert_eq!(refused(&json!({"exists": {}})), "exists.field: missing: name the attribute");
        assert_eq!(refused(&json!({"in": {"field": "a"}})), "in: missing field `values`");
        let bounds = json!({"range": {"field": "a", "gt": 1, "gte": 1}});
        assert_eq!(refused(&bounds), "range: `gte` and `gt` exclude one another");
        assert!(refused(&json!({"range": {"field": "a", "lt": "soon"}})).starts_with("range.lt: expected a number"));
        assert!(refused(&json!({"range": {"field": "a"}})).starts_with("range: expected at least one"));
    }

    #[test]
    fn filters_are_bounded() {
        let deep = (1..DEPTH_MAX).fold(json!({"exists": {"field": "a"}}), |inner, _| json!({"not": inner}));
        assert!(filter(&deep).is_ok());
        assert!(refused(&json!({"not": deep})).contains("8 deep"));
        let values: Vec<usize> = (0..TERMS_MAX).collect();
        assert!(filter(&json!({"in": {"field": "a", "values": &values[1..]}})).is_ok());
        assert!(refused(&json!({"in": {"field": "a", "values": values}})).contains("at most 4096"));
        assert!(refused(&json!({"eq": {"field": "a", "value": "x".repeat(257)}})).contains("256 bytes"));
        assert!(refused(&json!({"exists": {"field": "x".repeat(129)}})).contains("128 bytes"));
    }
}
