//! Typed columns of Parquet files: reads with errors that name file, column and row, and durable
//! writes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, ListArray, PrimitiveArray, RecordBatch, RecordBatchReader, StringArray,
    StructArray,
};
use arrow_buffer::{ArrowNativeType, OffsetBuffer, ScalarBuffer};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Fields, Schema};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::Compression;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::reader::ChunkReader;
use parquet::schema::types::SchemaDescriptor;
use serde::Serialize;

use crate::error::FormatError;
use crate::ranges::Blocks;

/// Rows read or written at a time: a few megabytes at the usual dimensions.
pub const ROWS_A_BATCH: usize = 16_384;

/// A value as JSON text.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts, numbers and truths are valid JSON")
}

/// A type of the numbers in a column; columns of other numeric types are converted.
pub trait Number: ArrowNativeType {
    /// The type in Arrow.
    type Arrow: ArrowPrimitiveType<Native = Self>;
}

impl Number for f32 {
    type Arrow = Float32Type;
}

impl Number for f64 {
    type Arrow = Float64Type;
}

impl Number for i64 {
    type Arrow = Int64Type;
}

/// A Parquet file being read batch by batch, with the rows counted.
pub struct ParquetFile {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    rows: usize,
    rows_read: usize,
}

impl ParquetFile {
    /// Opens `path`.
    ///
    /// # Errors
    /// [`FormatError::Io`] or [`FormatError::Parquet`].
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        Self::open_with(path, |_| ProjectionMask::all())
    }

    /// Opens `path` to read only the top-level columns of these names; names that the file does not
    /// have are skipped.
    ///
    /// # Errors
    /// As [`ParquetFile::open`].
    pub fn open_columns(path: &Path, columns: &[&str]) -> Result<Self, FormatError> {
        Self::open_with(path, |schema| roots_of(schema, columns))
    }

    fn open_with(path: &Path, mask: impl Fn(&SchemaDescriptor) -> ProjectionMask) -> Result<Self, FormatError> {
        let file = File::open(path).map_err(FormatError::io(path))?;
        Self::of_chunks(path, file, mask)
    }

    /// Opens a file that is read by ranges. Its columns of these names, or all.
    pub(crate) fn of_ranges(name: &Path, file: Blocks, columns: Option<&[&str]>) -> Result<Self, FormatError> {
        Self::of_chunks(name, file, |schema| match columns {
            None => ProjectionMask::all(),
            Some(columns) => roots_of(schema, columns),
        })
    }

    fn of_chunks<C: ChunkReader + 'static>(
        path: &Path,
        file: C,
        mask: impl Fn(&SchemaDescriptor) -> ProjectionMask,
    ) -> Result<Self, FormatError> {
        let (reader, rows) = ParquetRecordBatchReaderBuilder::try_new(file)
            .and_then(|builder| {
                let mask = mask(builder.parquet_schema());
                let rows = builder.metadata().file_metadata().num_rows();
                Ok((builder.with_projection(mask).with_batch_size(ROWS_A_BATCH).build()?, rows))
            })
            .map_err(|source| FormatError::Parquet { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), reader, rows: usize::try_from(rows).unwrap_or_default(), rows_read: 0 })
    }

    /// The number of rows according to the file's metadata.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns that are read, in the order of the file.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        self.reader.schema()
    }

    /// The next rows, or `None` at the end.
    ///
    /// # Errors
    /// [`FormatError::Parquet`] if the file is damaged.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, FormatError> {
        let Some(batch) = self
            .reader
            .next()
            .transpose()
            .map_err(|source| FormatError::Parquet { path: self.path.clone(), source: source.into() })?
        else {
            return Ok(None);
        };
        let first_row = self.rows_read;
        self.rows_read += batch.num_rows();
        Ok(Some(Batch { path: self.path.clone(), first_row, batch }))
    }
}

/// The top-level columns of these names.
fn roots_of(schema: &SchemaDescriptor, columns: &[&str]) -> ProjectionMask {
    let roots = schema.root_schema().get_fields().iter().enumerate();
    let wanted = roots.filter(|(_, field)| columns.contains(&field.name())).map(|(root, _)| root);
    ProjectionMask::roots(schema, wanted)
}

/// A batch of rows of a Parquet file.
pub struct Batch {
    path: PathBuf,
    first_row: usize,
    batch: RecordBatch,
}

