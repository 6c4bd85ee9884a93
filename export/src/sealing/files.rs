//! Names of sealed files, and their durable creation and removal.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use celeris_model::{ModelName, StreamName};
use celeris_storage::DiskSpace;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::segments::{FORMAT, Sealed};
use crate::error::ExportError;

/// The file with the sealed watermark and the list of segments.
pub(super) const WATERMARK_FILE: &str = "_watermark.json";

const FOLDER_PREFIX: &str = "stream=";
const MODEL_PREFIX: &str = "model=";
const SEGMENT_PREFIX: &str = "segment-";
const SEGMENT_SUFFIX: &str = ".parquet";

/// Suffix of files being written; readers ignore names that begin with a dot or an underscore.
const DRAFT_SUFFIX: &str = ".tmp";

/// Sealing stops below this much free space, or below one part in [`FREE_SHARE_KEPT`] of a small
/// disk.
const FREE_BYTES_KEPT: u64 = 1 << 30;
const FREE_SHARE_KEPT: u64 = 10;

/// Partition value that Hive-style readers interpret as null.
const HIVE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// The folder of a stream's segments, `stream=NAME`.
///
/// Stream names consist of letters, digits, `-` and `_`, which need no escaping, except for the
/// name that Hive-style readers interpret as null: its first character is percent-encoded, which
/// they decode.
#[must_use]
pub fn folder_name(stream: &StreamName) -> String {
    match stream.as_str().strip_prefix('_') {
        Some(rest) if stream.as_str() == HIVE_NULL => format!("{FOLDER_PREFIX}%5F{rest}"),
        _ => format!("{FOLDER_PREFIX}{stream}"),
    }
}

/// The stream of a folder; `None` if it is not a stream's folder.
#[must_use]
pub fn stream_of_folder(folder: &str) -> Option<StreamName> {
    let name = folder.strip_prefix(FOLDER_PREFIX)?.replacen("%5F", "_", 1);
    let stream = StreamName::new(name).ok()?;
    (folder_name(&stream) == folder).then_some(stream)
}

/// The file name of a segment.
pub(super) fn segment_name(number: u64) -> String {
    format!("{SEGMENT_PREFIX}{number:012}{SEGMENT_SUFFIX}")
}

/// The path of a file while it is being written.
pub(super) fn draft_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!(".{name}{DRAFT_SUFFIX}"))
}

fn is_ours(name: &str) -> bool {
    let is_segment = |name: &str| name.starts_with(SEGMENT_PREFIX) && name.ends_with(SEGMENT_SUFFIX);
    let draft = name.strip_prefix('.').and_then(|name| name.strip_suffix(DRAFT_SUFFIX));
    is_segment(name) || draft.is_some_and(|name| is_segment(name) || name == WATERMARK_FILE)
}

/// Renames a finished, synced draft to its final name.
pub(super) fn publish(folder: &Path, name: &str) -> Result<(), ExportError> {
    fs::rename(draft_of(folder, name), folder.join(name)).map_err(ExportError::io(folder.join(name)))
}

pub(super) fn sync_dir(dir: &Path) -> Result<(), ExportError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(ExportError::io(dir))
}

/// Fails if little space is left: sealing must not use the space that the log needs.
pub(super) fn check_room(folder: &Path) -> Result<(), ExportError> {
    let DiskSpace { free, total } = DiskSpace::of(folder).map_err(ExportError::io(folder))?;
    let kept = FREE_BYTES_KEPT.min(total / FREE_SHARE_KEPT);
    if free < kept { Err(ExportError::NoRoomToSeal { free, kept }) } else { Ok(()) }
}

/// Creates a folder and syncs its two parents.
pub(super) fn create_folder(folder: &Path) -> Result<(), ExportError> {
    fs::create_dir_all(folder).map_err(ExportError::io(folder))?;
    for parent in folder.ancestors().skip(1).take(2) {
        sync_dir(parent)?;
    }
    Ok(())
}

