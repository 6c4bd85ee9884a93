//! The rows of a linear map from attributes, which maps of items and of users have in common: named parts, each of whole rows.

use std::path::Path;

use arrow_array::RecordBatch;

use crate::columns::{ParquetFile, record_batch, text_column, vector_column};
use crate::error::FormatError;

const PART: &str = "part";
const VALUES: &str = "values";

pub(crate) const INTERCEPT: &str = "intercept";
pub(crate) const COEFFICIENTS: &str = "coefficients";

/// The table of these parts, whose values are row-major with rows of `dim` entries. The caller guarantees that `dim` is above 0.
pub(crate) fn table<'p>(parts: impl IntoIterator<Item = (&'p str, Vec<f64>)>, dim: usize) -> RecordBatch {
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (name, part) in parts {
        names.extend(std::iter::repeat_n(name, part.len() / dim));
        values.extend(part);
    }
    record_batch(vec![(PART, text_column(names)), (VALUES, vector_column(&values, dim))])
}

/// Passes the part and the values of each row of the file at `path` to `take`, which returns whether it knows the part.
///
/// # Errors
/// [`FormatError`] with the position in the file.
pub(crate) fn read(path: &Path, dim: usize, mut take: impl FnMut(&str, &[f64]) -> bool) -> Result<(), FormatError> {
    let mut file = ParquetFile::open(path)?;
    while let Some(batch) = file.next_batch()? {
        let parts = batch.text(PART)?;
        let values = batch.lists::<f64>(VALUES, dim)?;
        for (row, values) in values.chunks_exact(dim).enumerate() {
            let part = parts.value(row);
            if !take(part, values) {
                return Err(batch.value_error(row, PART, &format!("has the unknown value {part:?}")));
            }
        }
    }
    Ok(())
}

pub(crate) fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

pub(crate) fn narrowed(values: &[f64]) -> impl Iterator<Item = f32> {
    values.iter().map(|value| *value as f32)
}
