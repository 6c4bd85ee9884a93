//! Files on a disk: written beside their place, synced, and moved into it.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::{Entry, LISTED_MAX, LocationError};

/// Begins the name of a file that is being written. Listings leave it out.
const UNFINISHED: &str = ".unfinished-";

/// Distinguishes the files that one process writes at a time.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

pub(crate) fn open(path: &Path, name: &str) -> Result<File, LocationError> {
    size(path, name)?;
    File::open(path).map_err(|source| LocationError::io("read", name, source))
}

pub(crate) fn size(path: &Path, name: &str) -> Result<u64, LocationError> {
    let metadata = fs::metadata(path).map_err(|source| match source.kind() {
        // A part of the path is a file.
        io::ErrorKind::NotADirectory => LocationError::NotFound { place: name.to_owned() },
        _ => LocationError::io("read", name, source),
    })?;
    if metadata.is_dir() {
        return Err(LocationError::NotFound { place: name.to_owned() });
    }
    Ok(metadata.len())
}

pub(crate) fn read_range(path: &Path, range: Range<u64>, name: &str) -> Result<Bytes, LocationError> {
    let mut file = open(path, name)?;
    let mut read = || {
        let mut contents = Vec::new();
        file.seek(SeekFrom::Start(range.start))?;
        (&mut file).take(range.end - range.start).read_to_end(&mut contents)?;
        Ok(Bytes::from(contents))
    };
    read().map_err(|source| LocationError::io("read", name, source))
}

pub(crate) fn modified(path: &Path, name: &str) -> Result<SystemTime, LocationError> {
    size(path, name)?;
    fs::metadata(path).and_then(|data| data.modified()).map_err(|source| LocationError::io("read", name, source))
}

pub(crate) fn remove_unfinished(folder: &Path, older_than: Duration, name: &str) -> Result<(), LocationError> {
    let failed = |source| LocationError::io("delete", name, source);
    let mut folders = VecDeque::from([folder.to_owned()]);
    while let Some(path) = folders.pop_front() {
        let found = match fs::read_dir(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        for entry in found {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                folders.push_back(entry.path());
            } else if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                let modified = entry.metadata().and_then(|data| data.modified());
                if modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > older_than)) {
                    delete(&entry.path(), name)?;
                }
            }
        }
    }
    Ok(())
}

/// Links to files are followed, links to folders are not: they could form a circle.
pub(crate) fn list(folder: &Path, name: &str) -> Result<Vec<Entry>, LocationError> {
    let failed = |source| LocationError::io("list", name, source);
    let mut entries = Vec::new();
    let mut folders = VecDeque::from([(folder.to_owned(), String::new())]);
    while let Some((path, prefix)) = folders.pop_front() {
        let found = match fs::read_dir(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        for entry in found {
            let entry = entry.map_err(failed)?;
            let of_entry = entry.file_name();
            let Some(of_entry) = of_entry.to_str().filter(|name| !name.starts_with(UNFINISHED)) else { continue };
            let name_of_entry = format!("{prefix}{of_entry}");
            if entry.file_type().map_err(failed)?.is_dir() {
                folders.push_back((entry.path(), format!("{name_of_entry}/")));
                continue;
            }
            // It may have been removed meanwhile, and a link may lead nowhere.
            let Ok(metadata) = fs::metadata(entry.path()) else { continue };
            if metadata.is_file() {
                let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                entries.push(Entry { name: name_of_entry, bytes: metadata.len(), modified });
            }
            if entries.len() > LISTED_MAX || folders.len() > LISTED_MAX {
                return Err(LocationError::TooMany { place: name.to_owned(), max: LISTED_MAX });
            }
        }
    }
    Ok(entries)
}

pub(crate) fn put(path: &Path, contents: &[u8], name: &str) -> Result<(), LocationError> {
    let mut file = FolderFile::create(path, name)?;
    file.write_all(contents).map_err(|source| LocationError::io("write", name, source))?;
    file.finish()
}

pub(crate) fn put_if_absent(path: &Path, contents: &[u8], name: &str) -> Result<bool, LocationError> {
    let mut file = FolderFile::create(path, name)?;
    file.write_all(contents).map_err(|source| LocationError::io("write", name, source))?;
    file.finish_if_absent()
}

pub(crate) fn delete(path: &Path, name: &str) -> Result<(), LocationError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        deleted => deleted.map_err(|source| LocationError::io("delete", name, source)),
    }
}

/// A file that is being written, beside its place. It is removed when this is dropped.
pub(crate) struct FolderFile {
    file: File,
    unfinished: PathBuf,
    path: PathBuf,
    name: String,
}

impl FolderFile {
    pub(crate) fn create(path: &Path, name: &str) -> Result<Self, LocationError> {
        let failed = |source| LocationError::io("write", name, source);
        let file_name = path.file_name().and_then(|name| name.to_str());
        let file_name = file_name.ok_or_else(|| LocationError::invalid(name, "it is no name of a file"))?;
        let folder = folder_of(path);
        create_folders(folder).map_err(failed)?;
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        // The time too: the folder may be shared with other machines, and hold what a killed process left. A long name
        // is cut, at a boundary of characters.
        let part: String = file_name.chars().take(40).collect();
        let unfinished = folder.join(format!("{UNFINISHED}{part}-{}-{time}-{number}", process::id()));
        let file = File::create_new(&unfinished).map_err(failed)?;
        Ok(Self { file, unfinished, path: path.to_owned(), name: name.to_owned() })
    }

    pub(crate) fn finish(self) -> Result<(), LocationError> {
        self.in_place(|| fs::rename(&self.unfinished, &self.path))
    }

    /// Whether there was no file before.
    fn finish_if_absent(self) -> Result<bool, LocationError> {
        match self.in_place(|| fs::hard_link(&self.unfinished, &self.path)) {
            Err(LocationError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            linked => linked.map(|()| true),
        }
    }

    fn in_place(&self, step: impl FnOnce() -> io::Result<()>) -> Result<(), LocationError> {
        let sync_folder = || File::open(folder_of(&self.path))?.sync_all();
        let done = self.file.sync_all().and_then(|()| step()).and_then(|()| sync_folder());
        done.map_err(|source| LocationError::io("write", &self.name, source))
    }
}

impl Write for FolderFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for FolderFile {
    fn drop(&mut self) {
        // Not there any more if it was moved into place.
        let _ = fs::remove_file(&self.unfinished);
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a folder and those above it, each durable in the one above.
fn create_folders(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = folder_of(folder);
    if above != folder {
        create_folders(above)?;
    }
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        created => created.and_then(|()| File::open(above)?.sync_all()),
    }
}
