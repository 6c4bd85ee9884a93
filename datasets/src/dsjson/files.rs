//! The files of a log.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::DatasetError;

/// Maximum number of files of a log, and of folders in folders: Personalizer makes `MODEL/data/YEAR/MONTH/DAY_0.json`.
pub const FILES_MAX: usize = 10_000;
const DEPTH_MAX: usize = 8;

/// Bytes from which a file is recognised.
const HEAD_BYTES: u64 = 256 * 1024;

/// Endings of names of logs, each also with `.gz`.
const ENDINGS: [&str; 3] = [".json", ".dsjson", ".log"];

/// The files of a log, in the order of their paths: `path` itself, or all in the folder `path` and the folders in it
/// whose names end like those of logs and whose content is dsjson.
///
/// # Errors
/// [`DatasetError::Io`], or [`DatasetError::TooMany`].
pub fn of_log(path: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    if !path.metadata().map_err(DatasetError::io(path))?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = vec![(path.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(DatasetError::io(&folder))? {
            let entry = entry.map_err(DatasetError::io(&folder))?;
            let found = entry.path();
            // Not through links, which could lead back.
            let kind = entry.file_type().map_err(DatasetError::io(&found))?;
            if kind.is_dir() && depth < DEPTH_MAX {
                folders.push((found, depth + 1));
            } else if kind.is_file() && is_named_like_a_log(&found) {
                if files.len() == FILES_MAX {
                    return Err(DatasetError::TooMany {
                        file: path.to_owned(),
                        what: "files of a log",
                        max: FILES_MAX,
                    });
                }
                files.push(found);
            }
        }
    }
    files.sort();
    let mut logs = Vec::with_capacity(files.len());
    for file in files {
        if is_dsjson(&file)? {
            logs.push(file);
        }
    }
    Ok(logs)
}

fn is_named_like_a_log(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    !name.starts_with('.') && ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a file is dsjson, by one of its first lines.
///
/// # Errors
/// [`DatasetError::Io`].
pub fn is_dsjson(file: &Path) -> Result<bool, DatasetError> {
    let io = || DatasetError::io(file);
    let mut head = Vec::new();
    let mut opened = File::open(file).map_err(io())?.take(HEAD_BYTES);
    opened.read_to_end(&mut head).map_err(io())?;
    if head.starts_with(&[0x1f, 0x8b]) {
        let mut text = Vec::new();
        // The head ends within the compressed text; what it holds is enough.
        let _ = MultiGzDecoder::new(BufReader::new(head.as_slice())).take(HEAD_BYTES).read_to_end(&mut text);
        head = text;
    }
    Ok(head_is_dsjson(&head))
}

/// Whether a text that begins like this is dsjson.
#[must_use]
pub fn head_is_dsjson(head: &[u8]) -> bool {
    head.split(|byte| *byte == b'\n').any(super::looks_like)
}
