//! Rows to fit or run a pipeline on: JSON lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

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

/// The rows of a file, or of standard input if the path is `-`; empty lines are left out.
///
/// # Errors
/// If the file cannot be opened.
pub(super) fn read(path: &Path) -> Result<impl Iterator<Item = Result<InputRow, Failure>>, Failure> {
    let (name, reader): (String, Box<dyn BufRead>) = if path == Path::new("-") {
        ("standard input".to_owned(), Box::new(io::stdin().lock()))
    } else {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| Failure::bad_input(format!("{name}: {error}")))?;
        (name, Box::new(BufReader::new(file)))
    };
    let mut rows = Rows { name, reader, line: 0 };
    Ok(std::iter::from_fn(move || rows.next().transpose()))
}

struct Rows {
    name: String,
    reader: Box<dyn BufRead>,
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
        Failure::bad_input(format!("{}, line {}: {problem}", self.name, self.line))
    }
}
