//! Attributes of items and of users as training input.
//!
//! | file | columns |
//! |---|---|
//! | item attributes | `item: utf8, attributes: utf8`, a JSON object |
//! | user attributes | `user: utf8, attributes: utf8`, a JSON object |
//!
//! Items and users may be absent, and there may be some without observations.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema};
use celeris_model::{ItemId, UserId};
use serde_json::{Map, Value};

use crate::columns::{ParquetFile, ParquetOut, record_batch, text_column};
use crate::error::FormatError;

const ITEM: &str = "item";
const USER: &str = "user";
const ATTRIBUTES: &str = "attributes";

/// Rows of a row group, which is held in memory until it is complete.
const ROWS_A_GROUP: usize = 8192;

/// An id whose attributes are in a file.
pub trait Described {
    /// The name of the column of ids.
    const COLUMN: &'static str;

    fn text(&self) -> &str;
}

impl Described for ItemId {
    const COLUMN: &'static str = ITEM;

    fn text(&self) -> &str {
        self.as_str()
    }
}

impl Described for UserId {
    const COLUMN: &'static str = USER;

    fn text(&self) -> &str {
        self.as_str()
    }
}

/// Writes the attributes of items or users, page by page.
pub struct AttributesWriter<Id> {
    out: ParquetOut,
    ids: PhantomData<Id>,
}

impl<Id: Described> AttributesWriter<Id> {
    /// Creates or replaces `path`.
    ///
    /// # Errors
    /// [`FormatError::Io`] or [`FormatError::Parquet`].
    pub fn create(path: &Path) -> Result<Self, FormatError> {
        let names = [Id::COLUMN, ATTRIBUTES];
        let schema = Schema::new(names.map(|name| Field::new(name, DataType::Utf8, false)).to_vec());
        let out = ParquetOut::create_grouped(path, Arc::new(schema), ROWS_A_GROUP)?;
        Ok(Self { out, ids: PhantomData })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// [`FormatError::Parquet`].
    pub fn write<'a>(
        &mut self,
        rows: impl IntoIterator<Item = (&'a Id, &'a Map<String, Value>)>,
    ) -> Result<(), FormatError>
    where
        Id: 'a,
    {
        self.out.write(&attributes_table(rows))
    }

    /// Writes the footer and syncs the file to disk.
    ///
    /// # Errors
    /// [`FormatError::Io`] or [`FormatError::Parquet`].
    pub fn finish(self) -> Result<(), FormatError> {
        self.out.finish().map(drop)
    }
}

/// The attributes of items or users as a table.
#[must_use]
pub fn attributes_table<'a, Id: Described + 'a>(
    rows: impl IntoIterator<Item = (&'a Id, &'a Map<String, Value>)>,
) -> RecordBatch {
    let text = |attributes| serde_json::to_string(attributes).expect("JSON values have text keys");
    let (ids, texts): (Vec<&str>, Vec<String>) =
        rows.into_iter().map(|(id, attributes)| (id.text(), text(attributes))).unzip();
    let texts = text_column(texts.iter().map(String::as_str));
    record_batch(vec![(Id::COLUMN, text_column(ids)), (ATTRIBUTES, texts)])
}

/// Reads the attributes of these items or users; of several rows of one, the last counts.
///
/// # Errors
/// [`FormatError`] with the file and the position in it.
pub fn read_attributes<Id: Described>(path: &Path, ids: &[Id]) -> Result<Vec<Option<Map<String, Value>>>, FormatError> {
    let places: HashMap<&str, usize> = ids.iter().enumerate().map(|(place, id)| (id.text(), place)).collect();
    let mut attributes = vec![None; ids.len()];
    let mut file = ParquetFile::open(path)?;
    while let Some(batch) = file.next_batch()? {
        let (names, texts) = (batch.text(Id::COLUMN)?, batch.text(ATTRIBUTES)?);
        for (row, (name, text)) in names.iter().zip(&texts).enumerate() {
            let Some(place) = name.and_then(|name| places.get(name)) else { continue };
            let parsed = serde_json::from_str(text.unwrap_or_default());
            attributes[*place] = Some(parsed.map_err(|problem| batch.value_error(row, ATTRIBUTES, &problem))?);
        }
    }
    Ok(attributes)
}
