//! Rows to fit or run a pipeline on: JSON lines.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use celeris_model::Context;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Failure;

/// Maximum length of a line, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputRow {
    #[serde(default)]
    pub(super) item: Map<String, Value>,
    #[serde(default)]
    pub(super) context: Context,
    #[serde(default)]
    pub(super) label: Option<f32>,
    #[serde(default)]
    pub(super) weight: Option<f32>,
}

/// The rows of a file; empty lines are left out.
///
/// # Errors
/// If the file cannot be opened.
pub(super) fn read(path: &Path) -> Result<impl Iterator<Item = Result<InputRow, Failure>>, Failure> {
    let file = File::open(path).map_err(|error| Failure::bad_input(format!("{}: {error}", path.display())))?;
    let mut rows = Rows { path: path.to_owned(), reader: BufReader::new(file), line: 0 };
    Ok(std::iter::from_fn(move || rows.next().transpose()))
}

struct Rows {
    path: PathBuf,
    reader: BufReader<File>,
    line: u64,
}

impl Rows {
    fn next(&mut self) -> Result<Option<InputRow>, Failure> {
        let mut text = Vec::new();
        loop {
            text.clear();
            self.line += 1;
            let read = (&mut self.reader).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut text);
            let read = read.map_err(|error| self.refused(&error.to_string()))?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 > LINE_BYTES_MAX {
                return Err(self.refused(&format!("it has more than {LINE_BYTES_MAX} bytes")));
            }
            if !text.trim_ascii().is_empty() {
                return serde_json::from_slice(&text).map(Some).map_err(|error| self.refused(&error.to_string()));
            }
        }
    }

    fn refused(&self, problem: &str) -> Failure {
        Failure::bad_input(format!("{}, line {}: {problem}", self.path.display(), self.line))
    }
}
