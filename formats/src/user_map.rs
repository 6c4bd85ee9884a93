//! The numbers of a map from attributes of users to their prior means in a version directory: `user_map.parquet`.
//!
//! | column | type |
//! |---|---|
//! | `part` | utf8: a row `intercept`, then a row `coefficients` for each column of the encoder |
//! | `values` | list of double, of `dim` entries |

use std::path::Path;

use arrow_array::RecordBatch;

use crate::columns::{ParquetFile, record_batch, text_column, vector_column};
use crate::error::FormatError;

/// The name of the file.
pub const FILE: &str = "user_map.parquet";

const PART: &str = "part";
const VALUES: &str = "values";

const INTERCEPT: &str = "intercept";
const COEFFICIENTS: &str = "coefficients";

/// The numbers of a map from attributes to prior means; not checked when read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UserMapNumbers {
    /// Length `dim`.
    pub intercept: Vec<f32>,
    /// Row-major `columns x dim`.
    pub coefficients: Vec<f32>,
}

impl UserMapNumbers {
    /// The table of the numbers. The caller guarantees their lengths, and that the intercept is not empty.
    #[must_use]
    pub fn table(&self) -> RecordBatch {
        let Self { intercept, coefficients } = self;
        let dim = intercept.len();
        let names = std::iter::once(INTERCEPT).chain(std::iter::repeat_n(COEFFICIENTS, coefficients.len() / dim));
        let names = text_column(names);
        let values: Vec<f64> = intercept.iter().chain(coefficients).map(|value| f64::from(*value)).collect();
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
                    other => return Err(batch.value_error(row, PART, &format!("has the unknown value {other:?}"))),
                }
            }
        }
        Ok(numbers)
    }
}
