//! Rows of a Parquet file of any schema: the values of its plain columns, one row at a time.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, ArrayRef};
use arrow_cast::cast;
use arrow_schema::{DataType, Schema, TimeUnit};

use crate::columns::ParquetFile;
use crate::error::FormatError;
use crate::ranges::{Blocks, Ranges};

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum TableValue<'a> {
    Null,
    Text(&'a str),
    Integer(i64),
    Number(f64),
    Bool(bool),
    /// A point in time, in Unix milliseconds; one without a zone is taken as UTC.
    Time(i64),
    /// The entries of a list that are not null, as text.
    Texts(Vec<String>),
}

/// A Parquet file being read row by row, in the memory of one batch.
pub struct Table {
    file: ParquetFile,
    columns: Vec<String>,
    unreadable: Vec<(String, String)>,
    batch: Vec<ArrayRef>,
    batch_rows: usize,
    /// The row of the batch after the current one.
    next: usize,
    rows_read: u64,
}

impl Table {
    /// Opens `path` for its plain columns; structs, maps, bytes, and lists of them are left out.
    ///
    /// # Errors
    /// [`FormatError::Io`] or [`FormatError::Parquet`].
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        Self::of_columns(&ParquetFile::open(path)?.schema(), |names| ParquetFile::open_columns(path, names))
    }

    /// Opens a file that is read by ranges, called `name` in errors. At most 64 MiB of it are in memory, beside the batch.
    ///
    /// # Errors
    /// [`FormatError::Parquet`].
    pub fn of_ranges(name: &str, file: Arc<dyn Ranges>) -> Result<Self, FormatError> {
        let (name, file) = (Path::new(name), Blocks::new(file));
        let schema = ParquetFile::of_ranges(name, file.clone(), None)?.schema();
        Self::of_columns(&schema, |names| ParquetFile::of_ranges(name, file.clone(), Some(names)))
    }

    fn of_columns(
        schema: &Schema,
        open: impl Fn(&[&str]) -> Result<ParquetFile, FormatError>,
    ) -> Result<Self, FormatError> {
        let (mut columns, mut unreadable) = (Vec::new(), Vec::new());
        for field in schema.fields() {
            match readable_as(field.data_type()) {
                Some(_) => columns.push(field.name().clone()),
                None => unreadable.push((field.name().clone(), type_name(field.data_type()))),
            }
        }
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        let file = open(&names)?;
        Ok(Self { file, columns, unreadable, batch: Vec::new(), batch_rows: 0, next: 0, rows_read: 0 })
    }

    /// The names of the columns, in the order of the file.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The names and types of the columns that are left out, in the order of the file.
    #[must_use]
    pub fn unreadable(&self) -> &[(String, String)] {
        &self.unreadable
    }

    /// The number of rows according to the file's metadata.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.file.rows()
    }

    /// The number of the current row, from 1.
    #[must_use]
    pub fn row(&self) -> u64 {
        self.rows_read
    }

    /// Reads the next row; returns false at the end.
    ///
    /// # Errors
    /// [`FormatError::Parquet`] if the file is damaged.
    pub fn advance(&mut self) -> Result<bool, FormatError> {
        while self.next == self.batch_rows {
            let Some(batch) = self.file.next_batch()? else { return Ok(false) };
            self.next = 0;
            self.batch_rows = batch.rows();
            self.batch = batch.columns().iter().map(readable).collect();
        }
        self.next += 1;
        self.rows_read += 1;
        Ok(true)
    }

    /// The value of a column, by its index, in the current row.
    ///
    /// # Panics
    /// If there is no such column, or no row was read.
    #[must_use]
    pub fn value(&self, column: usize) -> TableValue<'_> {
        let (array, row) = (&self.batch[column], self.next - 1);
        if array.is_null(row) {
            return TableValue::Null;
        }
        match array.data_type() {
            DataType::Utf8 => TableValue::Text(array.as_string::<i32>().value(row)),
            DataType::Int64 => TableValue::Integer(array.as_primitive::<Int64Type>().value(row)),
            DataType::Float64 => TableValue::Number(array.as_primitive::<Float64Type>().value(row)),
            DataType::Boolean => TableValue::Bool(array.as_boolean().value(row)),
            DataType::Timestamp(..) => TableValue::Time(array.as_primitive::<TimestampMillisecondType>().value(row)),
            DataType::List(_) => {
                let list = array.as_list::<i32>().value(row);
                TableValue::Texts(list.as_string::<i32>().iter().flatten().map(str::to_owned).collect())
            }
            // `readable` leaves no other types.
            _ => TableValue::Null,
        }
    }
}

