//! Unpacks downloaded archives with checks against malicious content.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read};
use std::path::{Component, Path, PathBuf};

use zip::ZipArchive;
use zip::result::ZipError;

use crate::DatasetError;

/// Maximum number of entries; a MovieLens archive has a few dozen.
const ENTRIES_MAX: usize = 1_000;

/// Folder that macOS adds to archives.
const MACOS_FOLDER: &str = "__MACOSX";

/// Unpacks `file`, downloaded from `url`, into the new folder `target`; returns the single folder
/// in it.
pub(super) fn unpack(url: &str, file: &Path, target: &Path, bytes_max: u64) -> Result<PathBuf, DatasetError> {
    let refuse = |problem: String| DatasetError::Archive { url: url.to_owned(), problem };
    let damaged = |error: ZipError| refuse(format!("the archive is damaged ({error})"));
    let opened = File::open(file).map_err(DatasetError::io(file))?;
    let mut archive = ZipArchive::new(BufReader::new(opened)).map_err(damaged)?;
    if archive.len() > ENTRIES_MAX {
        return Err(refuse(format!("the archive has more than {ENTRIES_MAX} entries")));
    }
    let mut left = bytes_max;
    let mut top = None;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(damaged)?;
        let name = entry.name().map_err(damaged)?.into_owned();
        let Some(path) = inner_path(&name).filter(|_| !entry.is_symlink()) else {
            return Err(refuse(format!("entry {name:?} would be written outside of its folder")));
        };
        if path.starts_with(MACOS_FOLDER) {
            continue;
        }
        let folder = path.components().next().map(|first| target.join(first));
        if *top.get_or_insert_with(|| folder.clone()) != folder {
            return Err(refuse("the archive holds more than one folder".into()));
        }
        let path = target.join(path);
        if entry.is_dir() {
            fs::create_dir_all(&path).map_err(DatasetError::io(&path))?;
            continue;
        }
        let parent = path.parent().expect("a path below the target has a parent");
        fs::create_dir_all(parent).map_err(DatasetError::io(parent))?;
        let mut output = BufWriter::new(File::create_new(&path).map_err(DatasetError::io(&path))?);
        // Read one byte more than allowed, to detect a size above the limit. The size stated in the
        // archive is not used.
        let written = io::copy(&mut entry.by_ref().take(left + 1), &mut output)
            .map_err(|error| refuse(format!("entry {name:?} cannot be unpacked ({error})")))?;
        left = left
            .checked_sub(written)
            .ok_or_else(|| refuse(format!("the archive unpacks to more than the limit of {bytes_max} bytes")))?;
        let output = output.into_inner().map_err(|error| DatasetError::io(&path)(error.into_error()))?;
        // Sync before the later rename, which must not become durable before the content.
        output.sync_all().map_err(DatasetError::io(&path))?;
    }
    top.flatten().filter(|folder| folder.is_dir()).ok_or_else(|| refuse("the archive holds no folder".into()))
}

/// The path of an entry, if it stays inside the target folder.
fn inner_path(name: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    // A backslash separates folders on some systems, so it is rejected on all.
    let plain = !name.contains(['\\', '\0']) && path.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && !name.is_empty()).then(|| path.to_owned())
}
