//! Rows of a Parquet file.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use celeris_formats::{Ranges, Table, TableValue};
use serde_json::{Map, Value};

use super::Rows;
use crate::cell::Cell;
use crate::error::{Fault, ImportError, PlaceUnit};
use crate::input::{Input, Object, Origin};

pub(super) struct Parquet {
    table: Table,
    file_bytes: u64,
}

impl Parquet {
    pub(super) fn open(input: &Input) -> Result<Self, ImportError> {
        let file = input.shown();
        let table = match &input.origin {
            Origin::File(path) => Table::open(path)?,
            Origin::Object(object) => {
                if object.location.size()? != object.bytes {
                    return Err(ImportError::file(&file, "was changed since the import began; run it again"));
                }
                Table::of_ranges(&file, Arc::new(object.clone()))?
            }
            Origin::Stdin => return Err(ImportError::file(&file, "is Parquet, which cannot be read from a pipe")),
        };
        Ok(Self { table, file_bytes: input.bytes().unwrap_or_default() })
    }
}

impl Ranges for Object {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        Ok(self.location.read_range(range)?)
    }
}

impl Rows for Parquet {
    fn kind(&self) -> String {
        "Parquet".to_owned()
    }

    fn columns(&self) -> &[String] {
        self.table.columns()
    }

    fn unreadable(&self) -> &[(String, String)] {
        self.table.unreadable()
    }

    fn advance(&mut self) -> Result<bool, Fault> {
        Ok(self.table.advance()?)
    }

    fn cell(&self, column: usize) -> Cell<'_> {
        match self.table.value(column) {
            TableValue::Null => Cell::Missing,
            TableValue::Text(text) => Cell::text(text),
            TableValue::Integer(number) => Cell::Integer(number),
            // pandas writes a missing number as one that is none.
            TableValue::Number(number) if number.is_nan() => Cell::Missing,
            TableValue::Number(number) => Cell::Number(number),
            TableValue::Bool(flag) => Cell::Bool(flag),
            TableValue::Time(time) => Cell::Time(time),
            TableValue::Texts(texts) => Cell::Texts(texts),
        }
    }

    fn number(&self) -> u64 {
        self.table.row()
    }

    fn unit(&self) -> PlaceUnit {
        PlaceUnit::Row
    }

    fn raw(&self) -> Vec<u8> {
        let columns = self.columns().iter().enumerate();
        let row: Map<String, Value> =
            columns.map(|(index, name)| (name.clone(), Value::from(self.cell(index).content()))).collect();
        Value::from(row).to_string().into_bytes()
    }

    fn bytes_read(&self) -> u64 {
        let share = self.table.row() as f64 / self.table.rows().max(1) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate for the progress")]
        let bytes = (self.file_bytes as f64 * share) as u64;
        bytes
    }
}
