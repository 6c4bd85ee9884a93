//! The numbers of a cold map in a version directory: `cold_map.parquet`.
//!
//! | column | type |
//! |---|---|
//! | `part` | utf8: a row `intercept`, a row `coefficients` for each column of the encoder, `dim` rows `residual_covariance`, in this order |
//! | `values` | list of double, of `dim` entries |

use std::path::Path;

use arrow_array::RecordBatch;

use crate::error::FormatError;
use crate::map_rows::{self, COEFFICIENTS, INTERCEPT, narrowed, widened};

/// The name of the file.
pub const FILE: &str = "cold_map.parquet";

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
        let parts = [
            (INTERCEPT, widened(&self.intercept)),
            (COEFFICIENTS, widened(&self.coefficients)),
            (RESIDUAL_COVARIANCE, self.residual_covariance.clone()),
        ];
        map_rows::table(parts, dim)
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`FormatError`] with the position in the file.
    pub fn read(path: &Path, dim: usize) -> Result<Self, FormatError> {
        let mut numbers = Self::default();
        map_rows::read(path, dim, |part, values| {
            match part {
                INTERCEPT => numbers.intercept.extend(narrowed(values)),
                COEFFICIENTS => numbers.coefficients.extend(narrowed(values)),
                RESIDUAL_COVARIANCE => numbers.residual_covariance.extend_from_slice(values),
                _ => return false,
            }
            true
        })?;
        Ok(numbers)
    }
}