/// The type as which the values of a column are read; `None` if they are not plain.
fn readable_as(kind: &DataType) -> Option<DataType> {
    match kind {
        // A wider unsigned number does not fit into Int64; as text it is exact.
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::UInt64 => Some(DataType::Utf8),
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32 => Some(DataType::Int64),
        DataType::Boolean => Some(DataType::Boolean),
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => {
            Some(DataType::Timestamp(TimeUnit::Millisecond, None))
        }
        DataType::Dictionary(_, values) => readable_as(values),
        DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
            match readable_as(element.data_type())? {
                DataType::List(_) => None,
                _ => Some(DataType::new_list(DataType::Utf8, true)),
            }
        }
        kind if kind.is_floating() || kind.is_decimal() => Some(DataType::Float64),
        _ => None,
    }
}

/// The type of a column that cannot be read, for people.
fn type_name(kind: &DataType) -> String {
    match kind {
        DataType::Struct(_) => "struct".to_owned(),
        DataType::Map(..) => "map".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "binary, not marked as UTF-8 text".to_owned()
        }
        DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
            format!("list of {}", type_name(element.data_type()))
        }
        other => other.to_string(),
    }
}

/// The column in the type of [`readable_as`]. A value that has none there, such as a time beyond
/// the range of milliseconds, becomes null.
fn readable(array: &ArrayRef) -> ArrayRef {
    let to = readable_as(array.data_type()).unwrap_or(DataType::Null);
    cast(array, &to).unwrap_or_else(|_| arrow_array::new_null_array(&to, array.len()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use arrow_array::types::Int32Type;
    use arrow_array::{
        Date32Array, DictionaryArray, Float32Array, Int32Array, ListArray, RecordBatch, StringArray,
        TimestampNanosecondArray, UInt64Array,
    };

    use super::*;
    use crate::columns::ParquetOut;

    #[test]
    fn values_of_all_plain_types_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("any.parquet");
        let nanoseconds = TimestampNanosecondArray::from(vec![Some(1_700_000_000_123_456_789), None]);
        let days = Date32Array::from(vec![1, 0]);
        let keys: DictionaryArray<Int32Type> = vec!["a", "b"].into_iter().collect();
        let lists =
            ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), None, Some(3)]), Some(vec![])]);
        let structs = arrow_array::StructArray::from(vec![(
            Arc::new(arrow_schema::Field::new("x", DataType::Int32, true)),
            Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef,
        )]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("text", Arc::new(StringArray::from(vec![Some("x"), None]))),
            ("nested", Arc::new(structs)),
            ("large", Arc::new(UInt64Array::from(vec![u64::MAX, 7]))),
            ("label", Arc::new(Float32Array::from(vec![3.5, 4.0]))),
            ("time", Arc::new(nanoseconds)),
            ("day", Arc::new(days)),
            ("key", Arc::new(keys)),
            ("tags", Arc::new(lists)),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut out = ParquetOut::create(&path, batch.schema()).unwrap();
        out.write(&batch).unwrap();
        out.finish().unwrap();

        let mut table = Table::open(&path).unwrap();
        assert_eq!(table.columns(), ["text", "large", "label", "time", "day", "key", "tags"]);
        assert_eq!(table.unreadable(), [("nested".to_owned(), "struct".to_owned())]);
        let texts = |entries: &[&str]| TableValue::Texts(entries.iter().map(|entry| (*entry).to_owned()).collect());
        assert!(table.advance().unwrap());
        let first: Vec<TableValue> = (0..7).map(|column| table.value(column)).collect();
        let expected = [
            TableValue::Text("x"),
            TableValue::Text("18446744073709551615"),
            TableValue::Number(3.5),
            TableValue::Time(1_700_000_000_123),
            TableValue::Time(86_400_000),
            TableValue::Text("a"),
            texts(&["1", "3"]),
        ];
        assert_eq!(first, expected);
        assert!(table.advance().unwrap());
        assert_eq!((table.value(0), table.value(3), table.value(6)), (TableValue::Null, TableValue::Null, texts(&[])));
        assert_eq!((table.row(), table.rows()), (2, 2));
        assert!(!table.advance().unwrap());
    }
}
