//! Models that other programs have trained.
//!
//! A file is untrusted: sizes are bounded, and whatever is damaged or not supported is an error that names its place.
//! Modules: [`lightgbm`] reads LightGBM's text format, [`onnx`] ONNX models.

mod emit;
pub mod lightgbm;
pub mod onnx;

use std::collections::BTreeMap;

pub use crate::error::ImportError;

use crate::objects::ObjectId;
use crate::spec::Operator;

/// Maximum size of a model, in bytes.
pub const BYTES_MAX: usize = 1 << 28;

/// An imported model, as parts of a pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    pub nodes: BTreeMap<String, Operator>,
    /// The node with the output of the model.
    pub output: String,
    /// The encodings of the objects that nodes refer to.
    pub objects: BTreeMap<ObjectId, Vec<u8>>,
    /// Differences from the model, as sentences.
    pub notes: Vec<String>,
}
