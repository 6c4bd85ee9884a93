//! The JSON file beside the numbers of a map from attributes: `format`, `ridge`, and the rules of the `encoder`.

use std::fs;
use std::path::Path;

use celeris_formats::FormatError;
use celeris_pipelines::AttributeEncoder;
use serde::{Deserialize, Serialize};

/// The format that this program writes and reads; hashes and signs of tokens are part of it.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EncoderFile {
    format: u32,
    ridge: f64,
    encoder: AttributeEncoder,
}

/// The contents of the file.
pub(crate) fn to_bytes(encoder: &AttributeEncoder, ridge: f64) -> Vec<u8> {
    let file = EncoderFile { format: FORMAT, ridge, encoder: encoder.clone() };
    serde_json::to_vec_pretty(&file).expect("names and finite numbers always serialise")
}

/// Reads the encoder and the ridge from the file at `path`.
///
/// # Errors
/// [`FormatError`], naming the file and the problem.
pub(crate) fn read(path: &Path) -> Result<(AttributeEncoder, f64), FormatError> {
    let error = |problem: String| FormatError::Manifest { path: path.to_owned(), problem };
    let text = fs::read(path).map_err(|source| FormatError::Io { path: path.to_owned(), source })?;
    let file: EncoderFile = serde_json::from_slice(&text).map_err(|source| error(source.to_string()))?;
    if file.format != FORMAT {
        return Err(error(format!("has format {}, this program reads {FORMAT}", file.format)));
    }
    file.encoder.check().map_err(error)?;
    Ok((file.encoder, file.ridge))
}
