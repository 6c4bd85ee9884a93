//! Rows of a log of decisions in dsjson: one for each slot of a decision, with what was chosen for it.
//!
//! Beside the columns below, the fields of the first decisions' contexts are columns `context.NAME`, and those of their
//! actions `action.NAME`, with the value of the action that was chosen.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use celeris_datasets::dsjson::{LeftOut, Line, LoggedDecision};
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_128;

use super::text::Text;
use super::{Reading, Rows, json_lines};
use crate::cell::Cell;
use crate::error::{BadRow, Fault, Place, PlaceUnit};
use crate::mapping::{Role, is_usual_name};

/// Lines from which the names of the columns are taken.
const LINES: usize = 1000;

/// Maximum number of columns, so that logs with thousands of features can be read.
const COLUMNS_MAX: usize = 10_000;

const CONTEXT: &str = "context.";
const ACTION: &str = "action.";

/// The columns of every log.
const COLUMNS: [&str; 10] = [
    "item",
    "label",
    "timestamp",
    "observation_id",
    "weight",
    "context",
    "event_id",
    "slot",
    "probability",
    "rewarded",
];

pub(super) struct Dsjson {
    file: String,
    reader: BufReader<Box<dyn Read>>,
    columns: Vec<String>,
    /// Index of the column `user`, and the field of the context that it stands for.
    user: Option<(usize, String)>,
    line: u64,
    bytes: Vec<u8>,
    decision: Option<LoggedDecision>,
    /// The current slot.
    slot: usize,
    left_out: LeftOut,
    bytes_read: Arc<AtomicU64>,
}

impl Dsjson {
    pub(super) fn open(file: String, text: Text, reading: &Reading) -> Self {
        let mut columns: Vec<String> = COLUMNS.map(str::to_owned).to_vec();
        let mut known: HashSet<String> = columns.iter().cloned().collect();
        for line in text.first_lines().take(LINES) {
            let Ok(Line::Decision(decision)) = Line::parse(line) else { continue };
            let of_context = decision.context.keys().map(|name| format!("{CONTEXT}{name}"));
            let of_actions = decision.actions.iter().flat_map(|action| action.fields.keys());
            let of_actions = of_actions.map(|name| format!("{ACTION}{name}"));
            for name in of_context.chain(of_actions) {
                if columns.len() < COLUMNS_MAX && known.insert(name.clone()) {
                    columns.push(name);
                }
            }
        }
        let user = columns.iter().filter_map(|column| column.strip_prefix(CONTEXT)).find(|name| is_of_user(name));
        let user = user.map(|name| (columns.len(), name.to_owned()));
        if user.is_some() {
            columns.push("user".to_owned());
        }
        for name in reading.columns.iter().flatten() {
            if !columns.contains(name) {
                columns.push(name.clone());
            }
        }
        let bytes_read = text.bytes_read.clone();
        let reader = BufReader::new(text.into_reader());
        Self {
            file,
            reader,
            columns,
            user,
            line: 0,
            bytes: Vec::new(),
            decision: None,
            slot: 0,
            left_out: LeftOut::default(),
            bytes_read,
        }
    }

    fn bad(&self, reason: String) -> Fault {
        let place = Place { file: self.file.clone(), number: self.line, unit: PlaceUnit::Line };
        Fault::Row(BadRow { place, reason, raw: self.raw() })
    }

    /// The id of the decision: that of the log, or one of the line's content.
    fn event(&self, decision: &LoggedDecision) -> String {
        let of_content = || format!("dsjson-{:032x}", xxh3_128(self.bytes.trim_ascii()));
        decision.event_id.clone().unwrap_or_else(of_content)
    }

    fn value<'a>(&self, fields: &'a Map<String, Value>, name: &str) -> Cell<'a> {
        fields.get(name).map_or(Cell::Missing, json_lines::cell)
    }
}

/// Whether a field of a context names the user: `User.id`, or a usual name such as `user_id` in any namespace.
fn is_of_user(name: &str) -> bool {
    is_usual_name(Role::User, name) || name.rsplit_once('.').is_some_and(|(_, last)| is_usual_name(Role::User, last))
}

impl Rows for Dsjson {
    fn kind(&self) -> String {
        if self.left_out.is_none() { "dsjson".to_owned() } else { format!("dsjson; left out: {}", self.left_out) }
    }

    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn columns_note(&self) -> &'static str {
        " (the fields of the first decisions; --columns names others, such as context.Geo.state)"
    }

    fn field(&self, column: usize) -> &str {
        let name = &self.columns[column];
        name.strip_prefix(CONTEXT).or_else(|| name.strip_prefix(ACTION)).unwrap_or(name)
    }

    fn advance(&mut self) -> Result<bool, Fault> {
        self.slot += 1;
        if self.decision.as_ref().is_some_and(|decision| self.slot < decision.choices.len()) {
            return Ok(true);
        }
        self.decision = None;
        loop {
            if !json_lines::read_line((&mut self.reader, &mut self.bytes), &self.file, &mut self.line)? {
                return Ok(false);
            }
            if self.bytes.trim_ascii().is_empty() {
                continue;
            }
            let line = Line::parse(&self.bytes).map_err(|problem| self.bad(problem))?;
            if let Some(decision) = self.left_out.or_decision(line) {
                (self.decision, self.slot) = (Some(decision), 0);
                return Ok(true);
            }
        }
    }

    fn cell(&self, column: usize) -> Cell<'_> {
        let Some(decision) = &self.decision else { return Cell::Missing };
        let (name, choice) = (self.columns[column].as_str(), &decision.choices[self.slot]);
        let action = &decision.actions[choice.action];
        if let Some((of_user, field)) = &self.user
            && *of_user == column
        {
            return self.value(&decision.context, field);
        }
        match name {
            "item" => action.id.as_deref().map_or(Cell::Missing, Cell::text),
            // A cost of 0 is a label of 0, not of -0.
            "label" => Cell::Number(0.0 - choice.cost),
            "timestamp" => decision.timestamp.as_deref().map_or(Cell::Missing, Cell::text),
            "observation_id" if decision.choices.len() > 1 => {
                Cell::Text(format!("{}/{}", self.event(decision), self.slot).into())
            }
            "observation_id" | "event_id" => Cell::Text(Cow::Owned(self.event(decision))),
            // Each decision that was kept stands for so many.
            "weight" if decision.kept_probability < 1.0 => Cell::Number(1.0 / decision.kept_probability),
            "context" => {
                // The user is no circumstance.
                let of_user = self.user.as_ref().map(|(_, field)| field);
                let fields = decision.context.iter().filter(|(name, _)| Some(*name) != of_user);
                let fields: Map<String, Value> = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
                if fields.is_empty() { Cell::Missing } else { Cell::Object(Value::Object(fields).to_string()) }
            }
            "slot" => Cell::Integer(i64::try_from(self.slot).unwrap_or(i64::MAX)),
            "probability" => Cell::Number(choice.probability),
            "rewarded" => Cell::Bool(decision.rewarded),
            _ => match (name.strip_prefix(CONTEXT), name.strip_prefix(ACTION)) {
                (Some(name), _) => self.value(&decision.context, name),
                (_, Some(name)) => self.value(&action.fields, name),
                (None, None) => Cell::Missing,
            },
        }
    }

    fn number(&self) -> u64 {
        self.line
    }

    fn raw(&self) -> Vec<u8> {
        self.bytes.trim_ascii().to_vec()
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }
}
