//! The files of objects: one for each, named by its SHA-256, in the folder `objects` of the data directory.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use celeris_pipelines::ObjectId;
use celeris_pipelines::limits::OBJECT_BYTES_MAX;
use celeris_storage::DiskSpace;

use crate::directories::sync_dir;
use crate::error::ManagerError;

/// How long a file is kept that no pipeline names: the pipeline is declared after its objects.
const UNUSED_FOR: Duration = Duration::from_secs(3600);

/// Bytes on the disk that objects leave to the log.
const DISK_RESERVE: u64 = 1 << 30;

/// Drafts have names that no object has.
const DRAFT: &str = "draft-";

pub(super) struct ObjectFiles {
    dir: PathBuf,
    drafts: AtomicU64,
}

impl ObjectFiles {
    /// Creates the folder, and removes what an interrupted write has left.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn open(data_dir: &Path) -> Result<Self, ManagerError> {
        let dir = data_dir.join("objects");
        fs::create_dir_all(&dir).map_err(ManagerError::io(&dir))?;
        for name in names(&dir)?.iter().filter(|name| name.starts_with(DRAFT)) {
            let path = dir.join(name);
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "what an interrupted write has left is not removed");
            }
        }
        Ok(Self { dir, drafts: AtomicU64::new(0) })
    }

    fn path(&self, id: ObjectId) -> PathBuf {
        self.dir.join(id.hex())
    }

    /// The length of an object; `None` if it is not here.
    pub(super) fn length(&self, id: ObjectId) -> Option<u64> {
        fs::metadata(self.path(id)).ok().filter(fs::Metadata::is_file).map(|data| data.len())
    }

    /// The bytes of all objects but this one.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn bytes_without(&self, id: ObjectId) -> Result<u64, ManagerError> {
        let others = names(&self.dir)?.into_iter().filter(|name| *name != id.hex());
        // A file may be removed meanwhile.
        Ok(others.filter_map(|name| fs::metadata(self.dir.join(name)).ok()).map(|data| data.len()).sum())
    }

    /// The bytes of an object; `None` if it is not here. The caller checks them.
    pub(super) fn read(&self, id: ObjectId) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.path(id)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(OBJECT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Writes an object; durable when it returns. A file that is here stays, but counts as written now.
    ///
    /// # Errors
    /// `ObjectsFull` if the disk has no room for it, or `Io`.
    pub(super) fn write(&self, id: ObjectId, bytes: &[u8]) -> Result<(), ManagerError> {
        let path = self.path(id);
        if self.is_whole(&path, bytes) {
            let touched = File::options().append(true).open(&path);
            return touched.and_then(|file| file.set_modified(SystemTime::now())).map_err(ManagerError::io(path));
        }
        let DiskSpace { free, .. } = DiskSpace::of(&self.dir).map_err(ManagerError::io(&self.dir))?;
        if free < DISK_RESERVE.saturating_add(bytes.len() as u64) {
            return Err(ManagerError::ObjectsFull { free });
        }
        let draft = self.dir.join(format!("{DRAFT}{}", self.drafts.fetch_add(1, Ordering::Relaxed)));
        let written = File::create(&draft).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&draft, &path)
        });
        if let Err(error) = written {
            // What is left of it is removed at the next start.
            let _ = fs::remove_file(&draft);
            return Err(ManagerError::io(draft)(error));
        }
        sync_dir(&self.dir)
    }

    /// Whether the file has these bytes, and is not damaged.
    fn is_whole(&self, path: &Path, bytes: &[u8]) -> bool {
        fs::metadata(path).is_ok_and(|data| data.len() == bytes.len() as u64)
            && fs::read(path).is_ok_and(|found| found == bytes)
    }

    /// Removes the files for which `is_used` does not hold, and that were not written a short time ago.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn remove_unused(&self, is_used: impl Fn(ObjectId) -> bool) -> Result<(), ManagerError> {
        for name in names(&self.dir)? {
            let Some(id) = ObjectId::from_hex(&name) else { continue };
            let path = self.path(id);
            let written = fs::metadata(&path).and_then(|data| data.modified());
            let is_new = written.is_ok_and(|written| written.elapsed().is_ok_and(|age| age < UNUSED_FOR));
            if !is_used(id) && !is_new {
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(ManagerError::io(path)(error)),
                    _ => tracing::info!(object = %id, "removed an object that no pipeline names"),
                }
            }
        }
        Ok(())
    }
}

fn names(dir: &Path) -> Result<Vec<String>, ManagerError> {
    let entries = fs::read_dir(dir).map_err(ManagerError::io(dir))?;
    let name = |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.file_name().to_string_lossy().into_owned());
    entries.map(name).collect::<io::Result<_>>().map_err(ManagerError::io(dir))
}
