//! Registration of versions trained by an external batch job: they are copied into the store and
//! registered, not activated.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use celeris_formats::MANIFEST_FILE;
use celeris_formats::version_dir::{NO_VERSION_FILE, is_version_file};
use celeris_model::ModelName;
use celeris_storage::DiskSpace;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Actor, Event, EventKind, ModelRecord, VersionRecord, VersionStore, versions_dir};
use crate::directories::{remove_dir, sync_dir};
use crate::error::ManagerError;
use crate::leadership::Term;

/// Free bytes reserved for the log when a version is copied.
pub(super) const DISK_RESERVE: u64 = 1 << 30;

/// Limits of a manifest's size and number of files; versions have only a few files.
pub(super) const MANIFEST_BYTES_MAX: u64 = 4 << 20;
pub(super) const FILES_MAX: usize = 32;

/// The part of a manifest that lists the files to copy. The rest is checked on the copy.
#[derive(Deserialize)]
struct Listed {
    files: BTreeMap<String, IgnoredAny>,
}

impl VersionStore {
    /// Copies a version directory (`docs/rfcs/001-version-directory.md`), checks it completely, and
    /// registers it as the model's newest version. The active version is unchanged.
    ///
    /// `path` must be inside the configured import folder; a relative path is resolved against it.
    ///
    /// # Errors
    /// `UnknownModel`; `Import` with the file and the problem; `Io` or `Storage`.
    pub fn register(&self, model: &ModelName, path: &Path) -> Result<VersionRecord, ManagerError> {
        let term = self.registry.term()?;
        let record = self.registry.model(model)?;
        let refused = |problem: String| ManagerError::Import { path: path.to_owned(), problem };
        let source = self.importable(path).map_err(refused)?;
        let files = version_files(&source).map_err(refused)?;
        let versions_dir = versions_dir(&self.storage, record.identity());
        self.check_room(&files).map_err(refused)?;
        // A name that no version has: the next start removes what a crash leaves under it.
        let copy = versions_dir.join(format!("import-{}", uuid::Uuid::now_v7()));
        let registered = copy_files(&files, &copy).and_then(|()| self.adopt_copy((&record, &term), path, &copy));
        if registered.is_err() {
            remove_dir(&copy)?;
        }
        let registered = registered?;
        self.prune(&record, &term)?;
        Ok(registered)
    }

    /// The canonical form of `path`, which must be inside the import folder: a client can have the
    /// node read no other directory.
    fn importable(&self, path: &Path) -> Result<PathBuf, String> {
        let Some(import_dir) = &self.import_dir else {
            return Err("this node registers no versions; name a folder for them as import_dir in the section \
                        [training] of its configuration"
                .to_owned());
        };
        let import_dir = import_dir
            .canonicalize()
            .map_err(|error| format!("import_dir of the node's configuration, {}: {error}", import_dir.display()))?;
        let outside = || format!("is not inside {}; put the version directory there", import_dir.display());
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(outside());
        }
        // For a path outside, do not reveal whether it exists.
        let wanted = import_dir.join(path);
        if !wanted.starts_with(&import_dir) {
            return Err(outside());
        }
        let real = wanted.canonicalize().map_err(|error| error.to_string())?;
        if !real.starts_with(&import_dir) || real == import_dir {
            return Err(outside());
        }
        Ok(real)
    }

    fn check_room(&self, files: &[(PathBuf, u64)]) -> Result<(), String> {
        let needed: u64 = files.iter().map(|(_, bytes)| bytes).sum();
        let DiskSpace { free, .. } = DiskSpace::of(self.storage.dir()).map_err(|error| error.to_string())?;
        if free < needed.saturating_add(DISK_RESERVE) {
            return Err(format!(
                "takes {needed} bytes, and {free} are free, of which {DISK_RESERVE} are the log's; make room first"
            ));
        }
        Ok(())
    }

    fn adopt_copy(
        &self,
        (record, term): (&ModelRecord, &Term),
        path: &Path,
        copy: &Path,
    ) -> Result<VersionRecord, ManagerError> {
        let refused = |problem: String| {
            // Replace the path of the copy, which is internal, with the caller's.
            let problem = problem.replace(&copy.display().to_string(), &path.display().to_string());
            ManagerError::Import { path: path.to_owned(), problem }
        };
        let loaded = self.read_candidate(&record.config, copy).map_err(|error| refused(error.to_string()))?;
        let (registered, _) = self.admit((record, term), copy, loaded, |active, registered| {
            let event = Event::now(record.identity(), EventKind::Registered, Actor::Operator, "on request")
                .between(Some(active), Some(registered.version))
                .with("path", path.display().to_string())
                .with("algorithm", registered.algorithm.as_str());
            Some(event)
        })?;
        Ok(registered)
    }
}

/// The files of a version directory and their sizes: the manifest and the files it lists. Links are
/// rejected, since they could point anywhere.
fn version_files(dir: &Path) -> Result<Vec<(PathBuf, u64)>, String> {
    let manifest = plain_file(dir, MANIFEST_FILE)
        .map_err(|problem| format!("{problem}; without {MANIFEST_FILE} the directory is not a finished version"))?;
    if manifest.1 > MANIFEST_BYTES_MAX {
        return Err(format!("{MANIFEST_FILE} is longer than {MANIFEST_BYTES_MAX} bytes"));
    }
    let text = fs::read(&manifest.0).map_err(|error| format!("{MANIFEST_FILE}: {error}"))?;
    let listed: Listed = serde_json::from_slice(&text).map_err(|error| format!("{MANIFEST_FILE}: {error}"))?;
    if listed.files.len() > FILES_MAX {
        return Err(format!("{MANIFEST_FILE} lists more than {FILES_MAX} files"));
    }
    let mut files = vec![manifest];
    for name in listed.files.keys() {
        if !is_version_file(name) {
            return Err(format!("{MANIFEST_FILE} lists {name:?}, {NO_VERSION_FILE}"));
        }
        files.push(plain_file(dir, name)?);
    }
    Ok(files)
}

fn plain_file(dir: &Path, name: &str) -> Result<(PathBuf, u64), String> {
    let file = dir.join(name);
    let data = fs::symlink_metadata(&file).map_err(|error| format!("{name}: {error}"))?;
    if data.is_file() { Ok((file, data.len())) } else { Err(format!("{name} is not a plain file")) }
}

fn copy_files(files: &[(PathBuf, u64)], to: &Path) -> Result<(), ManagerError> {
    fs::create_dir_all(to).map_err(ManagerError::io(to))?;
    for (file, _) in files {
        let copy = to.join(file.file_name().expect("every file was named within its folder"));
        fs::copy(file, &copy).map_err(ManagerError::io(file))?;
        fs::File::open(&copy).and_then(|copy| copy.sync_all()).map_err(ManagerError::io(&copy))?;
    }
    sync_dir(to)
}
