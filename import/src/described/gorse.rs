//! The attributes of items and users that Gorse wrote.

use serde_json::{Map, Value, json};

use crate::cell::Cell;
use crate::layout::gorse::NO_TIME;
use crate::mapping::plain;
use crate::source::Rows;
use crate::times;

/// A time that is over, from which on a hidden item is not shown.
const HIDDEN_UNTIL: &str = "1970-01-01T00:00:00Z";

/// The attributes that are not labels.
const OWN: [&str; 6] = ["categories", "timestamp", "comment", "is_hidden", "available_from", "available_until"];

/// How deep objects in labels lie in one another; deeper ones are attributes as they are.
const DEPTH_MAX: usize = 8;

/// The columns of items or users, by their indexes; users have labels and a comment.
#[derive(Debug)]
pub(crate) struct GorseColumns {
    hidden: Option<usize>,
    categories: Option<usize>,
    time: Option<usize>,
    labels: Option<usize>,
    comment: Option<usize>,
}

impl GorseColumns {
    pub(crate) fn of(columns: &[String]) -> Self {
        let find = |names: &[&str]| columns.iter().position(|column| names.contains(&plain(column).as_str()));
        Self {
            hidden: find(&["ishidden"]),
            categories: find(&["categories"]),
            time: find(&["timestamp"]),
            labels: find(&["labels"]),
            comment: find(&["comment", "description"]),
        }
    }

    /// The attributes of the item or user in the current row: categories, labels by their names, and the time after which a hidden
    /// item is not shown.
    ///
    /// # Errors
    /// What is wrong with a column.
    pub(crate) fn attributes(&self, rows: &dyn Rows) -> Result<Map<String, Value>, String> {
        let cell = |column: Option<usize>| column.map_or(Cell::Missing, |column| rows.cell(column));
        let mut attributes = Map::new();
        if is_true(&cell(self.hidden))? {
            attributes.insert("is_hidden".to_owned(), true.into());
            attributes.insert("available_until".to_owned(), HIDDEN_UNTIL.into());
        }
        if let Some(categories @ Value::Array(_)) = json_of(&cell(self.categories)) {
            attributes.insert("categories".to_owned(), categories);
        }
        let time = cell(self.time);
        if time.content() != NO_TIME
            && let Some((time, _)) = times::read(&time, None)?
        {
            attributes.insert("timestamp".to_owned(), time.into());
        }
        match json_of(&cell(self.labels)) {
            None => {}
            Some(Value::Object(labels)) => spread(labels, "", 0, &mut attributes),
            Some(labels) => {
                attributes.insert("labels".to_owned(), labels);
            }
        }
        if let Cell::Text(comment) = cell(self.comment) {
            attributes.insert("comment".to_owned(), comment.into());
        }
        Ok(attributes)
    }
}

fn is_true(cell: &Cell) -> Result<bool, String> {
    match cell {
        Cell::Missing => Ok(false),
        Cell::Bool(flag) => Ok(*flag),
        Cell::Integer(0) => Ok(false),
        Cell::Integer(1) => Ok(true),
        Cell::Text(text) => match text.to_lowercase().as_str() {
            "true" | "t" | "1" => Ok(true),
            "false" | "f" | "0" => Ok(false),
            _ => Err(format!("IsHidden: {} is neither true nor false", cell.quoted())),
        },
        other => Err(format!("IsHidden: {} is neither true nor false", other.quoted())),
    }
}

/// The value of a cell with JSON, as exports and the database write it, or with a list whose entries are separated
/// by `|`, as older versions do; `None` if it is empty.
fn json_of(cell: &Cell) -> Option<Value> {
    let value = match cell {
        Cell::Missing | Cell::Unusable(_) => return None,
        Cell::Object(json) => serde_json::from_str(json).ok()?,
        Cell::Texts(texts) => json!(texts),
        other => {
            let text = other.content();
            let is_json = text.starts_with(['{', '[', '"']) || text == "null";
            match serde_json::from_str(&text).ok().filter(|_| is_json) {
                Some(value) => value,
                None => json!(text.split('|').map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>()),
            }
        }
    };
    match &value {
        Value::Null => None,
        Value::Array(entries) if entries.is_empty() => None,
        _ => Some(value),
    }
}

/// Adds labels as attributes: each under its name, those within another one under both with a point between.
fn spread(labels: Map<String, Value>, prefix: &str, depth: usize, attributes: &mut Map<String, Value>) {
    for (name, value) in labels {
        let name = format!("{prefix}{name}");
        match value {
            Value::Null => {}
            Value::Object(inner) if depth < DEPTH_MAX => spread(inner, &format!("{name}."), depth + 1, attributes),
            value => {
                let is_taken = OWN.contains(&name.as_str()) || attributes.contains_key(&name);
                attributes.insert(if is_taken { format!("labels.{name}") } else { name }, value);
            }
        }
    }
}
