//! A temporary folder, removed with all that is in it when it is dropped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A new folder of this process in the system's temporary folder.
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Makes the folder.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn new() -> io::Result<Self> {
        let mut number = 0_u32;
        loop {
            let path = std::env::temp_dir().join(format!("celeris-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What cannot be removed is left to the system, as all temporary files are.
        let _ = fs::remove_dir_all(&self.0);
    }
}
