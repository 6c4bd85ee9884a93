//! Files that are written row by row, in bounded memory.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::Schema;

use crate::columns::ParquetOut;
use crate::error::FormatError;

/// Builders of the columns of one format.
pub(crate) trait Columns: Default {
    /// Rows buffered before they are written.
    const ROWS_A_BATCH: usize;
    /// Rows of a row group, which is compressed in memory before it is written.
    const ROWS_A_GROUP: usize;

    fn schema() -> Arc<Schema>;

    /// Returns the buffered rows and clears them; the buffers are reused.
    fn take(&mut self) -> Vec<ArrayRef>;
}

/// A file being written.
pub(crate) struct RowWriter<C> {
    out: ParquetOut,
    columns: C,
    waiting: usize,
    rows: u64,
}

impl<C: Columns> RowWriter<C> {
    pub(crate) fn create(path: &Path) -> Result<Self, FormatError> {
        let out = ParquetOut::create_grouped(path, C::schema(), C::ROWS_A_GROUP)?;
        Ok(Self { out, columns: C::default(), waiting: 0, rows: 0 })
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Appends one row; `push` adds one value to every column.
    pub(crate) fn push(&mut self, push: impl FnOnce(&mut C)) -> Result<(), FormatError> {
        push(&mut self.columns);
        self.waiting += 1;
        self.rows += 1;
        if self.waiting >= C::ROWS_A_BATCH { self.write_waiting() } else { Ok(()) }
    }

    fn write_waiting(&mut self) -> Result<(), FormatError> {
        self.waiting = 0;
        let batch = RecordBatch::try_new(C::schema(), self.columns.take());
        self.out.write(&batch.expect("every row adds one value to every column"))
    }

    pub(crate) fn finish(mut self) -> Result<(), FormatError> {
        self.write_waiting()?;
        self.out.finish().map(drop)
    }
}
