//! The numbers of a map from attributes of users to their prior means in a version directory: `user_map.parquet`.
//!
//! | column | type |
//! |---|---|
//! | `part` | utf8: a row `intercept`, then a row `coefficients` for each column of the encoder |
//! | `values` | list of double, of `dim` entries |

use std::path::Path;

use arrow_array::RecordBatch;

use crate::error::FormatError;
use crate::map_rows::{self, COEFFICIENTS, INTERCEPT, narrowed, widened};

/// The name of the file.
pub const FILE: &str = "user_map.parquet";

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
        map_rows::table([(INTERCEPT, widened(intercept)), (COEFFICIENTS, widened(coefficients))], intercept.len())
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
                _ => return false,
            }
            true
        })?;
        Ok(numbers)
    }
}
