//! The prior of user weights: `prior.parquet` of a version directory and of an engine's output, one
//! row per dimension.
//!
//! | column | type |
//! |---|---|
//! | `mean` | double |
//! | `precision` | list of double: a row of `Lambda` |
//! | `cold_feature` | float: an entry of the features of an unknown item |

use arrow_array::RecordBatch;
use celeris_model::Prior;

use crate::columns::{Batch, nullable_vector_column, number_column, record_batch};
use crate::error::FormatError;

/// The name of the file.
pub const FILE: &str = "prior.parquet";

const MEAN: &str = "mean";
const PRECISION: &str = "precision";
const COLD_FEATURE: &str = "cold_feature";

/// Rows of the file. Numbers are not checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PriorRows {
    pub mean: Vec<f64>,
    /// Row-major.
    pub precision: Vec<f64>,
    pub cold_features: Vec<f32>,
}

impl PriorRows {
    /// Appends the rows of a batch, whose rows of the precision have `dim` entries.
    ///
    /// # Errors
    /// [`FormatError::Column`] or [`FormatError::Value`].
    pub fn read(&mut self, batch: &Batch, dim: usize) -> Result<(), FormatError> {
        self.mean.extend_from_slice(&batch.numbers::<f64>(MEAN)?);
        self.precision.extend(batch.lists::<f64>(PRECISION, dim)?);
        self.cold_features.extend_from_slice(&batch.numbers::<f32>(COLD_FEATURE)?);
        Ok(())
    }
}

/// The table of a prior and the features of an unknown item, of the prior's dimension.
#[must_use]
pub fn table(prior: &Prior, cold_features: &[f32]) -> RecordBatch {
    record_batch(vec![
        (MEAN, number_column(prior.mean())),
        (PRECISION, nullable_vector_column(prior.precision(), prior.dim())),
        (COLD_FEATURE, number_column(cold_features)),
    ])
}
