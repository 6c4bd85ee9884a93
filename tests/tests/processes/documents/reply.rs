//! Comparison of a reply that a page shows with a real one.
//!
//! In a shown reply, `…` stands for what is left out: fields of an object, items of an array, a
//! value, part of a text or of a line, or whole lines. Numbers are shown with as many decimals as
//! the page likes.

use std::ops::Range;

use serde_json::{Deserializer, Value};

use super::page::Reply;

/// Fields whose values differ from run to run: ids, times, durations, and numbers drawn at random.
const VOLATILE: [&str; 14] = [
    "at",
    "created",
    "decision_id",
    "erased",
    "finished",
    "input_removed_by",
    "job",
    "next",
    "seconds",
    "seed",
    "segments_rewritten_by",
    "since",
    "started",
    "timestamp",
];

/// A new text for part of a page.
pub struct Edit {
    pub range: Range<usize>,
    pub text: String,
}

/// Applies edits, of which no two overlap.
pub fn apply(page: &mut String, mut edits: Vec<Edit>) {
    edits.sort_by_key(|edit| std::cmp::Reverse(edit.range.start));
    for edit in edits {
        page.replace_range(edit.range, &edit.text);
    }
}

/// What is wrong with a shown reply, and the text that would be right.
#[derive(Debug)]
pub struct Difference {
    pub what: String,
    /// The bytes of the shown reply.
    pub range: Range<usize>,
    pub text: String,
}

/// The detail of the first problem among the lines of an output.
pub fn refusal(output: &str) -> Option<String> {
    let replies = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut problems = replies.filter(|reply| reply["status"].as_u64().is_some_and(|status| status >= 400));
    problems.next().map(|problem| problem["detail"].to_string())
}

/// Compares the whole of a shown reply with an output.
pub fn differences(reply: &Reply, shown: &str, output: &str) -> Vec<Difference> {
    let whole = |what: String| vec![Difference { what, range: 0..shown.len(), text: format!("{output}\n") }];
    if !reply.is_json {
        let [shown, real] = [shown, output].map(|text| lines(text, reply.is_measured));
        return if lines_match(&shown, &real) { Vec::new() } else { whole(format!("the output is\n{output}")) };
    }
    let real: Result<Vec<Value>, _> = Deserializer::from_str(output).into_iter().collect();
    let (shown_replies, real) = match (Parser::new(shown).replies(), real) {
        (Err(problem), _) => return whole(format!("the reply cannot be read: {problem}")),
        (_, Err(_)) => return whole(format!("the output is not JSON:\n{output}")),
        (Ok(shown), Ok(real)) => (shown, real),
    };
    let is_open = shown_replies.last().is_some_and(|last| matches!(last.kind, Kind::Any));
    let count = shown_replies.len() - usize::from(is_open);
    if real.len() < count || (real.len() > count && !is_open) {
        return whole(format!("{} replies are shown, but there are {}:\n{output}", count, real.len()));
    }
    let mut found = Vec::new();
    let context = Context { is_measured: reply.is_measured };
    for (number, (shown, real)) in shown_replies.iter().zip(&real).enumerate() {
        context.compare(&format!("reply {}", number + 1), shown, real, &mut found);
    }
    found
}

