//! Versions that were made on another node of the cluster: fetched, checked and moved into place.
//!
//! The registry of the cluster has the SHA-256 of each version's manifest, which has that of every
//! file. So a directory is known to be the version whatever node it comes from, and one of the same
//! number that a former coordinator has left is known not to be.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use celeris_formats::version_dir::checked_file;
use celeris_formats::{FileEntry, MANIFEST_FILE, read_manifest, sha256_of};
use celeris_model::{ModelId, VersionId};
use celeris_storage::DiskSpace;

use super::importing::{DISK_RESERVE, FILES_MAX, MANIFEST_BYTES_MAX};
use super::version_directory::{versions_below, write_untrained};
use super::{ModelRecord, UNTRAINED, VersionRecord, VersionStore};
use crate::cluster::{RemoteFile, VersionSource};
use crate::directories::{remove_dir, sync_dir};
use crate::error::ManagerError;

/// A file of a version directory, for another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionFile {
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

impl VersionStore {
    /// Whether the directory of a version is here: its manifest is the one that the registry names.
    /// The files are checked whenever they are read.
    pub(crate) fn is_here(&self, record: &ModelRecord, version: &VersionRecord) -> bool {
        is_manifest_of(&self.registry.version_dir(record, version.version), version)
    }

    /// Gets a version that is not here from `source`, and checks its manifest and every file before
    /// the directory is moved into place. Starts over each time. Blocks the thread.
    ///
    /// # Errors
    /// `Fetch` if a file cannot be fetched or is not that of the version; `Io`.
    pub(crate) fn fetch(
        &self,
        record: &ModelRecord,
        version: &VersionRecord,
        source: &dyn VersionSource,
        is_stopping: impl Fn() -> bool,
    ) -> Result<(), ManagerError> {
        fetch(self.storage.dir(), (record, version), source, &is_stopping)
    }

    /// Removes the directory of a version if one of its files is damaged, so that it is fetched
    /// again. Returns whether it did.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn remove_if_damaged(&self, record: &ModelRecord, version: VersionId) -> Result<bool, ManagerError> {
        let dir = self.registry.version_dir(record, version);
        let is_whole = read_manifest(&dir).and_then(|manifest| {
            manifest.files.keys().try_for_each(|name| checked_file(&dir, &manifest, name).map(drop))
        });
        match is_whole {
            Ok(()) => Ok(false),
            Err(error) => {
                tracing::warn!(model = %record.config.name, %version, %error, "a version is damaged and is fetched again");
                remove_dir(&dir).map(|()| true)
            }
        }
    }

    /// The files of a version of the registry, for a node that fetches it.
    ///
    /// # Errors
    /// `NoVersionFile` if the registry names no such version, or it is not complete here; `Storage`
    /// or `Io`.
    pub fn files(&self, model: ModelId, version: VersionId) -> Result<Vec<VersionFile>, ManagerError> {
        let dir = self.dir_of(model, version)?;
        let manifest = read_manifest(&dir)?;
        let names = manifest.files.into_keys().chain([MANIFEST_FILE.to_owned()]);
        names.map(|name| file_in(&dir, &name).map(|bytes| VersionFile { name, bytes })).collect()
    }

    /// Opens a file of a version of the registry, for a node that fetches it; and its length.
    ///
    /// # Errors
    /// `NoVersionFile` if there is none of that name, or as [`VersionStore::files`].
    pub fn open_file(
        &self,
        (model, version): (ModelId, VersionId),
        name: &str,
    ) -> Result<(fs::File, u64), ManagerError> {
        let dir = self.dir_of(model, version)?;
        // The manifest lists names of a fixed set only, none of which leaves the directory.
        if name != MANIFEST_FILE && !read_manifest(&dir)?.files.contains_key(name) {
            return Err(ManagerError::NoVersionFile { model, version, file: name.to_owned() });
        }
        let bytes = file_in(&dir, name)?;
        let path = dir.join(name);
        Ok((fs::File::open(&path).map_err(ManagerError::io(path))?, bytes))
    }

    /// The directory of a version of the registry, if it is here.
    fn dir_of(&self, model: ModelId, version: VersionId) -> Result<PathBuf, ManagerError> {
        let unknown = || ManagerError::NoVersionFile { model, version, file: MANIFEST_FILE.to_owned() };
        let record = self.registry.all_models()?.into_iter().find(|record| record.id == model).ok_or_else(unknown)?;
        let described = self.registry.version(&record.config.name, version)?;
        if !self.is_here(&record, &described) {
            return Err(unknown());
        }
        Ok(self.registry.version_dir(&record, version))
    }
}

