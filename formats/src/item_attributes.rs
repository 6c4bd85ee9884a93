//! Attributes of items as training input.
//!
//! | file | columns |
//! |---|---|
//! | item attributes | `item: utf8, attributes: utf8`, a JSON object |
//!
//! Items may be absent, and there may be items without observations.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema};
use celeris_model::ItemId;
use serde_json::{Map, Value};

use crate::columns::{ParquetFile, ParquetOut, record_batch, text_column};
use crate::error::FormatError;

const ITEM: &str = "item";
const ATTRIBUTES: &str = "attributes";

/// Rows of a row group, which is held in memory until it is complete.
const ROWS_A_GROUP: usize = 8192;

/// Writes the attributes of items, page by page.
pub struct AttributesWriter(ParquetOut);

impl AttributesWriter {
    /// Creates or replaces `path`.
    ///
    /// # Errors
    /// [`FormatError::Io`] or [`FormatError::Parquet`].
    pub fn create(path: &Path) -> Result<Self, FormatError> {
        let schema = Schema::new([ITEM, ATTRIBUTES].map(|name| Field::new(name, DataType::Utf8, false)).to_vec());
        ParquetOut::create_grouped(path, Arc::new(schema), ROWS_A_GROUP).map(Self)
    }

    /// Appends items.
    ///
    /// # Errors
    /// [`FormatError::Parquet`].
    pub fn write<'a>(
        &mut self,
        items: impl IntoIterator<Item = (&'a ItemId, &'a Map<String, Value>)>,
    ) -> Result<(), FormatError> {
        self.0.write(&attributes_table(items))
    }

    /// Writes the footer and syncs the file to disk.
    ///
    /// # Errors
    /// [`FormatError::Io`] or [`FormatError::Parquet`].
    pub fn finish(self) -> Result<(), FormatError> {
        self.0.finish().map(drop)
    }
}

/// The attributes of items as a table.
#[must_use]
pub fn attributes_table<'a>(items: impl IntoIterator<Item = (&'a ItemId, &'a Map<String, Value>)>) -> RecordBatch {
    let text = |attributes| serde_json::to_string(attributes).expect("JSON values have text keys");
    let (items, texts): (Vec<&str>, Vec<String>) =
        items.into_iter().map(|(item, attributes)| (item.as_str(), text(attributes))).unzip();
    let texts = text_column(texts.iter().map(String::as_str));
    record_batch(vec![(ITEM, text_column(items)), (ATTRIBUTES, texts)])
}

/// Reads the attributes of `items`; of several rows of an item, the last one counts.
///
/// # Errors
/// [`FormatError`] with the file and the position in it.
pub fn read_attributes(path: &Path, items: &[ItemId]) -> Result<Vec<Option<Map<String, Value>>>, FormatError> {
    let places: HashMap<&str, usize> = items.iter().enumerate().map(|(place, item)| (item.as_str(), place)).collect();
    let mut attributes = vec![None; items.len()];
    let mut file = ParquetFile::open(path)?;
    while let Some(batch) = file.next_batch()? {
        let (names, texts) = (batch.text(ITEM)?, batch.text(ATTRIBUTES)?);
        for (row, (name, text)) in names.iter().zip(&texts).enumerate() {
            let Some(place) = name.and_then(|name| places.get(name)) else { continue };
            let parsed = serde_json::from_str(text.unwrap_or_default());
            attributes[*place] = Some(parsed.map_err(|problem| batch.value_error(row, ATTRIBUTES, &problem))?);
        }
    }
    Ok(attributes)
}
