//! Directories: removal and durable renames.

use std::fs;
use std::path::Path;

use crate::error::ManagerError;

/// Removes a directory with its contents, if it exists.
///
/// # Errors
/// `Io`.
pub(crate) fn remove_dir(dir: &Path) -> Result<(), ManagerError> {
    match fs::remove_dir_all(dir) {
        Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(ManagerError::io(dir)),
    }
}

/// Makes the names in a directory durable.
///
/// # Errors
/// `Io`.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), ManagerError> {
    fs::File::open(dir).and_then(|file| file.sync_all()).map_err(ManagerError::io(dir))
}
