//! Files in folders and object stores, named by a path or a URL.
//!
//! A [`Location`] is one place: a path, `file://`, `s3://`, `gs://`, `az://`, `abfss://`, `http://` or `https://`. It is a file or
//! a folder depending on what is asked of it; [`Location::child`] names what is below it. All calls block, on any
//! thread: object stores are reached over threads of this crate (`runtime.rs`).
//!
//! A file appears whole or not at all ([`Writer::finish`]), and is durable then. Credentials come from the environment
//! variables that are usual for the store (`parse.rs`); they are never part of a name, so a name can be shown and logged.
//!
//! It does not know what is in the files, and caches nothing.

mod error;
mod folder;
mod parse;
mod reader;
mod runtime;
mod store;
mod writer;

use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

pub use self::error::LocationError;
use self::folder::FolderFile;
pub use self::reader::Reader;
use self::store::StorePath;
pub use self::writer::Writer;

/// Most files that one listing returns.
pub const LISTED_MAX: usize = 1_000_000;

/// A file or a folder on a disk or in an object store.
#[derive(Clone)]
pub struct Location {
    place: Place,
    /// As in messages: the path, or the URL.
    name: String,
}

#[derive(Clone)]
enum Place {
    Disk(PathBuf),
    Store(StorePath),
}

/// A file of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to what was listed, with `/` between folders; [`Location::child`] takes it.
    pub name: String,
    pub bytes: u64,
    pub modified: SystemTime,
}

