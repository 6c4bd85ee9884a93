//! Locates the files of a data set.

use std::path::{Path, PathBuf};

use crate::DatasetError;

/// Names of ratings files, the newest format first.
const RATINGS_FILES: [&str; 3] = ["ratings.csv", "ratings.dat", "u.data"];

/// The ratings file: `path` itself, or the one in the folder `path`.
///
/// # Errors
/// [`DatasetError::Io`] or [`DatasetError::NoRatingsFile`].
pub fn locate_ratings(path: &Path) -> Result<PathBuf, DatasetError> {
    let metadata = path.metadata().map_err(DatasetError::io(path))?;
    if !metadata.is_dir() {
        return Ok(path.to_owned());
    }
    RATINGS_FILES
        .iter()
        .find_map(|name| find(path, name))
        .ok_or_else(|| DatasetError::NoRatingsFile { folder: path.to_owned(), known: RATINGS_FILES.join(", ") })
}

/// The file of this name in `folder`, plain or compressed.
pub(super) fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    [folder.join(name), folder.join(format!("{name}.gz"))].into_iter().find(|file| file.is_file())
}

/// The folder of `file`.
pub(super) fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Name of the data set in `file`: its folder's name, which MovieLens archives determine.
pub(super) fn name_of(file: &Path) -> String {
    let folder = folder_of(file).canonicalize().unwrap_or_default();
    let name = folder.file_name().or(file.file_name()).unwrap_or_default();
    name.to_string_lossy().into_owned()
}
