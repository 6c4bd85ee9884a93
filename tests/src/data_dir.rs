//! Copying and damaging the data directory of a stopped node.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Copies a data directory that no node has open.
///
/// # Panics
/// If a file operation fails.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a scenario may create its folders");
    for entry in fs::read_dir(from).expect("the data directory can be listed") {
        let entry = entry.expect("the data directory can be listed");
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &target);
        } else {
            fs::copy(&source, &target).expect("a file can be copied");
        }
    }
}

/// The folder of a model's versions, named by the model's name and id.
///
/// # Panics
/// Unless exactly one folder belongs to a model of this name.
#[must_use]
pub fn versions_of(data_dir: &Path, model: &str) -> PathBuf {
    let entries = fs::read_dir(data_dir.join("versions")).expect("a data directory has versions");
    let of_model = |path: &PathBuf| path.file_stem().is_some_and(|name| name == model);
    let mut folders = entries.map(|entry| entry.expect("the versions can be listed").path()).filter(of_model);
    let folder = folders.next().expect("the model has versions");
    assert_eq!(folders.next(), None, "no other model of this name has a folder");
    folder
}

/// The largest file of the database's write-ahead log.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn largest_wal(data_dir: &Path) -> PathBuf {
    let db = data_dir.join("db");
    fs::read_dir(&db)
        .expect("a data directory has a database")
        .map(|entry| entry.expect("the database can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .max_by_key(|path| length(path))
        .expect("a killed node leaves a write-ahead log")
}

/// An SST file of one column family, found by the family's name, which RocksDB writes into the
/// file.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn sorted_file_of(data_dir: &Path, column: &str) -> PathBuf {
    let entries = fs::read_dir(data_dir.join("db")).expect("a data directory has a database");
    let mut files = entries.map(|entry| entry.expect("the database can be listed").path());
    let is_of_column = |path: &PathBuf| {
        let bytes = fs::read(path).expect("the file can be read");
        path.extension().is_some_and(|extension| extension == "sst")
            && bytes.windows(column.len()).any(|window| window == column.as_bytes())
    };
    files.find(is_of_column).expect("the column has a sorted file")
}

/// A file's length in bytes.
///
/// # Panics
/// If it does not exist.
#[must_use]
pub fn length(file: &Path) -> u64 {
    fs::metadata(file).expect("the file is there").len()
}

/// Flips one bit of a file.
///
/// # Panics
/// If the file has no such byte.
pub fn flip(file: &Path, byte: u64, bit: u32) {
    let mut bytes = fs::read(file).expect("the file can be read");
    bytes[usize::try_from(byte).expect("files here are small")] ^= 1 << bit;
    fs::write(file, bytes).expect("the file can be written");
}

/// Truncates a file by `bytes` bytes.
///
/// # Panics
/// If the file is shorter.
pub fn cut(file: &Path, bytes: u64) {
    let left = length(file).checked_sub(bytes).expect("the file is longer than the cut");
    File::options().write(true).open(file).and_then(|file| file.set_len(left)).expect("the file can be cut");
}
