//! Typed columns of Parquet files: reads with errors that name file, column and row, and durable writes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, ListArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Schema};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::Compression;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::SchemaDescriptor;

use crate::error::FeaturesError;

/// Rows per batch: a few megabytes at the usual dimensions.
const BATCH_ROWS: usize = 16_384;

/// A Parquet file being read batch by batch, with the rows counted.
pub struct ParquetFile {
    path: PathBuf,
    reader: parquet::arrow::arrow_reader::ParquetRecordBatchReader,
    rows: usize,
    rows_read: usize,
}

impl ParquetFile {
    /// Opens `path`.
    ///
    /// # Errors
    /// [`FeaturesError::Io`] or [`FeaturesError::Parquet`].
    pub fn open(path: &Path) -> Result<Self, FeaturesError> {
        Self::open_with(path, |_| ProjectionMask::all())
    }

    /// Opens `path` to read only the top-level columns of these names; names that the file does not have are skipped.
    ///
    /// # Errors
    /// As [`ParquetFile::open`].
    pub fn open_columns(path: &Path, columns: &[&str]) -> Result<Self, FeaturesError> {
        Self::open_with(path, |schema| {
            let roots = schema.root_schema().get_fields().iter().enumerate();
            let wanted = roots.filter(|(_, field)| columns.contains(&field.name())).map(|(root, _)| root);
            ProjectionMask::roots(schema, wanted)
        })
    }

    fn open_with(path: &Path, mask: impl Fn(&SchemaDescriptor) -> ProjectionMask) -> Result<Self, FeaturesError> {
        let file = File::open(path).map_err(|source| FeaturesError::Io { path: path.to_owned(), source })?;
        let (reader, rows) = ParquetRecordBatchReaderBuilder::try_new(file)
            .and_then(|builder| {
                let mask = mask(builder.parquet_schema());
                let rows = builder.metadata().file_metadata().num_rows();
                Ok((builder.with_projection(mask).with_batch_size(BATCH_ROWS).build()?, rows))
            })
            .map_err(|source| FeaturesError::Parquet { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), reader, rows: usize::try_from(rows).unwrap_or_default(), rows_read: 0 })
    }

    /// The number of rows according to the file's metadata.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The next rows, or `None` at the end.
    ///
    /// # Errors
    /// [`FeaturesError::Parquet`] if the file is damaged.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, FeaturesError> {
        let Some(batch) = self
            .reader
            .next()
            .transpose()
            .map_err(|source| FeaturesError::Parquet { path: self.path.clone(), source: source.into() })?
        else {
            return Ok(None);
        };
        let first_row = self.rows_read;
        self.rows_read += batch.num_rows();
        Ok(Some(Batch { path: self.path.clone(), first_row, batch }))
    }
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

    /// The values of a text column.
    ///
    /// # Errors
    /// [`FeaturesError::Column`], or [`FeaturesError::Value`] for a null.
    pub fn text(&self, column: &str) -> Result<StringArray, FeaturesError> {
        Ok(self.cast_to(column, &DataType::Utf8)?.as_string::<i32>().clone())
    }

    /// The values of a numeric column.
    ///
    /// # Errors
    /// [`FeaturesError::Column`], or [`FeaturesError::Value`] for a null.
    pub fn numbers<T: ArrowPrimitiveType>(
        &self,
        column: &str,
    ) -> Result<arrow::array::PrimitiveArray<T>, FeaturesError> {
        Ok(self.cast_to(column, &T::DATA_TYPE)?.as_primitive::<T>().clone())
    }

    /// The rows of a column of number lists, each of `length` entries, one after the other.
    ///
    /// # Errors
    /// [`FeaturesError::Column`], or [`FeaturesError::Value`] for a null or a list of another length.
    pub fn lists<T: ArrowPrimitiveType>(&self, column: &str, length: usize) -> Result<Vec<T::Native>, FeaturesError> {
        let item = Arc::new(Field::new("item", T::DATA_TYPE, true));
        let array = self.cast_to(column, &DataType::List(item))?;
        let lists: &ListArray = array.as_list();
        let mut values = Vec::with_capacity(lists.len() * length);
        for row in 0..lists.len() {
            let list = lists.value(row);
            if list.len() != length || list.null_count() > 0 {
                let problem = format!("expected {length} numbers, got {}", list.len() - list.null_count());
                return Err(self.value_error(row, column, &problem));
            }
            values.extend_from_slice(list.as_primitive::<T>().values());
        }
        Ok(values)
    }

    /// An error for the value at `row` of this batch.
    #[must_use]
    pub fn value_error(&self, row: usize, column: &str, problem: &impl ToString) -> FeaturesError {
        FeaturesError::Value {
            path: self.path.clone(),
            row: self.first_row + row,
            column: column.to_owned(),
            problem: problem.to_string(),
        }
    }

    fn cast_to(&self, column: &str, to: &DataType) -> Result<ArrayRef, FeaturesError> {
        let error =
            |problem: String| FeaturesError::Column { path: self.path.clone(), column: column.to_owned(), problem };
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
        let values = cast(array, to).map_err(|problem| error(problem.to_string()))?;
        if let Some(row) = (0..values.len()).find(|row| values.is_null(*row)) {
            return Err(self.value_error(row, column, &"is null"));
        }
        Ok(values)
    }
}

