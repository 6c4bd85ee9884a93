//! Rows of JSON lines: one object a line.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value};

use super::text::{ROW_BYTES_MAX, Text};
use super::{Reading, Rows};
use crate::cell::Cell;
use crate::error::{BadRow, Fault, ImportError, Place, PlaceUnit};
use crate::ids;

/// Lines from which the names of the columns are taken.
const LINES: usize = 1000;

pub(super) struct JsonLines {
    file: String,
    reader: BufReader<Box<dyn Read>>,
    columns: Vec<String>,
    line: u64,
    bytes: Vec<u8>,
    row: Map<String, Value>,
    bytes_read: Arc<AtomicU64>,
}

impl JsonLines {
    pub(super) fn open(file: String, text: Text, reading: &Reading) -> Result<Self, ImportError> {
        let mut columns: Vec<String> = Vec::new();
        for line in text.first_lines().take(LINES) {
            for (name, _) in object(line).unwrap_or_default() {
                if !columns.contains(&name) {
                    columns.push(name);
                }
            }
        }
        if columns.is_empty() {
            return Err(ImportError::file(
                &file,
                "begins like JSON, but none of its first lines is a JSON object; import reads one object a line, which \
                 `jq -c .` writes",
            ));
        }
        for name in reading.columns.iter().flatten() {
            if !columns.contains(name) {
                columns.push(name.clone());
            }
        }
        let bytes_read = text.bytes_read.clone();
        let reader = BufReader::new(text.into_reader());
        Ok(Self { file, reader, columns, line: 0, bytes: Vec::new(), row: Map::new(), bytes_read })
    }

    fn read_line(&mut self) -> Result<bool, ImportError> {
        read_line((&mut self.reader, &mut self.bytes), &self.file, &mut self.line)
    }
}

/// Reads the next line in place of the one in the buffer, and counts it; returns false at the end.
pub(super) fn read_line(
    (reader, bytes): (&mut BufReader<Box<dyn Read>>, &mut Vec<u8>),
    file: &str,
    line: &mut u64,
) -> Result<bool, ImportError> {
    bytes.clear();
    let limit = ROW_BYTES_MAX as u64 + 1;
    let read = reader.by_ref().take(limit).read_until(b'\n', bytes);
    let read = read.map_err(ImportError::io(&format!("{file}:{}", *line + 1)))?;
    *line += 1;
    if read > ROW_BYTES_MAX {
        let place = format!("{file}:{line}");
        return Err(ImportError::file(&place, format!("the line is longer than {ROW_BYTES_MAX} bytes")));
    }
    Ok(read > 0)
}

/// A value as a cell.
pub(super) fn cell(value: &Value) -> Cell<'_> {
    match value {
        Value::Null => Cell::Missing,
        Value::String(text) => Cell::text(text),
        Value::Bool(flag) => Cell::Bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Cell::Integer(whole),
            // Beyond the range of `i64`; as text it is exact.
            (None, Some(whole)) => Cell::Text(whole.to_string().into()),
            (None, None) => number.as_f64().map_or(Cell::Unusable("a number out of range"), Cell::Number),
        },
        Value::Array(entries) => {
            let text = |entry: &Value| match entry {
                Value::String(text) => Some(text.clone()),
                Value::Number(_) | Value::Bool(_) => Some(entry.to_string()),
                Value::Null | Value::Array(_) | Value::Object(_) => None,
            };
            let texts: Option<Vec<String>> = entries.iter().map(text).collect();
            texts.map_or(Cell::Unusable("a list of other things than texts and numbers"), Cell::Texts)
        }
        object @ Value::Object(_) => Cell::Object(object.to_string()),
    }
}

fn object(line: &[u8]) -> Result<Map<String, Value>, String> {
    serde_json::from_slice(line).map_err(|error| {
        // The place is that within the line, whose number the caller knows.
        let text = error.to_string();
        let problem = text.split(" at line ").next().unwrap_or_default();
        format!("not a JSON object: {problem} at character {}; every line must be one object", error.column())
    })
}

impl Rows for JsonLines {
    fn kind(&self) -> String {
        "JSON lines".to_owned()
    }

    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn columns_note(&self) -> &'static str {
        " (the fields of the first lines; --columns names others)"
    }

    fn late_fields(&self) -> Vec<&str> {
        self.row.keys().filter(|name| !self.columns.contains(name)).map(String::as_str).collect()
    }

    fn advance(&mut self) -> Result<bool, Fault> {
        loop {
            if !self.read_line()? {
                return Ok(false);
            }
            if !self.bytes.trim_ascii().is_empty() {
                break;
            }
        }
        match object(&self.bytes) {
            Ok(row) => {
                self.row = row;
                Ok(true)
            }
            Err(reason) => {
                let place = Place { file: self.file.clone(), number: self.line, unit: PlaceUnit::Line };
                Err(Fault::Row(BadRow { place, reason, raw: self.raw() }))
            }
        }
    }

    fn cell(&self, column: usize) -> Cell<'_> {
        self.row.get(&self.columns[column]).map_or(Cell::Missing, cell)
    }

    /// By the names of the fields: their order, and which of them the first lines have, do not
    /// matter.
    fn content(&self) -> u128 {
        let mut fields: Vec<(&String, &Value)> = self.row.iter().collect();
        fields.sort_by_key(|(name, _)| *name);
        ids::content(fields.into_iter().flat_map(|(name, value)| [Cow::from(name), value.to_string().into()]))
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
