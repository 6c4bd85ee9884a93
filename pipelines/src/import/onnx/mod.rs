//! ONNX models of classical learning: the operators of `ai.onnx.ml` and what surrounds them in the exports of
//! scikit-learn, LightGBM and XGBoost.
//!
//! Each node of the graph becomes nodes of a pipeline, so that pipelines share, merge and explain them as any others.
//! Other operators, with what lies between them, become one node that runs them as a whole ([`crate::networks`]), and
//! [`Imported::notes`] names them. A graph with operators that cannot be run so is refused, with their list
//! ([`ImportError::Opaque`]).
//!
//! What differs from ONNX Runtime, where exactness would need another operator:
//! - Sums are in f64, so results differ by about 1e-5, relative to the largest summand.
//! - Scaling and linear operators take the mean or 0 for a missing value; ONNX Runtime returns NaN.
//! - Words are runs of letters and digits of Unicode; exports of scikit-learn split at letters that are not ASCII, and
//!   not at underscores. [`Imported::notes`] says where this applies.
//! - Unknown categories are zeros, for encoders that would fail too.

mod categories;
mod convert;
mod cut;
mod linear;
mod numeric;
mod shape;
mod text;
mod trees;
mod trees_of_version_5;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{BYTES_MAX, ImportError, Imported};
use crate::onnx::model;

/// What the inputs of a graph are.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportInputs {
    /// For each input of the graph, the fields that are its columns: `item.NAME` or `context.NAME`. A single field for
    /// several columns of numbers is a list of them.
    pub inputs: BTreeMap<String, Vec<String>>,
    /// The output of the graph that is imported: the last one, if none is given. Classifiers give scores last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// Imports a model, whose inputs are given by `inputs`.
///
/// # Errors
/// A damaged file, one that exceeds a bound, or one with a node that has no counterpart; each names the place.
pub fn import(bytes: &[u8], inputs: &ImportInputs) -> Result<Imported, ImportError> {
    if bytes.len() > BYTES_MAX {
        return Err(ImportError::TooLarge { max: BYTES_MAX, received: bytes.len() });
    }
    convert::convert(&model::read(bytes)?, inputs)
}
