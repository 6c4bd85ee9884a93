//! A temporary folder that is removed with its contents when dropped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A new folder in the system's temporary folder.
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Creates the folder.
    ///
    /// # Errors
    /// If it cannot be created.
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

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // Files that cannot be removed are left to the system.
        let _ = fs::remove_dir_all(&self.0);
    }
}
