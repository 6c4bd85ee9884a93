//! Reads numbered lines of bounded length from a plain or gzip file.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::DatasetError;

/// Maximum length of a row, in bytes. A title with its genres takes a few hundred.
pub(crate) const ROW_BYTES_MAX: usize = 16 * 1024;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const UTF8_BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
const BUFFER_BYTES: usize = 64 * 1024;

/// Reads one line at a time into one buffer.
pub(crate) struct Lines {
    file: PathBuf,
    reader: Box<dyn BufRead + Send>,
    buffer: Vec<u8>,
    number: u64,
    /// Maximum length of a line.
    bytes_max: usize,
}

impl Lines {
    /// Opens `file`, and decompresses it if it starts with the gzip magic bytes.
    pub(crate) fn open(file: &Path) -> Result<Self, DatasetError> {
        Self::open_with(file, ROW_BYTES_MAX)
    }

    /// The same for lines of another maximum length.
    pub(crate) fn open_with(file: &Path, bytes_max: usize) -> Result<Self, DatasetError> {
        let opened = File::open(file).map_err(DatasetError::io(file))?;
        let mut plain = BufReader::with_capacity(BUFFER_BYTES, opened);
        let compressed = plain.fill_buf().map_err(DatasetError::io(file))?.starts_with(&GZIP_MAGIC);
        let reader: Box<dyn BufRead + Send> = if compressed {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(plain)))
        } else {
            Box::new(plain)
        };
        Ok(Self { file: file.to_owned(), reader, buffer: Vec::new(), number: 0, bytes_max })
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The number of the current line, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The current line, without its line break.
    pub(crate) fn current(&self) -> &[u8] {
        &self.buffer
    }

    /// Reads the next line; returns false at the end of the file.
    pub(crate) fn advance(&mut self) -> Result<bool, DatasetError> {
        self.buffer.clear();
        // Room for the longest row and its line break.
        let limit = self.bytes_max as u64 + 2;
        let mut bounded = self.reader.by_ref().take(limit);
        let read = bounded.read_until(b'\n', &mut self.buffer).map_err(DatasetError::io(&self.file))?;
        if read == 0 {
            return Ok(false);
        }
        self.number += 1;
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        if self.number == 1 && self.buffer.starts_with(&UTF8_BYTE_ORDER_MARK) {
            self.buffer.drain(..UTF8_BYTE_ORDER_MARK.len());
        }
        if self.buffer.len() > self.bytes_max {
            return Err(self.too_long(self.number));
        }
        Ok(true)
    }

    /// Reads up to the next line that is not empty; returns false at the end of the file.
    pub(crate) fn advance_to_text(&mut self) -> Result<bool, DatasetError> {
        while self.advance()? {
            if !self.buffer.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The error for a row that begins at `line` and is too long.
    pub(crate) fn too_long(&self, line: u64) -> DatasetError {
        DatasetError::RowTooLong { file: self.file.clone(), line, bytes_max: self.bytes_max }
    }

    /// The error for a field of the row that begins at `line`.
    pub(crate) fn bad(&self, line: u64, field: String, expected: &'static str, got: String) -> DatasetError {
        DatasetError::BadField { file: self.file.clone(), line, field, expected, got }
    }
}
