//! Offsets and features of items: `item_features.parquet` of a version directory and of an engine's
//! output.
//!
//! | column | type |
//! |---|---|
//! | `item` | utf8 |
//! | `offset` | float |
//! | `features` | list of float, of one length |

use arrow_array::RecordBatch;
use celeris_model::ItemId;

use crate::columns::{Batch, number_column, record_batch, text_column, vector_column};
use crate::error::FormatError;

/// The name of the file.
pub const FILE: &str = "item_features.parquet";

pub const ITEM: &str = "item";
pub const OFFSET: &str = "offset";
pub const FEATURES: &str = "features";

/// Rows of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemFeatureRows {
    pub items: Vec<ItemId>,
    /// Length `items`.
    pub offsets: Vec<f32>,
    /// Row-major `items x width`.
    pub features: Vec<f32>,
}

/// The table of these items, with `features` row-major `items x width`.
#[must_use]
pub fn table(items: &[ItemId], offsets: &[f32], features: &[f32], width: usize) -> RecordBatch {
    record_batch(vec![
        (ITEM, text_column(items.iter().map(ItemId::as_str))),
        (OFFSET, number_column(offsets)),
        (FEATURES, vector_column(features, width)),
    ])
}

/// Reads rows with features of length `width`. Numbers are not checked.
///
/// # Errors
/// [`FormatError::Column`] or [`FormatError::Value`].
pub fn read_rows(batch: &Batch, width: usize) -> Result<ItemFeatureRows, FormatError> {
    let items = batch.parsed(ITEM, str::parse::<ItemId>)?;
    let offsets = batch.numbers::<f32>(OFFSET)?.to_vec();
    let features = batch.lists::<f32>(FEATURES, width)?;
    Ok(ItemFeatureRows { items, offsets, features })
}
