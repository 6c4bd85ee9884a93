//! The file of the rows that were set aside.

use std::fs::File;
use std::io::Error;
use std::path::{Path, PathBuf};

use celeris_import::{BadRow, ImportError};
use csv::Writer;

use crate::Failure;

/// A CSV file with a row for each bad row.
pub struct BadRowsFile {
    path: PathBuf,
    out: Writer<File>,
}

impl BadRowsFile {
    /// Creates or replaces the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| Failure::bad_input(format!("{}: {error}", path.display())))?;
        let mut file = Self { path: path.to_owned(), out: Writer::from_writer(file) };
        file.record([b"file".as_slice(), b"line", b"reason", b"row"])?;
        Ok(file)
    }

    /// Appends a row, and writes it out: an interrupted import should have written what it skipped.
    ///
    /// # Errors
    /// [`ImportError::Io`].
    pub fn write(&mut self, row: &BadRow) -> Result<(), ImportError> {
        let number = row.place.number.to_string();
        self.record([row.place.file.as_bytes(), number.as_bytes(), row.reason.as_bytes(), &row.raw])
    }

    fn record(&mut self, fields: [&[u8]; 4]) -> Result<(), ImportError> {
        let written = self.out.write_record(fields).map_err(Error::from).and_then(|()| self.out.flush());
        written.map_err(|source| ImportError::Io { file: self.path.display().to_string(), source })
    }
}