/// As [`VersionStore::fetch`], into `versions/` in the folder `root`.
pub(super) fn fetch(
    root: &Path,
    (record, version): (&ModelRecord, &VersionRecord),
    source: &dyn VersionSource,
    is_stopping: &dyn Fn() -> bool,
) -> Result<(), ManagerError> {
    let folder = versions_below(root, record.identity());
    fs::create_dir_all(&folder).map_err(ManagerError::io(&folder))?;
    // A name that no version has: the next start removes what a crash leaves under it.
    let draft = folder.join(format!("fetch-{}", version.version));
    remove_dir(&draft)?;
    let fetching = Fetching { root, record, version, draft: &draft, is_stopping };
    let fetched = fetching.run(source).and_then(|()| {
        let dir = folder.join(version.version.to_string());
        remove_dir(&dir)?;
        fs::rename(&draft, &dir).map_err(ManagerError::io(&dir))?;
        sync_dir(&folder)
    });
    if fetched.is_err() {
        remove_dir(&draft)?;
    }
    fetched
}

/// The version that is being fetched, and the folder for it.
struct Fetching<'a> {
    root: &'a Path,
    record: &'a ModelRecord,
    version: &'a VersionRecord,
    draft: &'a Path,
    is_stopping: &'a dyn Fn() -> bool,
}

impl Fetching<'_> {
    fn run(&self, source: &dyn VersionSource) -> Result<(), ManagerError> {
        if self.version.algorithm == UNTRAINED && self.write_untrained()? {
            return Ok(());
        }
        fs::create_dir_all(self.draft).map_err(ManagerError::io(self.draft))?;
        self.get(source, MANIFEST_FILE, MANIFEST_BYTES_MAX)?;
        if !is_manifest_of(self.draft, self.version) {
            return Err(self.refused(MANIFEST_FILE, "it is not the manifest that the registry names"));
        }
        let manifest = read_manifest(self.draft)?;
        let files: &BTreeMap<String, FileEntry> = &manifest.files;
        if files.len() > FILES_MAX {
            return Err(self.refused(MANIFEST_FILE, "it lists too many files"));
        }
        for name in files.keys() {
            self.get(source, name, self.room()?)?;
            checked_file(self.draft, &manifest, name).map_err(|error| self.refused(name, &error.to_string()))?;
        }
        for name in files.keys().map(String::as_str).chain([MANIFEST_FILE]) {
            let path = self.draft.join(name);
            fs::File::open(&path).and_then(|file| file.sync_all()).map_err(ManagerError::io(&path))?;
        }
        sync_dir(self.draft)
    }

    /// Writes an untrained version, which follows from the settings of its model. Returns whether it
    /// is the one that the registry names; another release may write it in another way.
    fn write_untrained(&self) -> Result<bool, ManagerError> {
        write_untrained(self.draft, &self.record.config, self.version.created)?;
        let is_same = is_manifest_of(self.draft, self.version);
        if !is_same {
            remove_dir(self.draft)?;
        }
        Ok(is_same)
    }

    fn get(&self, source: &dyn VersionSource, name: &str, bytes_max: u64) -> Result<(), ManagerError> {
        if (self.is_stopping)() {
            return Err(self.refused(name, "the node is stopping"));
        }
        let file = RemoteFile { model: self.record.id, version: self.version.version, name, bytes_max };
        let path = self.draft.join(name);
        source.fetch(file, &path).map_err(|error| self.refused(name, &error.to_string()))?;
        let bytes = file_in(self.draft, name)?;
        if bytes > bytes_max {
            return Err(self.refused(name, &format!("it has {bytes} bytes, more than {bytes_max}")));
        }
        Ok(())
    }

    /// Bytes that a file may take, without those that are reserved for the log.
    fn room(&self) -> Result<u64, ManagerError> {
        let dir = self.root;
        let DiskSpace { free, .. } = DiskSpace::of(dir).map_err(ManagerError::io(dir))?;
        Ok(free.saturating_sub(DISK_RESERVE))
    }

    fn refused(&self, file: &str, problem: &str) -> ManagerError {
        let model = self.record.config.name.clone();
        ManagerError::Fetch { model, version: self.version.version, file: file.to_owned(), problem: problem.to_owned() }
    }
}

/// Whether the directory has the manifest that the registry names. One without a checksum was
/// registered by an earlier release, and any is taken for it.
pub(super) fn is_manifest_of(dir: &Path, version: &VersionRecord) -> bool {
    let manifest = dir.join(MANIFEST_FILE);
    match &version.manifest {
        Some(expected) => sha256_of(&manifest).is_ok_and(|found| found == *expected),
        None => manifest.is_file(),
    }
}

/// The length of a plain file.
fn file_in(dir: &Path, name: &str) -> Result<u64, ManagerError> {
    let path = dir.join(name);
    let data = fs::symlink_metadata(&path).map_err(ManagerError::io(&path))?;
    if data.is_file() {
        return Ok(data.len());
    }
    Err(ManagerError::io(path)(std::io::Error::other("it is not a plain file")))
}