impl Batch {
    #[must_use]
    pub fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// The columns, in the order of the file.
    pub(crate) fn columns(&self) -> &[ArrayRef] {
        self.batch.columns()
    }

    /// Whether there is a column of this name.
    #[must_use]
    pub fn has(&self, column: &str) -> bool {
        self.batch.schema_ref().index_of(column).is_ok()
    }

    /// The values of a text column.
    ///
    /// # Errors
    /// [`FormatError::Column`], or [`FormatError::Value`] for a null.
    pub fn text(&self, column: &str) -> Result<StringArray, FormatError> {
        Ok(self.cast_to(column, &DataType::Utf8)?.as_string::<i32>().clone())
    }

    /// The values of a text column that may have nulls.
    ///
    /// # Errors
    /// [`FormatError::Column`].
    pub fn optional_text(&self, column: &str) -> Result<StringArray, FormatError> {
        Ok(self.nullable_cast_to(column, &DataType::Utf8)?.as_string::<i32>().clone())
    }

    /// The values of a text column, each parsed by `parse`.
    ///
    /// # Errors
    /// [`FormatError::Column`], or [`FormatError::Value`] for a null or an error of `parse`.
    pub fn parsed<T, E: ToString>(
        &self,
        column: &str,
        mut parse: impl FnMut(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, FormatError> {
        let texts = self.text(column)?;
        let parsed =
            |(row, text): (usize, &str)| parse(text).map_err(|problem| self.value_error(row, column, &problem));
        texts.iter().flatten().enumerate().map(parsed).collect()
    }

    /// The values of a numeric column.
    ///
    /// # Errors
    /// [`FormatError::Column`], or [`FormatError::Value`] for a null.
    pub fn numbers<N: Number>(&self, column: &str) -> Result<ScalarBuffer<N>, FormatError> {
        Ok(self.cast_to(column, &N::Arrow::DATA_TYPE)?.as_primitive::<N::Arrow>().values().clone())
    }

    /// The rows of a column of number lists, each of `length` entries, one after the other.
    ///
    /// # Errors
    /// [`FormatError::Column`], or [`FormatError::Value`] for a null or a list of another length.
    pub fn lists<N: Number>(&self, column: &str, length: usize) -> Result<Vec<N>, FormatError> {
        let item = Arc::new(Field::new("item", N::Arrow::DATA_TYPE, true));
        let array = self.cast_to(column, &DataType::List(item))?;
        let lists: &ListArray = array.as_list();
        let mut values = Vec::with_capacity(lists.len() * length);
        for row in 0..lists.len() {
            let list = lists.value(row);
            if list.len() != length || list.null_count() > 0 {
                let problem = format!("expected {length} numbers, got {}", list.len() - list.null_count());
                return Err(self.value_error(row, column, &problem));
            }
            values.extend_from_slice(list.as_primitive::<N::Arrow>().values());
        }
        Ok(values)
    }

    /// An error for the value at `row` of this batch.
    #[must_use]
    pub fn value_error(&self, row: usize, column: &str, problem: &impl ToString) -> FormatError {
        FormatError::Value {
            path: self.path.clone(),
            row: self.first_row + row,
            column: column.to_owned(),
            problem: problem.to_string(),
        }
    }

    fn cast_to(&self, column: &str, to: &DataType) -> Result<ArrayRef, FormatError> {
        let values = self.nullable_cast_to(column, to)?;
        match (0..values.len()).find(|row| values.is_null(*row)) {
            Some(row) => Err(self.value_error(row, column, &"is null")),
            None => Ok(values),
        }
    }

    fn nullable_cast_to(&self, column: &str, to: &DataType) -> Result<ArrayRef, FormatError> {
        let error =
            |problem: String| FormatError::Column { path: self.path.clone(), column: column.to_owned(), problem };
        let array = self.batch.column_by_name(column).ok_or_else(|| error("is missing".to_owned()))?;
        let castable = match (array.data_type(), to) {
            (from, to) if from.is_numeric() => to.is_numeric(),
            (DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View, DataType::Utf8) => true,
            (
                DataType::List(from) | DataType::LargeList(from) | DataType::FixedSizeList(from, _),
                DataType::List(to),
            ) => from.data_type().is_numeric() && to.data_type().is_numeric(),
            _ => false,
        };
        if !castable {
            return Err(error(format!("has type {}, expected {to}", array.data_type())));
        }
        cast(array, to).map_err(|problem| error(problem.to_string()))
    }
}

/// A table of columns without nulls. The caller guarantees that they have one length.
pub(crate) fn record_batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, false)))
        .expect("columns of one table have one length")
}

