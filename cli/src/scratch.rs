//! Files and folders that are gone when the command ends.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

fn new_path(folder: &Path) -> PathBuf {
    folder.join(format!("celeris-{:016x}", rand::random::<u64>()))
}

/// A file without a name, in the folder for temporary files: it goes with its handle, however the process ends.
///
/// # Errors
/// If it cannot be created.
pub fn file() -> io::Result<File> {
    let path = new_path(&env::temp_dir());
    let in_folder = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(in_folder)?;
    fs::remove_file(&path).map_err(in_folder)?;
    Ok(file)
}

/// The folders that there are.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes all folders, at the end of the process. Its child processes may be writing: what they make meanwhile is
/// removed too, for a moment.
pub fn remove_folders() {
    const ATTEMPTS: usize = 20;
    for folder in FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        for _ in 0..ATTEMPTS {
            let removed = fs::remove_dir_all(folder);
            if removed.is_ok() || !folder.exists() {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A folder that is removed with all that is in it when this is dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// A folder in this one, or in that for temporary files.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new(within: Option<&Path>) -> io::Result<Self> {
        let path = new_path(&within.map_or_else(env::temp_dir, Path::to_owned));
        fs::create_dir(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).retain(|folder| *folder != self.0);
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("celeris: {} was not removed: {error}", self.0.display());
        }
    }
}
