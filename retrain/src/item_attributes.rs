//! Attributes of items as training input.
//!
//! | file | columns |
//! |---|---|
//! | item attributes | `item: utf8, attributes: utf8`, a JSON object |
//!
//! Items may be absent, and there may be items without observations.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use celeris_features::columns::{ParquetFile, ParquetOut};
use celeris_model::ItemId;
use serde_json::{Map, Value};

use crate::error::RetrainError;
use crate::input::InputFile;

/// Rows of a row group, which is held in memory until it is complete.
const ROWS_A_GROUP: usize = 8192;

/// Writes the attributes of items, page by page.
pub struct AttributesWriter {
    path: PathBuf,
    out: ParquetOut,
}

impl AttributesWriter {
    /// Creates or replaces `path`.
    ///
    /// # Errors
    /// [`RetrainError::Files`].
    pub fn create(path: &Path) -> Result<Self, RetrainError> {
        let text = |name| Field::new(name, DataType::Utf8, false);
        let schema = Arc::new(Schema::new(vec![text("item"), text("attributes")]));
        Ok(Self { path: path.to_owned(), out: ParquetOut::create_grouped(path, schema, ROWS_A_GROUP)? })
    }

    /// Appends items.
    ///
    /// # Errors
    /// [`RetrainError::Files`].
    pub fn write<'a>(
        &mut self,
        items: impl IntoIterator<Item = (&'a ItemId, &'a Map<String, Value>)>,
    ) -> Result<(), RetrainError> {
        let text = |attributes| serde_json::to_string(attributes).expect("JSON values have text keys");
        let (names, texts): (Vec<Option<&str>>, Vec<Option<String>>) =
            items.into_iter().map(|(item, attributes)| (Some(item.as_str()), Some(text(attributes)))).unzip();
        let names: ArrayRef = Arc::new(StringArray::from(names));
        let texts: ArrayRef = Arc::new(StringArray::from(texts));
        let batch = RecordBatch::try_from_iter_with_nullable([("item", names, false), ("attributes", texts, false)])
            .expect("every item has a name and a text");
        Ok(self.out.write(&batch)?)
    }

    /// Finishes and seals the file.
    ///
    /// # Errors
    /// [`RetrainError::Files`].
    pub fn finish(self) -> Result<InputFile, RetrainError> {
        self.out.finish()?;
        InputFile::sealed(&self.path)
    }
}

/// Reads the attributes of `items`; of several rows of an item, the last one counts.
///
/// # Errors
/// [`RetrainError::Files`] with the file and the position in it.
pub(crate) fn read_attributes(path: &Path, items: &[ItemId]) -> Result<Vec<Option<Map<String, Value>>>, RetrainError> {
    let places: HashMap<&str, usize> = items.iter().enumerate().map(|(place, item)| (item.as_str(), place)).collect();
    let mut attributes = vec![None; items.len()];
    let mut file = ParquetFile::open(path)?;
    while let Some(batch) = file.next_batch()? {
        let (names, texts) = (batch.text("item")?, batch.text("attributes")?);
        for (row, (name, text)) in names.iter().zip(&texts).enumerate() {
            let Some(place) = name.and_then(|name| places.get(name)) else { continue };
            let parsed = serde_json::from_str(text.unwrap_or_default());
            attributes[*place] = Some(parsed.map_err(|problem| batch.value_error(row, "attributes", &problem))?);
        }
    }
    Ok(attributes)
}
