//! The numbers of a cold map in a version directory: `cold_map.parquet`.
//!
//! | column | type |
//! |---|---|
//! | `part` | utf8: a row `intercept`, a row `coefficients` for each column of the encoder, `dim` rows `residual_covariance`, in this order |
//! | `values` | list of double, of `dim` entries |

use std::path::Path;

use arrow_array::RecordBatch;

use crate::columns::{ParquetFile, record_batch, text_column, vector_column};
use crate::error::FormatError;

/// The name of the file.
pub const FILE: &str = "cold_map.parquet";

const PART: &str = "part";
const VALUES: &str = "values";

const INTERCEPT: &str = "intercept";
const COEFFICIENTS: &str = "coefficients";
const RESIDUAL_COVARIANCE: &str = "residual_covariance";

/// The numbers of a map from attributes to features; not checked when read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColdMapNumbers {
    /// Length `dim`.
    pub intercept: Vec<f32>,
    /// Row-major `columns x dim`.
    pub coefficients: Vec<f32>,
    /// Row-major `dim x dim`.
    pub residual_covariance: Vec<f64>,
}

impl ColdMapNumbers {
    /// The table of the numbers. The caller guarantees their lengths, and that `dim` is above 0.
    #[must_use]
    pub fn table(&self, dim: usize) -> RecordBatch {
        let widened = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect::<Vec<f64>>();
        let parts = [
            (INTERCEPT, widened(&self.intercept)),
            (COEFFICIENTS, widened(&self.coefficients)),
            (RESIDUAL_COVARIANCE, self.residual_covariance.clone()),
        ];
        let names = parts.iter().flat_map(|(name, values)| std::iter::repeat_n(*name, values.len() / dim));
        let names = text_column(names);
        let values: Vec<f64> = parts.into_iter().flat_map(|(_, values)| values).collect();
        record_batch(vec![(PART, names), (VALUES, vector_column(&values, dim))])
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`FormatError`] with the position in the file.
    pub fn read(path: &Path, dim: usize) -> Result<Self, FormatError> {
        let mut numbers = Self::default();
        let mut file = ParquetFile::open(path)?;
        while let Some(batch) = file.next_batch()? {
            let parts = batch.text(PART)?;
            let values = batch.lists::<f64>(VALUES, dim)?;
            for (row, values) in values.chunks_exact(dim).enumerate() {
                let narrowed = values.iter().map(|value| *value as f32);
                match parts.value(row) {
                    INTERCEPT => numbers.intercept.extend(narrowed),
                    COEFFICIENTS => numbers.coefficients.extend(narrowed),
                    RESIDUAL_COVARIANCE => numbers.residual_covariance.extend_from_slice(values),
                    other => return Err(batch.value_error(row, PART, &format!("has the unknown value {other:?}"))),
                }
            }
        }
        Ok(numbers)
    }
}
