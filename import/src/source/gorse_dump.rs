//! Rows of a binary dump of Gorse (`gorse-cli dump`, `GET /api/dump`).
//!
//! A dump has three sections, of users, items and feedback. Each begins with a mark below 0; then follow messages of Protocol
//! Buffers, each after its length; all numbers are 64 bits, little-endian. A length of 0 is the end of the dump; what
//! follows it (Gorse appends a summary) is not read. Fields become columns of the names that the JSON exports give them.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value};

use super::Rows;
use super::json_lines::cell;
use super::protobuf::{Damaged, Field, Fields};
use super::text::{ROW_BYTES_MAX, Text};
use crate::cell::Cell;
use crate::error::{BadRow, Fault, ImportError, Place, PlaceUnit};
use crate::layout::Subject;

const END: i64 = 0;

pub(super) struct Dump {
    file: String,
    reader: Box<dyn Read>,
    subject: Subject,
    /// The section that is being read.
    section: Option<Subject>,
    columns: Vec<String>,
    row: Map<String, Value>,
    number: u64,
    bytes: Vec<u8>,
    bytes_read: Arc<AtomicU64>,
}

/// Columns of a section, with the numbers of their fields and what these hold.
const USERS: [(&str, u64, Holds); 3] =
    [("UserId", 1, Holds::Text), ("Labels", 2, Holds::Json), ("Comment", 3, Holds::Text)];
const ITEMS: [(&str, u64, Holds); 6] = [
    ("ItemId", 2, Holds::Text),
    ("IsHidden", 3, Holds::Bool),
    ("Categories", 4, Holds::Texts),
    ("Timestamp", 5, Holds::Time),
    ("Labels", 6, Holds::Json),
    ("Comment", 7, Holds::Text),
];
const FEEDBACK: [(&str, u64, Holds); 7] = [
    ("FeedbackType", 2, Holds::Text),
    ("UserId", 3, Holds::Text),
    ("ItemId", 4, Holds::Text),
    ("Value", 5, Holds::Number),
    ("Timestamp", 6, Holds::Time),
    ("Comment", 7, Holds::Text),
    ("Labels", 9, Holds::Json),
];

#[derive(Clone, Copy)]
enum Holds {
    Text,
    Texts,
    Json,
    Bool,
    Number,
    Time,
}

fn fields_of(subject: Subject) -> &'static [(&'static str, u64, Holds)] {
    match subject {
        Subject::Users => &USERS,
        Subject::Items => &ITEMS,
        Subject::Feedback => &FEEDBACK,
    }
}

impl Dump {
    /// Opens one section of a dump, that of feedback by default.
    pub(super) fn open(file: String, text: Text, subject: Option<Subject>) -> Result<Self, ImportError> {
        let subject = subject.unwrap_or(Subject::Feedback);
        let columns = fields_of(subject).iter().map(|(name, ..)| (*name).to_owned()).collect();
        let bytes_read = text.bytes_read.clone();
        let (reader, row, bytes) = (text.into_reader(), Map::new(), Vec::new());
        Ok(Self { file, reader, subject, section: None, columns, row, number: 0, bytes, bytes_read })
    }

    fn error(&self, problem: &str) -> ImportError {
        let place = format!("{}: after row {}", self.file, self.number);
        ImportError::file(&place, format!("{problem}; dump it again"))
    }

