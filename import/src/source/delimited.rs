//! Rows of delimited text, with their line numbers and their text.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use csv::{ByteRecord, Reader, ReaderBuilder};

use super::text::{ROW_BYTES_MAX, Text};
use super::{Delimiter, Reading, Rows};
use crate::cell::{Cell, DecimalComma};
use crate::display::quoted;
use crate::error::{BadRow, Fault, ImportError, Place, PlaceUnit};

/// Bytes that the reader takes at a time.
const BUFFER_BYTES: usize = 64 * 1024;

pub(super) struct Delimited {
    file: String,
    delimiter: Delimiter,
    reader: Reader<Tap>,
    record: ByteRecord,
    columns: Vec<String>,
    /// The line at which the current row begins.
    line: u64,
    /// The line after the current row.
    next_line: u64,
    bytes_read: Arc<AtomicU64>,
}

impl Delimited {
    pub(super) fn open(file: String, text: Text, reading: &Reading) -> Result<Self, ImportError> {
        let Some(delimiter) = reading.delimiter.or_else(|| Delimiter::guess(text.first_lines())) else {
            let first = text.first_lines().next().unwrap_or_default();
            return Err(ImportError::file(
                &file,
                format!(
                    "its first line {} has one column only; name what separates the columns by --delimiter",
                    quoted(String::from_utf8_lossy(first).trim_end())
                ),
            ));
        };
        let bytes_read = text.bytes_read.clone();
        let mut builder = ReaderBuilder::new();
        builder.has_headers(false).flexible(true).buffer_capacity(BUFFER_BYTES);
        match delimiter {
            Delimiter::Byte(byte) => builder.delimiter(byte),
            Delimiter::DoubleColon => builder.delimiter(b':').quoting(false),
        };
        let reader = builder.from_reader(Tap::new(text.into_reader()));
        let record = ByteRecord::new();
        let mut rows = Self { file, delimiter, reader, record, columns: Vec::new(), line: 0, next_line: 1, bytes_read };
        rows.columns = match &reading.columns {
            Some(columns) => columns.clone(),
            None => rows.header()?,
        };
        Ok(rows)
    }

    fn header(&mut self) -> Result<Vec<String>, ImportError> {
        self.read()?;
        let fields = (0..self.width()).map(|index| self.field(index));
        let names: Vec<String> = fields.map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
        let is_data = |name: &String| name.parse::<f64>().is_ok();
        if names.iter().any(is_data) {
            return Err(ImportError::file(
                &self.file,
                format!(
                    "its first line {} looks like data, not like names of columns; name them by --columns, for example \
                     --columns user,item,label,time",
                    quoted(String::from_utf8_lossy(&self.raw()).trim_end())
                ),
            ));
        }
        Ok(names)
    }

    /// Reads the next record, and finds its lines.
    fn read(&mut self) -> Result<bool, ImportError> {
        let from = self.reader.position().byte();
        self.reader.get_mut().row_start = from;
        let read = self.reader.read_byte_record(&mut self.record);
        let problem = |error: csv::Error| match error.into_kind() {
            csv::ErrorKind::Io(source) => ImportError::Io { file: format!("{}:{}", self.file, self.next_line), source },
            other => ImportError::file(&self.file, format!("{other:?}")),
        };
        let read = read.map_err(problem)?;
        let (leading, all) = {
            let raw = self.reader.get_ref().since_row_start(self.reader.position().byte());
            let breaks = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            let text = raw.iter().position(|byte| !matches!(byte, b'\n' | b'\r')).unwrap_or(raw.len());
            (breaks(&raw[..text]), breaks(raw))
        };
        self.line = self.next_line + leading;
        self.next_line += all;
        Ok(read)
    }

    /// The number of fields of the record.
    fn width(&self) -> usize {
        match self.delimiter {
            Delimiter::Byte(_) => self.record.len(),
            Delimiter::DoubleColon => self.record.len().div_ceil(2),
        }
    }

    fn field(&self, index: usize) -> &[u8] {
        let index = if self.delimiter == Delimiter::DoubleColon { 2 * index } else { index };
        self.record.get(index).unwrap_or_default()
    }

    fn width_problem(&self) -> String {
        let (got, expected) = (self.width(), self.columns.len());
        let fields = if got == 1 { "field" } else { "fields" };
        let last_line = self.next_line.max(self.line + 1) - 1;
        let span = if last_line > self.line {
            format!("; it spans the lines {} to {last_line}: look for a missing closing quote", self.line)
        } else {
            String::new()
        };
        format!("the row has {got} {fields} where the header has {expected}{span}")
    }
}

impl Rows for Delimited {
    fn kind(&self) -> String {
        format!("delimiter {}", self.delimiter.shown())
    }

    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn advance(&mut self) -> Result<bool, Fault> {
        if !self.read()? {
            return Ok(false);
        }
        if self.width() == self.columns.len() {
            return Ok(true);
        }
        let place = Place { file: self.file.clone(), number: self.line, unit: PlaceUnit::Line };
        Err(Fault::Row(BadRow { place, reason: self.width_problem(), raw: self.raw() }))
    }

    fn cell(&self, column: usize) -> Cell<'_> {
        str::from_utf8(self.field(column)).map_or(
            Cell::Unusable("text that is not UTF-8 (convert the file, as by `iconv -f latin1 -t utf-8`)"),
            Cell::text,
        )
    }

    fn number(&self) -> u64 {
        self.line
    }

    fn raw(&self) -> Vec<u8> {
        let raw = self.reader.get_ref().since_row_start(self.reader.position().byte());
        raw.trim_ascii_end().iter().copied().skip_while(|byte| matches!(byte, b'\n' | b'\r')).collect()
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    fn decimal_comma(&self) -> DecimalComma {
        if self.delimiter == Delimiter::Byte(b';') { DecimalComma::Yes } else { DecimalComma::No }
    }
}

/// Keeps the bytes of the current row, which the CSV reader does not, and bounds them.
struct Tap {
    inner: Box<dyn Read>,
    kept: Vec<u8>,
    /// Position in the text of the first kept byte.
    kept_from: u64,
    /// Position in the text at which the current row begins.
    row_start: u64,
}

impl Tap {
    fn new(inner: Box<dyn Read>) -> Self {
        Self { inner, kept: Vec::new(), kept_from: 0, row_start: 0 }
    }

    fn kept_index(&self, position: u64) -> usize {
        usize::try_from(position - self.kept_from).unwrap_or(usize::MAX).min(self.kept.len())
    }

    /// The bytes from the beginning of the current row up to `end`.
    fn since_row_start(&self, end: u64) -> &[u8] {
        &self.kept[self.kept_index(self.row_start)..self.kept_index(end)]
    }
}

impl Read for Tap {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let before_row = self.kept_index(self.row_start);
        self.kept.drain(..before_row);
        self.kept_from = self.row_start;
        if self.kept.len() > ROW_BYTES_MAX {
            return Err(io::Error::other(format!(
                "the row that begins here is longer than {ROW_BYTES_MAX} bytes; look for a missing line break or closing \
                 quote"
            )));
        }
        let read = self.inner.read(buffer)?;
        self.kept.extend_from_slice(&buffer[..read]);
        Ok(read)
    }
}
