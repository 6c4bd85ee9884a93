//! A study in words: its summary and its trials as a table.

use std::fmt::Write as _;

use serde_json::Value;

use crate::models::aligned;

/// Number of trials that are shown, the best first.
const TRIALS_SHOWN: usize = 10;

fn figure(value: &Value) -> Option<String> {
    Some(format!("{:.4}", value.as_f64()?))
}

/// Settings as `dim=32 regularization=0.5`.
fn settings(params: &Value) -> String {
    let pairs = params.as_object().into_iter().flatten().map(|(name, value)| match value {
        Value::String(text) => format!("{name}={text}"),
        value => format!("{name}={value}"),
    });
    let pairs: Vec<String> = pairs.collect();
    if pairs.is_empty() { "the present settings".to_owned() } else { pairs.join(" ") }
}

/// One line: how far the study is, and what it has found.
pub fn line(study: &Value) -> String {
    let text = |name: &str| study[name].as_str().unwrap_or_default();
    let mut line = format!("study {} of {}: {}", text("study"), text("model"), text("state"));
    if let Some(why) = study["why_stopped"].as_str() {
        let _ = write!(line, " ({why})");
    }
    let _ = write!(line, ", {} trials complete", study["complete"]);
    let loss = |of: &str| {
        let figures = (figure(&study[of]["value"])?, figure(&study[of]["standard_error"]));
        Some(match figures {
            (value, Some(error)) => format!("{} {value} ± {error}", text("metric")),
            (value, None) => format!("{} {value}", text("metric")),
        })
    };
    if let Some(baseline) = loss("baseline") {
        let _ = write!(line, "\npresent settings: {baseline}");
    }
    if let Some(best) = loss("best").filter(|_| study["best"]["trial"] != 0) {
        let (trial, params) = (&study["best"]["trial"], settings(&study["best"]["params"]));
        let _ = write!(line, "\nbest: {best}, trial {trial}: {params}");
        let difference = study["baseline"]["value"].as_f64().zip(study["best"]["value"].as_f64());
        let error = figure(&study["best"]["difference_error"]);
        if let Some(((before, after), error)) = difference.zip(error) {
            let _ = write!(line, "\nlower by {:.4} ± {error}", before - after);
        }
    } else if study["state"] == "ended" && study["baseline"].is_object() {
        line.push_str("\nbest: the present settings");
    }
    if let Some(job) = study["applied"]["job"].as_str() {
        let _ = write!(line, "\napplied by job {job}");
    }
    if let Some(error) = study["error"].as_str() {
        let _ = write!(line, "\n{error}");
    }
    line.push('\n');
    line
}

/// The best trials, then those without a loss, and the importance of the settings.
pub fn trials(study: &Value) -> String {
    let mut all: Vec<&Value> = study["trials"].as_array().into_iter().flatten().collect();
    all.sort_by(|a, b| {
        let loss = |trial: &Value| trial["value"].as_f64().unwrap_or(f64::INFINITY);
        loss(a).total_cmp(&loss(b))
    });
    let header = ["TRIAL", "STATE", "LOSS", "SECONDS", "SETTINGS"].map(str::to_owned);
    let row = |trial: &&Value| {
        let seconds = trial["seconds"].as_f64().map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}"));
        let about = trial["error"].as_str().map_or_else(|| settings(&trial["params"]), str::to_owned);
        let state = trial["state"].as_str().unwrap_or_default().to_owned();
        let loss = figure(&trial["value"]).unwrap_or_else(|| "-".to_owned());
        [trial["trial"].to_string(), state, loss, seconds, about]
    };
    let rows: Vec<[String; 5]> = std::iter::once(header).chain(all.iter().take(TRIALS_SHOWN).map(row)).collect();
    let mut text = aligned(&rows);
    if all.len() > TRIALS_SHOWN {
        let _ = writeln!(text, "and {} more", all.len() - TRIALS_SHOWN);
    }
    let importance = study["importance"].as_object().into_iter().flatten();
    let mut shares: Vec<(&String, f64)> =
        importance.filter_map(|(name, share)| Some((name, share.as_f64()?))).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    if !shares.is_empty() {
        let shares: Vec<String> = shares.iter().map(|(name, share)| format!("{name} {:.0} %", share * 100.0)).collect();
        let _ = writeln!(text, "importance: {}", shares.join(", "));
    }
    text
}