    fn long(&mut self) -> Result<i64, ImportError> {
        let mut bytes = [0; 8];
        self.reader.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.error("the dump of Gorse ends before its end"),
            _ => ImportError::io(&self.file)(error),
        })?;
        Ok(i64::from_le_bytes(bytes))
    }

    /// Reads the next message of the section; returns false at the end of the dump.
    fn message(&mut self) -> Result<bool, ImportError> {
        loop {
            let length = self.long()?;
            self.section = match (length, self.section) {
                (END, _) => return Ok(false),
                (-1, _) => Some(Subject::Users),
                (-2, _) => Some(Subject::Items),
                (-3, _) => Some(Subject::Feedback),
                (1.., section @ Some(_)) => section,
                _ => return Err(self.error(&format!("{length} is neither a length nor a section of a dump of Gorse"))),
            };
            let Ok(length @ 1..) = u64::try_from(length) else { continue };
            if length > ROW_BYTES_MAX as u64 {
                return Err(self.error(&format!("a row is longer than {ROW_BYTES_MAX} bytes")));
            }
            self.bytes.clear();
            let read = self.reader.by_ref().take(length).read_to_end(&mut self.bytes);
            let read = read.map_err(ImportError::io(&self.file))?;
            if read as u64 != length {
                return Err(self.error("the dump of Gorse ends within a row"));
            }
            if self.section == Some(self.subject) {
                self.number += 1;
                return Ok(true);
            }
        }
    }

    fn parse(&self) -> Result<Map<String, Value>, Damaged> {
        let (mut row, mut fields) = (Map::new(), Fields(&self.bytes));
        while let Some((number, field)) = fields.advance()? {
            let known = fields_of(self.subject).iter().find(|(_, known, _)| *known == number);
            let Some((name, _, holds)) = known else { continue };
            let value = value_of(*holds, &field)?;
            match (row.get_mut(*name), holds, value) {
                (Some(Value::Array(texts)), Holds::Texts, Value::Array(mut more)) => texts.append(&mut more),
                (_, _, value) => drop(row.insert((*name).to_owned(), value)),
            }
        }
        Ok(row)
    }
}

fn value_of(holds: Holds, field: &Field) -> Result<Value, Damaged> {
    let text = |bytes: &[u8]| str::from_utf8(bytes).map(Value::from).map_err(|_| Damaged);
    Ok(match (holds, field) {
        (Holds::Text, Field::Bytes(bytes)) => text(bytes)?,
        (Holds::Texts, Field::Bytes(bytes)) => Value::Array(vec![text(bytes)?]),
        (Holds::Json, Field::Bytes(bytes)) => serde_json::from_slice(bytes).map_err(|_| Damaged)?,
        (Holds::Bool, Field::Varint(number)) => (*number != 0).into(),
        (Holds::Number, Field::Fixed(bits)) => f64::from_bits(*bits).into(),
        (Holds::Time, Field::Bytes(bytes)) => time_of(bytes)?,
        _ => return Err(Damaged),
    })
}

/// A `google.protobuf.Timestamp` as a text.
fn time_of(bytes: &[u8]) -> Result<Value, Damaged> {
    let (mut seconds, mut nanoseconds, mut fields) = (0, 0, Fields(bytes));
    while let Some((number, field)) = fields.advance()? {
        match (number, field) {
            (1, Field::Varint(value)) => seconds = value.cast_signed(),
            (2, Field::Varint(value)) => nanoseconds = i32::try_from(value.cast_signed()).map_err(|_| Damaged)?,
            _ => {}
        }
    }
    Ok(jiff::Timestamp::new(seconds, nanoseconds).map_err(|_| Damaged)?.to_string().into())
}

impl Rows for Dump {
    fn kind(&self) -> String {
        let section = match self.subject {
            Subject::Users => "users",
            Subject::Items => "items",
            Subject::Feedback => "feedback",
        };
        format!("dump of Gorse, {section}")
    }

    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn advance(&mut self) -> Result<bool, Fault> {
        if !self.message()? {
            return Ok(false);
        }
        self.row = match self.parse() {
            Ok(row) => row,
            Err(Damaged) => {
                let place = Place { file: self.file.clone(), number: self.number, unit: PlaceUnit::Row };
                let reason = "the row is damaged: it is no message of Protocol Buffers with its fields".to_owned();
                let raw = format!("{} bytes", self.bytes.len()).into_bytes();
                return Err(Fault::Row(BadRow { place, reason, raw }));
            }
        };
        Ok(true)
    }

    fn cell(&self, column: usize) -> Cell<'_> {
        self.row.get(&self.columns[column]).map_or(Cell::Missing, cell)
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn unit(&self) -> PlaceUnit {
        PlaceUnit::Row
    }

    fn raw(&self) -> Vec<u8> {
        serde_json::to_vec(&self.row).unwrap_or_default()
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }
}
