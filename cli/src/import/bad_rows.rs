//! The file of the rows that were set aside.

use std::fs::{File, OpenOptions};
use std::io::Error;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use celeris_import::{BadRow, ImportError, Input, Origin};
use csv::Writer;

use crate::Failure;

/// A CSV file with a row for each bad row. It is created, or replaces the file of an earlier run, when the
/// first bad row is written.
pub struct BadRowsFile {
    path: PathBuf,
    out: Option<Writer<File>>,
}

impl BadRowsFile {
    /// A file at this path, which is not touched yet.
    ///
    /// # Errors
    /// If it could not be written, or is one of the inputs.
    pub fn new(path: &Path, inputs: &[Input]) -> Result<Self, Failure> {
        let shown = path.display();
        if let Some(input) = inputs.iter().find(|input| is_file_of(path, input)) {
            return Err(Failure::bad_input(format!(
                "--skip-bad {shown} is the input {}, which it would overwrite; name another file",
                input.shown()
            )));
        }
        let problem = |problem: &dyn std::fmt::Display| Failure::bad_input(format!("--skip-bad {shown}: {problem}"));
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if path.is_file() {
            OpenOptions::new().append(true).open(path).map_err(|error| problem(&error))?;
        } else if path.is_dir() {
            return Err(problem(&"is a folder; name a file"));
        } else if folder.is_some_and(|folder| !folder.is_dir()) {
            return Err(problem(&"its folder does not exist"));
        }
        Ok(Self { path: path.to_owned(), out: None })
    }

    /// Appends a row, and writes it out: an interrupted import should have written what it skipped.
    ///
    /// # Errors
    /// [`ImportError::Io`].
    pub fn write(&mut self, row: &BadRow) -> Result<(), ImportError> {
        let number = row.place.number.to_string();
        let fields = [row.place.file.as_bytes(), number.as_bytes(), row.reason.as_bytes(), &row.raw];
        self.record(fields).map_err(|source| ImportError::Io { file: self.path.display().to_string(), source })
    }

    /// The length of the file so far; 0 if it is not written.
    pub fn length(&self) -> u64 {
        let file = self.out.as_ref().map(Writer::get_ref);
        file.and_then(|file| file.metadata().ok()).map_or(0, |found| found.len())
    }

    /// Keeps this much of the file of an earlier run, and goes on after it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn go_on_after(&mut self, length: u64) -> Result<(), Failure> {
        self.out = None;
        if length == 0 || !self.path.is_file() {
            return Ok(());
        }
        let open = || {
            let file = OpenOptions::new().append(true).open(&self.path)?;
            // What was written after it is written again.
            file.set_len(length.min(file.metadata()?.len()))?;
            Ok(file)
        };
        let file = open()
            .map_err(|error: Error| Failure::bad_input(format!("--skip-bad {}: {error}", self.path.display())))?;
        self.out = Some(Writer::from_writer(file));
        Ok(())
    }

    fn record(&mut self, fields: [&[u8]; 4]) -> Result<(), Error> {
        let out = match &mut self.out {
            Some(out) => out,
            none => {
                let out = none.insert(Writer::from_writer(File::create(&self.path)?));
                out.write_record(["file", "line", "reason", "row"])?;
                out
            }
        };
        out.write_record(fields)?;
        out.flush()
    }
}

/// Whether a path names the file of an input, also by a link.
pub fn is_file_of(path: &Path, input: &Input) -> bool {
    let id = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    match &input.origin {
        Origin::File(file) => id(path).is_some_and(|found| id(file) == Some(found)),
        Origin::Object(_) | Origin::Stdin => false,
    }
}