/// Atomically and durably replaces `_watermark.json`.
pub(super) fn write_watermark(folder: &Path, sealed: &impl Serialize) -> Result<(), ExportError> {
    let draft = draft_of(folder, WATERMARK_FILE);
    let text = serde_json::to_vec_pretty(sealed).expect("names and numbers are valid JSON");
    File::create(&draft)
        .and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        })
        .map_err(ExportError::io(&draft))?;
    // The segments were renamed before, so this also makes their names durable.
    sync_dir(folder)?;
    publish(folder, WATERMARK_FILE)?;
    sync_dir(folder)
}

/// Reads the watermark of a folder. `None` if it is missing, unreadable or of another format: the
/// stream is then sealed again from the log.
pub(super) fn read_watermark(folder: &Path, stream: &StreamName) -> Option<Sealed> {
    let path = folder.join(WATERMARK_FILE);
    let sealed = read_json::<Sealed>(&path)?;
    let empty = Sealed::nothing(stream.clone());
    let is_whole =
        sealed.format == FORMAT && sealed.stream == *stream && sealed.watermark.len() == empty.watermark.len();
    if !is_whole {
        tracing::warn!(path = %path.display(), "of another format or stream; the stream is sealed again");
    }
    is_whole.then_some(sealed)
}

/// Parses a JSON file; `None` if it is missing or unreadable.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let text = match fs::read(path) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return None,
        other => other.map_err(|error| error.to_string()),
    };
    match text.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string())) {
        Ok(value) => Some(value),
        Err(problem) => {
            tracing::warn!(path = %path.display(), problem, "cannot be read; its data is sealed again");
            None
        }
    }
}

/// Removes segments and drafts that are not listed.
pub(super) fn remove_unlisted(folder: &Path, is_listed: impl Fn(&str) -> bool) -> Result<(), ExportError> {
    let entries = match fs::read_dir(folder) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(ExportError::io(folder))?,
    };
    for entry in entries {
        let entry = entry.map_err(ExportError::io(folder))?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| is_ours(name)) else { continue };
        if !is_listed(name) {
            fs::remove_file(entry.path()).map_err(ExportError::io(entry.path()))?;
        }
    }
    sync_dir(folder)
}

/// Removes all sealed files of a folder, the watermark first, so that an incomplete set is never
/// taken for a complete one.
pub(super) fn remove_all(folder: &Path) -> Result<(), ExportError> {
    if !folder.exists() {
        return Ok(());
    }
    let watermark = folder.join(WATERMARK_FILE);
    if watermark.exists() {
        fs::remove_file(&watermark).map_err(ExportError::io(&watermark))?;
        sync_dir(folder)?;
    }
    remove_unlisted(folder, |_| false)?;
    // Fails if the folder contains other files, which stay.
    let _ = fs::remove_dir(folder);
    Ok(())
}

/// Removes the sealed data in the folders below `root` whose names are unknown.
pub(super) fn remove_unknown(root: &Path, is_unknown: impl Fn(&str) -> bool) -> Result<(), ExportError> {
    let entries = match fs::read_dir(root) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(ExportError::io(root))?,
    };
    for entry in entries {
        let entry = entry.map_err(ExportError::io(root))?;
        if entry.file_name().to_str().is_some_and(&is_unknown) {
            remove_all(&entry.path())?;
        }
    }
    Ok(())
}

/// The folder of a model's decisions, `model=NAME`.
pub(crate) fn model_folder_name(model: &ModelName) -> String {
    format!("{MODEL_PREFIX}{model}")
}

/// The model of a folder; `None` if it is not a model's folder.
pub(super) fn model_of_folder(folder: &str) -> Option<ModelName> {
    ModelName::new(folder.strip_prefix(MODEL_PREFIX)?).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn every_stream_has_its_own_folder_and_none_reads_as_null() {
        for (name, folder) in [
            ("films", "stream=films"),
            ("A-1_b", "stream=A-1_b"),
            ("_x", "stream=_x"),
            (HIVE_NULL, "stream=%5F_HIVE_DEFAULT_PARTITION__"),
        ] {
            let stream = StreamName::new(name).unwrap();
            assert_eq!(folder_name(&stream), folder);
            assert_eq!(stream_of_folder(folder), Some(stream));
        }
        for other in ["films", "stream=", "stream=a.b", "stream=%5Fx", "stream=__HIVE_DEFAULT_PARTITION__"] {
            assert_eq!(stream_of_folder(other), None, "{other}");
        }
    }
}