/// The lines of a text; of a measured one without its numbers, and with single spaces.
fn lines(text: &str, is_measured: bool) -> Vec<String> {
    let is_numeric = |word: &str| word.parse::<f64>().is_ok();
    let without = |line: &str| {
        let words = line.split_whitespace().map(|word| if is_numeric(word) { "0" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    let lines = text.trim_end().lines();
    lines.map(|line| if is_measured { without(line) } else { line.trim_end().to_owned() }).collect()
}

/// Whether lines are as shown; a line of `…` alone stands for any lines.
fn lines_match(shown: &[String], real: &[String]) -> bool {
    match shown.split_first() {
        None => real.is_empty(),
        Some((first, rest)) if first.trim() == "…" => {
            (0..=real.len()).any(|skipped| lines_match(rest, &real[skipped..]))
        }
        Some((first, rest)) => {
            real.split_first().is_some_and(|(line, others)| text_matches(first, line) && lines_match(rest, others))
        }
    }
}

/// Whether a text is as shown; `…` stands for any text.
fn text_matches(shown: &str, real: &str) -> bool {
    let Some((before, after)) = shown.split_once('…') else { return shown == real };
    let Some(rest) = real.strip_prefix(before) else { return false };
    let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    ends.into_iter().any(|end| text_matches(after, &rest[end..]))
}

#[derive(Debug)]
struct Shown {
    range: Range<usize>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// `…` as a value.
    Any,
    /// `is_open` if there is a `…` among the fields or items.
    Object {
        fields: Vec<(String, Shown)>,
        is_open: bool,
    },
    Array {
        items: Vec<Shown>,
        is_open: bool,
    },
    Text(String),
    /// As written, for its decimals.
    Number(String),
    Other(Value),
}

/// A reader of JSON with `…`.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn replies(mut self) -> Result<Vec<Shown>, String> {
        let mut replies = Vec::new();
        while !self.rest().is_empty() {
            replies.push(self.value()?);
        }
        Ok(replies)
    }

    /// What follows, without leading space.
    fn rest(&mut self) -> &'a str {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest
    }

    fn take(&mut self, token: &str) -> bool {
        let takes = self.rest().starts_with(token);
        self.at += if takes { token.len() } else { 0 };
        takes
    }

    fn value(&mut self) -> Result<Shown, String> {
        let rest = self.rest();
        let start = self.at;
        let kind = if self.take("…") {
            Kind::Any
        } else if self.take("{") {
            let mut fields = Vec::new();
            let is_open = self.members('}', |parser| {
                let Kind::Text(name) = parser.value()?.kind else { return Err("a field has no name".to_owned()) };
                if !parser.take(":") {
                    return Err(format!("a colon is missing after {name:?}"));
                }
                fields.push((name, parser.value()?));
                Ok(())
            })?;
            Kind::Object { fields, is_open }
        } else if self.take("[") {
            let mut items = Vec::new();
            let is_open = self.members(']', |parser| parser.value().map(|item| items.push(item)))?;
            Kind::Array { items, is_open }
        } else {
            let mut values = Deserializer::from_str(rest).into_iter::<Value>();
            let value = values.next().ok_or("the reply ends early")?.map_err(|error| error.to_string())?;
            self.at += values.byte_offset();
            match value {
                Value::String(text) => Kind::Text(text),
                Value::Number(_) => Kind::Number(self.text[start..self.at].to_owned()),
                value => Kind::Other(value),
            }
        };
        Ok(Shown { range: start..self.at, kind })
    }

    /// The members of an object or array up to its end; whether there is a `…` among them.
    fn members(&mut self, end: char, mut member: impl FnMut(&mut Self) -> Result<(), String>) -> Result<bool, String> {
        let mut is_open = false;
        while !self.take(end.encode_utf8(&mut [0; 4])) {
            if self.take("…") {
                is_open = true;
            } else {
                member(self)?;
            }
            if !self.take(",") && !self.rest().starts_with(end) {
                return Err(format!("expected `,` or `{end}` at {:?}", self.rest().lines().next()));
            }
        }
        Ok(is_open)
    }
}

/// How JSON is compared.
#[derive(Clone, Copy)]
struct Context {
    is_measured: bool,
}

impl Context {
    fn compare(self, place: &str, shown: &Shown, real: &Value, found: &mut Vec<Difference>) {
        let is_volatile = VOLATILE.contains(&place.rsplit('.').next().unwrap_or_default());
        let mut differs =
            |what: String, text: String| found.push(Difference { what, range: shown.range.clone(), text });
        match (&shown.kind, real) {
            (Kind::Any, _) => {}
            (Kind::Object { fields, is_open }, Value::Object(object)) => {
                let unknown = fields.iter().filter(|(name, _)| !object.contains_key(name));
                let missing = object.keys().filter(|name| !is_open && !fields.iter().any(|(shown, _)| shown == *name));
                let (unknown, missing): (Vec<&String>, Vec<&String>) =
                    (unknown.map(|(name, _)| name).collect(), missing.collect());
                if !unknown.is_empty() || !missing.is_empty() {
                    let what = format!("{place}: the fields {unknown:?} are shown only, {missing:?} are not shown");
                    return differs(what, written(real));
                }
                fields
                    .iter()
                    .for_each(|(name, field)| self.compare(&format!("{place}.{name}"), field, &object[name], found));
            }
            (Kind::Array { items, is_open }, Value::Array(array)) => {
                if array.len() < items.len() || (array.len() > items.len() && !is_open) {
                    let what = format!("{place}: {} items are shown, but there are {}", items.len(), array.len());
                    return differs(what, written(real));
                }
                let pairs = items.iter().zip(array).enumerate();
                pairs.for_each(|(number, (item, real))| self.compare(&format!("{place}[{number}]"), item, real, found));
            }
            (Kind::Text(_), Value::String(_)) | (Kind::Number(_), Value::Number(_)) if is_volatile => {}
            (Kind::Number(_), Value::Number(_)) if self.is_measured => {}
            (Kind::Text(text), Value::String(real_text)) if text_matches(text, real_text) => {}
            (Kind::Number(shown), Value::Number(number)) => {
                let number = number.as_f64().unwrap_or(f64::NAN);
                let decimals = shown.split_once('.').map_or(0, |(_, decimals)| decimals.len());
                // Two processors may round differently: one of the last decimal, and exactly if there is none.
                let tolerance = if decimals == 0 { 0.0 } else { 1.01 * 0.1_f64.powi(decimals.try_into().unwrap_or(0)) };
                let is_close = shown.parse().is_ok_and(|shown: f64| (shown - number).abs() <= tolerance);
                if !is_close {
                    let text = if real.is_f64() { format!("{number:.*}", decimals.max(1)) } else { real.to_string() };
                    differs(format!("{place}: {shown} is shown, but it is {number}"), text);
                }
            }
            (Kind::Other(shown), real) if shown == real => {}
            _ => differs(format!("{place}: it is {real}"), written(real)),
        }
    }
}

