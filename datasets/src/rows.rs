//! Reads rows of fields with any separator.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};

use crate::DatasetError;
use crate::lines::{Lines, ROW_BYTES_MAX};

/// Maximum number of fields in a CSV row; the widest file of the Open Bandit Dataset has 90.
const FIELDS_MAX: usize = 128;

/// Maximum number of characters of a bad field in an error.
const QUOTED_CHARS_MAX: usize = 40;

/// How rows are split into fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Fields between separators, which fields cannot contain; one row for each line.
    Separated(&'static str),
    /// RFC 4180: commas, and quotes around fields that contain commas, quotes or line breaks.
    Csv,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// UTF-8; other bytes are an error.
    Utf8,
    /// UTF-8, or Latin-1 for lines that are not UTF-8. `movies.dat` is Latin-1 in MovieLens 1M and
    /// UTF-8 in 10M, and no Latin-1 title is valid UTF-8 beyond ASCII.
    Utf8OrLatin1,
}

/// A column with its name for errors.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) index: usize,
    pub(crate) name: Cow<'static, str>,
}

impl Column {
    pub(crate) const fn at(index: usize, name: &'static str) -> Self {
        Self { index, name: Cow::Borrowed(name) }
    }
}

/// Reads one row at a time into one buffer.
pub(crate) struct Rows {
    lines: Lines,
    encoding: Encoding,
    cutter: Cutter,
    /// Whether the current line of `lines` has not been read as a row yet.
    pending: bool,
    /// The line at which the current row begins.
    number: u64,
    bytes: Vec<u8>,
    fields: Vec<Range<usize>>,
}

enum Cutter {
    Separator(&'static str),
    Csv(Box<CsvCutter>),
}

struct CsvCutter {
    parser: Reader,
    ends: [usize; FIELDS_MAX],
}

impl Rows {
    /// Opens the rows of `file`.
    pub(crate) fn open(file: &Path, layout: Layout, encoding: Encoding) -> Result<Self, DatasetError> {
        let mut rows = Self::from_current_line(Lines::open(file)?, layout, encoding);
        rows.pending = false;
        Ok(rows)
    }

    /// Rows from the current line of `lines`.
    pub(crate) fn from_current_line(lines: Lines, layout: Layout, encoding: Encoding) -> Self {
        let cutter = match layout {
            Layout::Separated(separator) => Cutter::Separator(separator),
            Layout::Csv => {
                // Line breaks are already normalised, so that a carriage return within a row is an
                // ordinary character.
                let parser = ReaderBuilder::new().terminator(Terminator::Any(b'\n')).build();
                Cutter::Csv(Box::new(CsvCutter { parser, ends: [0; FIELDS_MAX] }))
            }
        };
        Self { lines, encoding, cutter, pending: true, number: 0, bytes: Vec::new(), fields: Vec::new() }
    }

    pub(crate) fn file(&self) -> &Path {
        self.lines.file()
    }

    /// Reads the next row that is not an empty line; returns false at the end of the file.
    pub(crate) fn advance(&mut self) -> Result<bool, DatasetError> {
        if !std::mem::take(&mut self.pending) && !self.lines.advance_to_text()? {
            return Ok(false);
        }
        self.number = self.lines.number();
        self.fields.clear();
        match &mut self.cutter {
            Cutter::Separator(separator) => {
                let separator = *separator;
                self.cut_at(separator);
            }
            Cutter::Csv(cutter) => cutter.cut(&mut self.lines, &mut self.bytes, &mut self.fields)?,
        }
        Ok(true)
    }

    fn cut_at(&mut self, separator: &str) {
        let line = self.lines.current();
        self.bytes.clear();
        if self.encoding == Encoding::Utf8OrLatin1 && str::from_utf8(line).is_err() {
            // The first 256 characters of Unicode are Latin-1.
            let text: String = line.iter().map(|byte| char::from(*byte)).collect();
            self.bytes.extend_from_slice(text.as_bytes());
        } else {
            self.bytes.extend_from_slice(line);
        }
        let mut start = 0;
        let separator = separator.as_bytes();
        while let Some(length) = self.bytes[start..].windows(separator.len()).position(|window| window == separator) {
            self.fields.push(start..start + length);
            start += length + separator.len();
        }
        self.fields.push(start..self.bytes.len());
    }

    /// The fields of the current row that are text, with their indices.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (usize, &str)> {
        let text = |range: &Range<usize>| str::from_utf8(&self.bytes[range.clone()]).ok();
        self.fields.iter().enumerate().filter_map(move |(index, range)| Some((index, text(range)?)))
    }

    /// The text of one field of the current row.
    pub(crate) fn text(&self, column: &Column) -> Result<&str, DatasetError> {
        let Some(range) = self.fields.get(column.index) else {
            return Err(self.bad(column.name.to_string(), "a value", "the end of the row".into()));
        };
        str::from_utf8(&self.bytes[range.clone()])
            .map_err(|_| self.bad(column.name.to_string(), "UTF-8 text", "other bytes".into()))
    }

    /// Checks that the current row has no more than `fields` fields.
    pub(crate) fn ends_after(&self, fields: usize) -> Result<(), DatasetError> {
        match self.fields.get(fields) {
            None => Ok(()),
            Some(range) => {
                let got = quoted(&String::from_utf8_lossy(&self.bytes[range.clone()]));
                Err(self.bad((fields + 1).to_string(), "the end of the row", got))
            }
        }
    }

    /// The number of fields of the current row.
    pub(crate) fn width(&self) -> usize {
        self.fields.len()
    }

    /// The error for an invalid field.
    pub(crate) fn unexpected(&self, column: &Column, expected: &'static str, text: &str) -> DatasetError {
        self.bad(column.name.to_string(), expected, quoted(text))
    }

    fn bad(&self, field: String, expected: &'static str, got: String) -> DatasetError {
        self.lines.bad(self.number, field, expected, got)
    }
}

impl CsvCutter {
    /// Splits the row that begins at the current line into `fields` of `bytes`, reading further
    /// lines while a quote is open.
    fn cut(
        &mut self,
        lines: &mut Lines,
        bytes: &mut Vec<u8>,
        fields: &mut Vec<Range<usize>>,
    ) -> Result<(), DatasetError> {
        let number = lines.number();
        bytes.resize(ROW_BYTES_MAX, 0);
        let (mut written, mut ended) = (0, 0);
        loop {
            // The line break ends the row, unless a quote is open: then it is part of the field.
            for mut input in [lines.current(), b"\n"] {
                while !input.is_empty() {
                    let (result, read, output, ends) =
                        self.parser.read_record(input, &mut bytes[written..], &mut self.ends[ended..]);
                    input = &input[read..];
                    written += output;
                    ended += ends;
                    match result {
                        ReadRecordResult::InputEmpty => {}
                        ReadRecordResult::OutputFull => return Err(lines.too_long(number)),
                        ReadRecordResult::OutputEndsFull => {
                            return Err(lines.bad(
                                number,
                                (ended + 1).to_string(),
                                "at most 128 fields",
                                "more".into(),
                            ));
                        }
                        ReadRecordResult::Record | ReadRecordResult::End => {
                            let starts = std::iter::once(0).chain(self.ends.iter().copied());
                            fields.extend(starts.zip(&self.ends[..ended]).map(|(start, end)| start..*end));
                            return Ok(());
                        }
                    }
                }
            }
            if !lines.advance()? {
                let got = "the end of the file".to_owned();
                return Err(lines.bad(number, (ended + 1).to_string(), "a closing quote", got));
            }
        }
    }
}

/// The beginning of a text, quoted and escaped to fit in one line of an error message.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}
