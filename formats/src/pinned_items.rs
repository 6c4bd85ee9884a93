//! Features of items that callers supplied, as training input.
//!
//! | column | type |
//! |---|---|
//! | `item` | utf8 |
//! | `features` | list of float, of one length |

use std::path::Path;

use arrow_array::RecordBatch;
use celeris_model::ItemId;

use crate::columns::{ParquetOut, ROWS_A_BATCH, record_batch, text_column, vector_column};
use crate::error::FormatError;

pub const ITEM: &str = "item";
pub const FEATURES: &str = "features";

fn table(items: &[ItemId], features: &[f32], dim: usize) -> RecordBatch {
    record_batch(vec![(ITEM, text_column(items.iter().map(ItemId::as_str))), (FEATURES, vector_column(features, dim))])
}

/// Writes the pinned features of `items`, row-major in `features`.
///
/// The caller guarantees that `features` has the same whole number of entries for each item.
///
/// # Errors
/// [`FormatError::Io`] or [`FormatError::Parquet`].
pub fn write(path: &Path, items: &[ItemId], features: &[f32]) -> Result<(), FormatError> {
    let dim = features.len().checked_div(items.len()).unwrap_or(1);
    let mut out = ParquetOut::create(path, table(&[], &[], dim).schema())?;
    for (items, features) in items.chunks(ROWS_A_BATCH).zip(features.chunks(ROWS_A_BATCH * dim)) {
        out.write(&table(items, features, dim))?;
    }
    out.finish().map(drop)
}