/// A column of `f32` vectors of `length` entries, from their concatenation.
///
/// # Errors
/// None for `length > 0` and a whole number of vectors, which the caller guarantees.
#[must_use]
pub fn vector_column(values: &[f32], length: usize) -> ArrayRef {
    debug_assert_eq!(values.len() % length, 0);
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let width = i32::try_from(length).expect("dimensions are far below i32::MAX");
    let values: ArrayRef = Arc::new(Float32Array::from(values.to_vec()));
    let fixed: ArrayRef = Arc::new(FixedSizeListArray::new(item.clone(), width, values, None));
    cast(&fixed, &DataType::List(item)).expect("a fixed-size list is a list")
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
    /// [`FeaturesError::Io`] or [`FeaturesError::Parquet`].
    pub fn create(path: &Path, schema: Arc<Schema>) -> Result<Self, FeaturesError> {
        Self::create_with(path, schema, WriterProperties::builder())
    }

    /// Creates or replaces `path`, with row groups of at most `group_rows` rows. A row group is held in memory until it
    /// is complete.
    ///
    /// # Errors
    /// As [`ParquetOut::create`].
    pub fn create_grouped(path: &Path, schema: Arc<Schema>, group_rows: usize) -> Result<Self, FeaturesError> {
        Self::create_with(path, schema, WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)))
    }

    fn create_with(
        path: &Path,
        schema: Arc<Schema>,
        properties: WriterPropertiesBuilder,
    ) -> Result<Self, FeaturesError> {
        let file = File::create(path).map_err(|source| FeaturesError::Io { path: path.to_owned(), source })?;
        let properties = properties.set_compression(Compression::SNAPPY).build();
        let writer = ArrowWriter::try_new(file, schema, Some(properties))
            .map_err(|source| FeaturesError::Parquet { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), writer, rows: 0 })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// [`FeaturesError::Parquet`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), FeaturesError> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).map_err(|source| FeaturesError::Parquet { path: self.path.clone(), source })
    }

    /// Writes the footer, syncs the file, and returns the number of rows.
    ///
    /// # Errors
    /// [`FeaturesError::Io`] or [`FeaturesError::Parquet`].
    pub fn finish(self) -> Result<u64, FeaturesError> {
        let file =
            self.writer.into_inner().map_err(|source| FeaturesError::Parquet { path: self.path.clone(), source })?;
        file.sync_all().map_err(|source| FeaturesError::Io { path: self.path, source })?;
        Ok(self.rows)
    }
}
