//! Folders that exist as long as a value does.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Maximum number of names that are tried. A name is taken if this process uses it, or an earlier
/// one with the same id was killed.
const ATTEMPTS_MAX: u32 = 10_000;

/// A folder that only its owner can read, removed with its content on drop.
#[derive(Debug)]
pub struct TemporaryFolder {
    path: PathBuf,
}

impl TemporaryFolder {
    /// A new folder in the system's folder for temporary files.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new() -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir(), "celeris")
    }

    /// A new folder in `parent`, named by `prefix`, the process and a number.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new_in(parent: &Path, prefix: &str) -> io::Result<Self> {
        let process = std::process::id();
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        for number in 0..ATTEMPTS_MAX {
            let path = parent.join(format!("{prefix}-{process}-{number}"));
            match builder.create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(ErrorKind::AlreadyExists, "too many temporary folders; remove those of earlier processes"))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // There is no caller to return an error to.
        let _ = fs::remove_dir_all(&self.path);
    }
}
