//! What the computed parts of a version are for its items on average over contexts.
//!
//! | column | type |
//! |---|---|
//! | `item` | utf8: the items of the table, in its order |
//! | `moments` | list of float, of one length |

use arrow_array::RecordBatch;
use celeris_model::ItemId;

use crate::columns::{Batch, record_batch, text_column, vector_column};
use crate::error::FormatError;

/// The name of the file.
pub const FILE: &str = "part_moments.parquet";

pub const ITEM: &str = "item";
pub const MOMENTS: &str = "moments";

/// The table of these items, with `moments` row-major `items x width`.
#[must_use]
pub fn table(items: &[ItemId], moments: &[f32], width: usize) -> RecordBatch {
    record_batch(vec![(ITEM, text_column(items.iter().map(ItemId::as_str))), (MOMENTS, vector_column(moments, width))])
}

/// Reads rows of lists of length `width`. Numbers are not checked.
///
/// # Errors
/// [`FormatError::Column`] or [`FormatError::Value`].
pub fn read_rows(batch: &Batch, width: usize) -> Result<(Vec<ItemId>, Vec<f32>), FormatError> {
    Ok((batch.parsed(ITEM, str::parse::<ItemId>)?, batch.lists::<f32>(MOMENTS, width)?))
}
