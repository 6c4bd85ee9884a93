//! Offsets and features of items: `item_features.parquet` of a version directory and of an engine's
//! output.
//!
//! | column | type |
//! |---|---|
//! | `item` | utf8 |
//! | `offset` | float |
//! | `features` | list of float, of one length |
//! | `choices` | list of float, as long as the features; absent in a version without choice vectors |
//! | `variance` | float, what the uncertainty of the item adds to the variance of a score; absent in a version that does not know |

use arrow_array::RecordBatch;
use celeris_model::ItemId;

use crate::columns::{Batch, number_column, record_batch, text_column, vector_column};
use crate::error::FormatError;

/// The name of the file.
pub const FILE: &str = "item_features.parquet";

pub const ITEM: &str = "item";
pub const OFFSET: &str = "offset";
pub const FEATURES: &str = "features";
pub const CHOICES: &str = "choices";
pub const VARIANCE: &str = "variance";

/// Rows of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemFeatureRows {
    pub items: Vec<ItemId>,
    /// Length `items`.
    pub offsets: Vec<f32>,
    /// Row-major `items x width`.
    pub features: Vec<f32>,
    /// Row-major `items x width`; empty if the column is absent.
    pub choices: Vec<f32>,
    /// Length `items`; empty if the column is absent.
    pub variances: Vec<f32>,
}

/// What a table of items is made of.
#[derive(Debug, Clone, Copy)]
pub struct ItemFeatureTable<'a> {
    pub items: &'a [ItemId],
    /// Length `items`.
    pub offsets: &'a [f32],
    /// Row-major `items x width`.
    pub features: &'a [f32],
    /// Row-major `items x width`, or empty.
    pub choices: &'a [f32],
    /// Length `items`, or empty.
    pub variances: &'a [f32],
    pub width: usize,
}

/// The table of these items.
#[must_use]
pub fn table(rows: ItemFeatureTable) -> RecordBatch {
    let ItemFeatureTable { items, offsets, features, choices, variances, width } = rows;
    let mut columns = vec![
        (ITEM, text_column(items.iter().map(ItemId::as_str))),
        (OFFSET, number_column(offsets)),
        (FEATURES, vector_column(features, width)),
    ];
    if !choices.is_empty() {
        columns.push((CHOICES, vector_column(choices, width)));
    }
    if !variances.is_empty() {
        columns.push((VARIANCE, number_column(variances)));
    }
    record_batch(columns)
}

/// Reads rows with features of length `width`. Numbers are not checked.
///
/// # Errors
/// [`FormatError::Column`] or [`FormatError::Value`].
pub fn read_rows(batch: &Batch, width: usize) -> Result<ItemFeatureRows, FormatError> {
    let items = batch.parsed(ITEM, str::parse::<ItemId>)?;
    let offsets = batch.numbers::<f32>(OFFSET)?.to_vec();
    let features = batch.lists::<f32>(FEATURES, width)?;
    let choices = if batch.has(CHOICES) { batch.lists::<f32>(CHOICES, width)? } else { Vec::new() };
    let variances = if batch.has(VARIANCE) { batch.numbers::<f32>(VARIANCE)?.to_vec() } else { Vec::new() };
    Ok(ItemFeatureRows { items, offsets, features, choices, variances })
}
