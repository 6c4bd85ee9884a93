//! The files of a cold map in a version directory.
//!
//! | file | contents |
//! |---|---|
//! | `cold_map.parquet` | `part: utf8, values: list<double>` of `dim` entries: a row `intercept`, a row `coefficients` for each column, `dim` rows `residual_covariance`, in this order |
//! | `cold_map.json` | `format`, `ridge`, and the rules of the `encoder` |

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Builder, ListBuilder, RecordBatch, StringArray};
use arrow::datatypes::{Field, Float64Type};
use serde::{Deserialize, Serialize};

use super::{ColdMap, ColdMapParts, Encoder};
use crate::columns::ParquetFile;
use crate::error::FeaturesError;
use crate::manifest::Manifest;
use crate::version_dir::checked_file;

/// Intercept, coefficients and residual covariance.
pub const COLD_MAP_FILE: &str = "cold_map.parquet";

/// The encoder's rules.
pub const ENCODER_FILE: &str = "cold_map.json";

/// The format that this program writes and reads; hashes and signs of tokens are part of it.
const FORMAT: u32 = 1;

const INTERCEPT: &str = "intercept";
const COEFFICIENTS: &str = "coefficients";
const RESIDUAL_COVARIANCE: &str = "residual_covariance";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EncoderFile {
    format: u32,
    ridge: f64,
    encoder: Encoder,
}

impl ColdMap {
    /// The contents of [`ENCODER_FILE`] and [`COLD_MAP_FILE`].
    #[must_use]
    pub fn files(&self) -> (Vec<u8>, Vec<RecordBatch>) {
        let file = EncoderFile { format: FORMAT, ridge: self.ridge, encoder: self.encoder.clone() };
        let text = serde_json::to_vec_pretty(&file).expect("names and finite numbers always serialise");
        let item = Arc::new(Field::new("item", arrow::datatypes::DataType::Float64, false));
        let mut values = ListBuilder::new(Float64Builder::new()).with_field(item);
        let mut parts = Vec::new();
        let mut push = |part: &'static str, row: &mut dyn Iterator<Item = f64>| {
            parts.push(Some(part));
            row.for_each(|value| values.values().append_value(value));
            values.append(true);
        };
        push(INTERCEPT, &mut self.intercept.iter().map(|value| f64::from(*value)));
        for row in self.coefficients.chunks_exact(self.dim) {
            push(COEFFICIENTS, &mut row.iter().map(|value| f64::from(*value)));
        }
        for row in self.residual_covariance.chunks_exact(self.dim) {
            push(RESIDUAL_COVARIANCE, &mut row.iter().copied());
        }
        let parts: ArrayRef = Arc::new(parts.into_iter().collect::<StringArray>());
        let values: ArrayRef = Arc::new(values.finish());
        let batch = RecordBatch::try_from_iter_with_nullable([("part", parts, false), ("values", values, false)])
            .expect("every row has a part and values");
        (text, vec![batch])
    }
}

/// Reads the map of a version directory whose checksums have been verified; `None` if it has none.
///
/// # Errors
/// [`FeaturesError`], naming the file and the problem.
pub fn read_cold_map(dir: &Path, manifest: &Manifest) -> Result<Option<ColdMap>, FeaturesError> {
    let Some(numbers) = checked_file(dir, manifest, COLD_MAP_FILE)? else { return Ok(None) };
    let path = dir.join(ENCODER_FILE);
    let error = |problem: String| FeaturesError::Manifest { path: path.clone(), problem };
    let text = fs::read(&path).map_err(|source| FeaturesError::Io { path: path.clone(), source })?;
    let file: EncoderFile = serde_json::from_slice(&text).map_err(|source| error(source.to_string()))?;
    if file.format != FORMAT {
        return Err(error(format!("has format {}, this program reads {FORMAT}", file.format)));
    }
    file.encoder.check().map_err(error)?;
    let (mut intercept, mut coefficients, mut residual_covariance) = (Vec::new(), Vec::new(), Vec::new());
    let mut rows = ParquetFile::open(&numbers)?;
    while let Some(batch) = rows.next_batch()? {
        let parts = batch.text("part")?;
        let values = batch.lists::<Float64Type>("values", manifest.dim)?;
        for (row, values) in values.chunks_exact(manifest.dim).enumerate() {
            match parts.value(row) {
                INTERCEPT => intercept.extend(values.iter().map(|value| *value as f32)),
                COEFFICIENTS => coefficients.extend(values.iter().map(|value| *value as f32)),
                RESIDUAL_COVARIANCE => residual_covariance.extend_from_slice(values),
                other => return Err(batch.value_error(row, "part", &format!("has the unknown value {other:?}"))),
            }
        }
    }
    if intercept.len() != manifest.dim {
        return Err(error(format!("{COLD_MAP_FILE} has {} intercepts, expected one row", intercept.len())));
    }
    let EncoderFile { encoder, ridge, .. } = file;
    Ok(Some(ColdMap::new(ColdMapParts { encoder, intercept, coefficients, residual_covariance, ridge })?))
}