/// A column of texts.
pub(crate) fn text_column<'a>(texts: impl IntoIterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(texts))
}

/// A column of numbers.
pub(crate) fn number_column<N: Number>(values: &[N]) -> ArrayRef {
    Arc::new(PrimitiveArray::<N::Arrow>::new(values.to_vec().into(), None))
}

/// A column of vectors of `length` entries, from their concatenation. The caller guarantees that
/// `length` is above 0 and the number of vectors is whole.
pub(crate) fn vector_column<N: Number>(values: &[N], length: usize) -> ArrayRef {
    vectors(values, length, Field::new("item", N::Arrow::DATA_TYPE, false))
}

/// As [`vector_column`], with entries that the schema declares nullable.
pub(crate) fn nullable_vector_column<N: Number>(values: &[N], length: usize) -> ArrayRef {
    vectors(values, length, Field::new("item", N::Arrow::DATA_TYPE, true))
}

fn vectors<N: Number>(values: &[N], length: usize, item: Field) -> ArrayRef {
    debug_assert_eq!(values.len() % length, 0);
    let item = Arc::new(item);
    let width = i32::try_from(length).expect("dimensions are far below i32::MAX");
    let fixed: ArrayRef = Arc::new(FixedSizeListArray::new(item.clone(), width, number_column(values), None));
    cast(&fixed, &DataType::List(item)).expect("a fixed-size list is a list")
}

/// The field of the elements in a column of lists of structs.
pub(crate) fn struct_element(fields: &Fields) -> Arc<Field> {
    Arc::new(Field::new("element", DataType::Struct(fields.clone()), false))
}

/// A column of lists of structs, from the concatenated columns of the structs and the lengths of
/// the lists.
pub(crate) fn struct_lists(fields: &Fields, columns: Vec<ArrayRef>, lengths: Vec<usize>) -> ListArray {
    let structs = StructArray::new(fields.clone(), columns, None);
    ListArray::new(struct_element(fields), OffsetBuffer::from_lengths(lengths), Arc::new(structs), None)
}

/// A count as Parquet's signed integer; counts do not reach 2^63.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A Parquet file being written; [`ParquetOut::finish`] makes it durable.
pub struct ParquetOut {
    path: PathBuf,
    writer: ArrowWriter<File>,
    rows: u64,
}

impl ParquetOut {
    /// Creates or replaces `path`.
    ///
    /// # Errors
    /// [`FormatError::Io`] or [`FormatError::Parquet`].
    pub fn create(path: &Path, schema: Arc<Schema>) -> Result<Self, FormatError> {
        Self::create_with(path, schema, WriterProperties::builder())
    }

    /// Creates or replaces `path`, with row groups of at most `group_rows` rows. A row group is
    /// held in memory until it is complete.
    ///
    /// # Errors
    /// As [`ParquetOut::create`].
    pub fn create_grouped(path: &Path, schema: Arc<Schema>, group_rows: usize) -> Result<Self, FormatError> {
        Self::create_with(path, schema, WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)))
    }

    fn create_with(path: &Path, schema: Arc<Schema>, properties: WriterPropertiesBuilder) -> Result<Self, FormatError> {
        let file = File::create(path).map_err(FormatError::io(path))?;
        let properties = properties.set_compression(Compression::SNAPPY).build();
        let writer = ArrowWriter::try_new(file, schema, Some(properties))
            .map_err(|source| FormatError::Parquet { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), writer, rows: 0 })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// [`FormatError::Parquet`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), FormatError> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).map_err(|source| FormatError::Parquet { path: self.path.clone(), source })
    }

    /// Writes the footer, syncs the file, and returns the number of rows.
    ///
    /// # Errors
    /// [`FormatError::Io`] or [`FormatError::Parquet`].
    pub fn finish(self) -> Result<u64, FormatError> {
        let file =
            self.writer.into_inner().map_err(|source| FormatError::Parquet { path: self.path.clone(), source })?;
        file.sync_all().map_err(|source| FormatError::Io { path: self.path, source })?;
        Ok(self.rows)
    }
}
