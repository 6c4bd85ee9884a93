//! Rows of a file: delimited text, JSON lines, dsjson or Parquet.

mod delimited;
mod delimiter;
mod dsjson;
mod gorse_dump;
mod json_lines;
mod parquet;
mod protobuf;
mod text;

use std::fs::File;
use std::io::Read;

use celeris_datasets::dsjson::files::head_is_dsjson;

use crate::cell::{Cell, DecimalComma};
use crate::display::name;
use crate::error::{Fault, ImportError, PlaceUnit};
use crate::ids;
use crate::input::{Input, Origin};
use crate::mapping::listed;

pub use delimiter::Delimiter;

/// How a file is read, where its content does not say.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// The delimiter; guessed if missing.
    pub delimiter: Option<Delimiter>,
    /// Names of the columns of a file without a header, or of further fields of JSON lines.
    pub columns: Option<Vec<String>>,
}

/// The rows of a file, one at a time.
pub trait Rows {
    /// What kind of file it is, for people.
    fn kind(&self) -> String;

    /// The names of the columns.
    fn columns(&self) -> &[String];

    /// The name of a column as a field of a context or as an attribute.
    fn field(&self, column: usize) -> &str {
        &self.columns()[column]
    }

    /// The names and types of the columns that the file has and that cannot be read.
    fn unreadable(&self) -> &[(String, String)] {
        &[]
    }

    /// Why a column may be missing from the names; empty if it cannot.
    fn columns_note(&self) -> &'static str {
        ""
    }

    /// The fields of the current row that are no columns.
    fn late_fields(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Reads the next row; returns false at the end.
    ///
    /// # Errors
    /// [`Fault::Row`] if the row cannot be split into cells, and reading can go on after it.
    fn advance(&mut self) -> Result<bool, Fault>;

    /// A value of the current row.
    fn cell(&self, column: usize) -> Cell<'_>;

    /// A hash of the current row, equal for equal rows.
    fn content(&self) -> u128 {
        let cells: Vec<Cell> = (0..self.columns().len()).map(|column| self.cell(column)).collect();
        ids::content(cells.iter().map(Cell::content))
    }

    /// The number of the current row's first line, or of the row; from 1.
    fn number(&self) -> u64;

    /// Whether numbers are those of lines.
    fn unit(&self) -> PlaceUnit {
        PlaceUnit::Line
    }

    /// The current row as it is in the file.
    fn raw(&self) -> Vec<u8>;

    /// Bytes of the file read so far, roughly.
    fn bytes_read(&self) -> u64;

    /// Whether numbers may have a decimal comma.
    fn decimal_comma(&self) -> DecimalComma {
        DecimalComma::No
    }
}

/// Opens the rows of an input; its first bytes say what kind of file it is.
///
/// # Errors
/// [`ImportError::Io`] or [`ImportError::File`].
pub fn open(input: &Input, reading: &Reading) -> Result<Box<dyn Rows>, ImportError> {
    let file = input.shown();
    if is_parquet(input)? {
        return Ok(Box::new(parquet::Parquet::open(input)?));
    }
    let text = text::Text::open(input)?;
    if text.is_gorse_dump() {
        return Ok(Box::new(gorse_dump::Dump::open(file, text, input.layout.subject())?));
    }
    match text.first_byte() {
        // Marks of the service may come before the first decision.
        Some(b'{' | b'[') if head_is_dsjson(&text.head) => Ok(Box::new(dsjson::Dsjson::open(file, text, reading))),
        None => Err(ImportError::file(&file, "holds no rows")),
        Some(b'{') => Ok(Box::new(json_lines::JsonLines::open(file, text, reading)?)),
        Some(b'[') => Err(ImportError::file(
            &file,
            "begins with a JSON array; import reads one JSON object a line, which `jq -c '.[]'` makes of an array",
        )),
        Some(_) => Ok(Box::new(delimited::Delimited::open(file, text, reading)?)),
    }
}

/// What to add to a message that lists the columns: why one may not be there.
pub(crate) fn not_listed(rows: &dyn Rows) -> String {
    let unreadable = unreadable(rows.unreadable());
    let unreadable = unreadable.map(|columns| format!("; columns that cannot be read: {columns}")).unwrap_or_default();
    format!("{}{unreadable}", rows.columns_note())
}

/// Columns that cannot be read, with their types; `None` if there are none.
#[must_use]
pub fn unreadable(columns: &[(String, String)]) -> Option<String> {
    let shown: Vec<String> = columns.iter().map(|(column, kind)| format!("{} ({kind})", name(column))).collect();
    (!shown.is_empty()).then(|| listed(&shown))
}

/// Whether a file is Parquet. A pipe is not opened, since what is read of it is gone.
fn is_parquet(input: &Input) -> Result<bool, ImportError> {
    if input.is_stream() {
        return Ok(false);
    }
    let (magic, length) = (text::PARQUET_MAGIC, text::PARQUET_MAGIC.len() as u64);
    Ok(match &input.origin {
        Origin::File(path) => {
            let mut first = Vec::new();
            let file = File::open(path).map_err(ImportError::io(&input.shown()))?;
            file.take(length).read_to_end(&mut first).map_err(ImportError::io(&input.shown()))?;
            first == magic
        }
        Origin::Object(object) => object.location.read_range(0..length.min(object.bytes))? == magic.as_slice(),
        Origin::Stdin => false,
    })
}

/// Whether an input is a log of decisions in dsjson.
///
/// # Errors
/// As [`open`], for text.
pub fn is_dsjson(input: &Input) -> Result<bool, ImportError> {
    Ok(!is_parquet(input)? && head_is_dsjson(&text::Text::open(input)?.head))
}

/// What a file begins with.
pub(crate) enum Beginning {
    /// The first line of text.
    Line(String),
    Parquet,
    GorseDump,
}

/// How a file begins that can be read again.
///
/// # Errors
/// As [`open`], for text.
pub(crate) fn beginning(input: &Input) -> Result<Beginning, ImportError> {
    if is_parquet(input)? {
        return Ok(Beginning::Parquet);
    }
    let text = text::Text::open(input)?;
    if text.is_gorse_dump() {
        return Ok(Beginning::GorseDump);
    }
    let line = text.first_lines().next().unwrap_or_default();
    Ok(Beginning::Line(String::from_utf8_lossy(line.trim_ascii()).into_owned()))
}