impl Location {
    /// Reads a path or a URL. The place need not exist, and nothing is asked of it yet.
    ///
    /// # Errors
    /// `Invalid`, which says what is wrong with the text or with the environment variables of its store.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        parse::parse(text)
    }

    /// A place on a disk.
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { name: path.display().to_string(), place: Place::Disk(path) }
    }

    /// The path, if this is on a disk.
    pub fn as_path(&self) -> Option<&Path> {
        match &self.place {
            Place::Disk(path) => Some(path),
            Place::Store(_) => None,
        }
    }

    /// What is below this under a relative name, in which `/` separates folders.
    ///
    /// # Errors
    /// `Invalid` if the name is empty, absolute, or has a part that is empty, `.` or `..`.
    pub fn child(&self, name: &str) -> Result<Self, LocationError> {
        let full = format!("{}/{name}", self.name.trim_end_matches('/'));
        let is_valid = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains(['\0', '\\']);
        if !name.split('/').all(is_valid) {
            return Err(LocationError::invalid(&full, "every part of a name needs characters other than dots"));
        }
        let place = match &self.place {
            Place::Disk(path) => Place::Disk(path.join(name)),
            Place::Store(path) => {
                Place::Store(path.child(name).map_err(|problem| LocationError::invalid(&full, &problem))?)
            }
        };
        Ok(Self { place, name: full })
    }

    /// All files below this, in the order of their names. There are none if this does not exist.
    ///
    /// # Errors
    /// `TooMany` over [`LISTED_MAX`], or that the place cannot be read.
    pub fn list(&self) -> Result<Vec<Entry>, LocationError> {
        let mut entries = match &self.place {
            Place::Disk(path) => folder::list(path, &self.name)?,
            Place::Store(path) => path.list(&self.name)?,
        };
        entries.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        Ok(entries)
    }

    /// The length of the file.
    ///
    /// # Errors
    /// `NotFound`, for a folder too, or that the place cannot be read.
    pub fn size(&self) -> Result<u64, LocationError> {
        match &self.place {
            Place::Disk(path) => folder::size(path, &self.name),
            Place::Store(path) => path.size(&self.name),
        }
    }

    /// Whether there is such a file.
    ///
    /// # Errors
    /// That the place cannot be read.
    pub fn exists(&self) -> Result<bool, LocationError> {
        match self.size() {
            Ok(_) => Ok(true),
            Err(LocationError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// When the file was written last; `None` if there is none.
    ///
    /// # Errors
    /// That the place cannot be read.
    pub fn modified(&self) -> Result<Option<SystemTime>, LocationError> {
        let modified = match &self.place {
            Place::Disk(path) => folder::modified(path, &self.name),
            Place::Store(path) => path.modified(&self.name),
        };
        match modified {
            Err(LocationError::NotFound { .. }) => Ok(None),
            modified => modified.map(Some),
        }
    }

    /// Removes what writers have left below this folder that were killed more than this time ago. Object stores have rules
    /// of their own for that.
    ///
    /// # Errors
    /// That the place cannot be read or written.
    pub fn remove_unfinished(&self, older_than: Duration) -> Result<(), LocationError> {
        match &self.place {
            Place::Disk(path) => folder::remove_unfinished(path, older_than, &self.name),
            Place::Store(_) => Ok(()),
        }
    }

    /// The file from its beginning. A transfer that breaks off is continued where it was.
    ///
    /// # Errors
    /// `NotFound`, or that the place cannot be read.
    pub fn read(&self) -> Result<Reader, LocationError> {
        match &self.place {
            Place::Disk(path) => Reader::of_file(folder::open(path, &self.name)?, &self.name),
            Place::Store(path) => Reader::of_object(path.clone(), &self.name),
        }
    }

    /// The whole of a small file.
    ///
    /// # Errors
    /// `NotFound`, `TooLong` if it has more than `bytes_max`, or that the place cannot be read.
    pub fn read_all(&self, bytes_max: u64) -> Result<Vec<u8>, LocationError> {
        let mut contents = Vec::new();
        // One byte more shows that it is too long.
        let read = self.read()?.take(bytes_max.saturating_add(1)).read_to_end(&mut contents);
        read.map_err(|source| LocationError::io("read", &self.name, source))?;
        if contents.len() as u64 > bytes_max {
            return Err(LocationError::TooLong { place: self.name.clone(), bytes_max });
        }
        Ok(contents)
    }

    /// These bytes of the file, or fewer if it ends before.
    ///
    /// # Errors
    /// `NotFound`, or that the place cannot be read.
    pub fn read_range(&self, range: Range<u64>) -> Result<Bytes, LocationError> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        match &self.place {
            Place::Disk(path) => folder::read_range(path, range, &self.name),
            Place::Store(path) => path.read_range(range, &self.name),
        }
    }

    /// Begins a file, in the place of one that is there. It appears with [`Writer::finish`].
    ///
    /// # Errors
    /// That the place cannot be written.
    pub fn write(&self) -> Result<Writer, LocationError> {
        match &self.place {
            Place::Disk(path) => Ok(Writer::of_file(FolderFile::create(path, &self.name)?)),
            Place::Store(path) => Ok(Writer::of_object(path.clone(), &self.name)),
        }
    }

    /// Writes a small file, in the place of one that is there.
    ///
    /// # Errors
    /// That the place cannot be written.
    pub fn put(&self, contents: impl Into<Bytes>) -> Result<(), LocationError> {
        match &self.place {
            Place::Disk(path) => folder::put(path, &contents.into(), &self.name),
            Place::Store(path) => path.put(contents.into(), &self.name),
        }
    }

    /// Writes a small file unless there is one; says whether it did. Of several callers at once one does.
    ///
    /// # Errors
    /// That the place cannot be written, or has no such operation, as a server of plain HTTP.
    pub fn put_if_absent(&self, contents: impl Into<Bytes>) -> Result<bool, LocationError> {
        match &self.place {
            Place::Disk(path) => folder::put_if_absent(path, &contents.into(), &self.name),
            Place::Store(path) => path.put_if_absent(contents.into(), &self.name),
        }
    }

    /// Deletes the file, if it exists.
    ///
    /// # Errors
    /// That the place cannot be written.
    pub fn delete(&self) -> Result<(), LocationError> {
        match &self.place {
            Place::Disk(path) => folder::delete(path, &self.name),
            Place::Store(path) => path.delete(&self.name),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Location").field(&self.name).finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests;