/// JSON on one line, with numbers to three decimals.
fn written(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Object(object) => {
            let fields = object.iter().map(|(name, value)| format!("{name:?}: {}", written(value)));
            format!("{{{}}}", joined(fields.collect()))
        }
        Value::Array(items) => format!("[{}]", joined(items.iter().map(written).collect())),
        Value::Number(number) if number.is_f64() => {
            let rounded = format!("{:.3}", number.as_f64().unwrap_or(f64::NAN));
            let shorter = rounded.trim_end_matches('0');
            if shorter.ends_with('.') { format!("{shorter}0") } else { shorter.to_owned() }
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REAL: &str =
        r#"{"item": "1", "score": 3.3349, "slots": [1, 2], "job": "0199", "why": "rmse 0.51 of 7", "user": null}"#;

    fn reply(is_json: bool) -> Reply {
        Reply { line: 1, is_json, is_measured: false, range: 0..0 }
    }

    fn count(shown: &str) -> usize {
        differences(&reply(true), shown, REAL).len()
    }

    #[test]
    fn every_field_of_a_reply_counts() {
        let right = r#"{"item": "1", "score": 3.33, "slots": [1, …], "job": "0…", "why": "rmse … of 7", "user": null}"#;
        assert_eq!(count(right), 0);
        let wrong = [
            ("3.33", "3.31"),
            ("\"1\"", "1"),
            ("[1, …]", "[1]"),
            ("of 7", "of 8"),
            (": null", ": 7"),
            ("0…\"", "0…\", \"x\": 1"),
        ];
        for (part, other) in wrong {
            assert_eq!(count(&right.replace(part, other)), 1, "{other}");
        }
        assert_eq!(count(r#"{"item": "1", "job": 5, …}"#), 1, "an id is a text");
        assert_eq!(count(r#"{"item": "1"}"#), 1, "fields are missing");
        assert_eq!(count(&format!("{right} {right}")), 1, "there is one reply");
    }

    #[test]
    fn replies_are_written_as_they_are_shown() {
        let mut page = r#"{"item": "2", "score": 3.10, "slots": [2, …], …}"#.to_owned();
        let edits = differences(&reply(true), &page, REAL).into_iter();
        apply(&mut page, edits.map(|found| Edit { range: found.range, text: found.text }).collect());
        assert_eq!(page, r#"{"item": "1", "score": 3.33, "slots": [1, …], …}"#);
    }

    #[test]
    fn lines_may_be_left_out() {
        assert!(differences(&reply(false), "a …\n…\nd\n", "a 1\nb\nc\nd").is_empty());
        assert_eq!(differences(&reply(false), "a …\n…\nd\n", "a 1\nb\nc\ne").len(), 1);
    }

    #[test]
    fn measured_numbers_may_differ() {
        let measured = |is_json| Reply { is_measured: true, ..reply(is_json) };
        assert!(differences(&measured(false), "disk   3.2 GiB\n", "disk  13.4 GiB").is_empty());
        assert_eq!(differences(&measured(false), "disk   3.2 GiB\n", "disk   3.2 MiB").len(), 1);
        assert!(differences(&measured(true), r#"{"score": 7}"#, r#"{"score": 3.33}"#).is_empty());
        assert_eq!(differences(&measured(true), r#"{"score": 7}"#, r#"{"score": null}"#).len(), 1);
    }
}
