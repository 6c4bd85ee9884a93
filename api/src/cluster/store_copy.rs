//! Copies of the store: a node without data, or one that the logs do not reach back to any more, begins with
//! the copy of another node; and a backup is one.
//!
//! A copy travels as a tar archive of `db/` and, as its last file, `FORMAT`, so that one that was cut
//! off is noticed. The files have checksums of their own, which every reader checks.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use celeris_storage::{Storage, StorageError};
use tokio::sync::OwnedSemaphorePermit;

/// The folder of a copy that is being sent.
const OUTGOING: &str = "copy-outgoing";

/// The folder of a copy that is being received.
const INCOMING: &str = "copy-incoming";

/// Exists while a copy takes the place of the database.
const REPLACING: &str = "REPLACING";

/// Exists from when a copy has taken the place of the database until the decisions of the users whom it has erased are
/// erased too.
const REPLACED: &str = "REPLACED";

/// What is derived from the database, and from one of another incarnation would be wrong.
const DERIVED: [&str; 4] = ["observations", "selections", "default_rewards.json", "VERIFICATION"];

const DATABASE: &str = "db";
const FORMAT: &str = "FORMAT";

/// The archive is a sequence of blocks of this size: one before each file, its contents, and two at the end.
const BLOCK_BYTES: u64 = 512;

/// A copy of the store in a folder, which is removed when this is dropped.
pub struct StoreCopy {
    folder: PathBuf,
    /// Released after the folder is removed: the next copy has the same.
    _permit: OwnedSemaphorePermit,
}

impl Drop for StoreCopy {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.folder) {
            tracing::warn!(%error, folder = %self.folder.display(), "a copy for another node was not removed");
        }
    }
}

impl StoreCopy {
    /// Makes a copy in the data directory; one at a time, by `permit`. Blocks the thread.
    ///
    /// # Errors
    /// `Io` or `Database`, or `NotOwner` if the node is not in a cluster.
    pub fn make(storage: &Storage, permit: OwnedSemaphorePermit) -> Result<Self, StorageError> {
        let replica = storage.replica().ok_or(StorageError::NotOwner)?;
        let copy = Self { folder: storage.dir().join(OUTGOING), _permit: permit };
        remove(&copy.folder).map_err(|source| StorageError::Io {
            action: "remove",
            path: copy.folder.clone(),
            source,
        })?;
        replica.copy_to(&copy.folder)?;
        Ok(copy)
    }

    /// The length of the archive: the files do not change any more.
    ///
    /// # Errors
    /// Those of reading the folder.
    pub fn archive_bytes(&self) -> io::Result<u64> {
        let of_file = |bytes: u64| BLOCK_BYTES + bytes.next_multiple_of(BLOCK_BYTES);
        let mut total = 2 * BLOCK_BYTES + of_file(fs::metadata(self.folder.join(FORMAT))?.len());
        for file in fs::read_dir(self.folder.join(DATABASE))? {
            total += of_file(file?.metadata()?.len());
        }
        Ok(total)
    }

    /// Writes the archive. Blocks the thread.
    ///
    /// # Errors
    /// Those of reading the copy and of `into`.
    pub fn write(&self, into: impl Write) -> io::Result<()> {
        let mut archive = tar::Builder::new(into);
        // Some file systems store zeros as holes. An entry with holes is of another kind and length.
        archive.sparse(false);
        let mut names: Vec<_> = fs::read_dir(self.folder.join(DATABASE))?.collect::<io::Result<_>>()?;
        names.sort_by_key(fs::DirEntry::file_name);
        for name in names {
            archive.append_path_with_name(name.path(), Path::new(DATABASE).join(name.file_name()))?;
        }
        archive.append_path_with_name(self.folder.join(FORMAT), FORMAT)?;
        archive.into_inner()?.flush()
    }
}

/// Replaces the database in `dir` by a copy that is read from `archive`; other files stay, and
/// [`erase_left_decisions`] is to follow. After an error, or if the process ends in between, the directory has the
/// database that it had, or none, and [`finish_replacing`] completes or undoes it. Blocks the thread.
///
/// # Errors
/// Those of `archive` and of writing; `InvalidData` if it is no whole copy.
pub fn receive(dir: &Path, archive: impl Read) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let incoming = dir.join(INCOMING);
    remove(&incoming)?;
    fs::create_dir_all(incoming.join(DATABASE))?;
    let mut is_whole = false;
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let name = entry.path()?.into_owned();
        if is_whole || !entry.header().entry_type().is_file() || !is_expected(&name) {
            return Err(invalid(&format!("it contains {}", name.display())));
        }
        let mut file = File::create(incoming.join(&name))?;
        let written = io::copy(&mut entry, &mut file)?;
        if written != entry.header().size()? {
            return Err(invalid(&format!("{} is cut off", name.display())));
        }
        file.sync_all()?;
        is_whole = name == Path::new(FORMAT);
    }
    if !is_whole {
        return Err(invalid("it is cut off"));
    }
    sync(&incoming.join(DATABASE))?;
    sync(&incoming)?;
    File::create(dir.join(REPLACING))?.sync_all()?;
    sync(dir)?;
    finish_replacing(dir)
}

/// Removes a copy that was being sent when the process ended. It may have users who are erased by now.
/// The caller has the store of the directory open.
///
/// # Errors
/// Those of the file system.
pub fn remove_outgoing(dir: &Path) -> io::Result<()> {
    remove(&dir.join(OUTGOING))
}

/// Completes the replacement of a database that was interrupted.
///
/// # Errors
/// Those of the file system.
pub fn finish_replacing(dir: &Path) -> io::Result<()> {
    let marker = dir.join(REPLACING);
    if !marker.try_exists()? {
        return Ok(());
    }
    let incoming = dir.join(INCOMING);
    if incoming.join(DATABASE).try_exists()? {
        remove(&dir.join(DATABASE))?;
        fs::rename(incoming.join(DATABASE), dir.join(DATABASE))?;
    }
    if incoming.join(FORMAT).try_exists()? {
        fs::rename(incoming.join(FORMAT), dir.join(FORMAT))?;
    }
    File::create(dir.join(REPLACED))?.sync_all()?;
    sync(dir)?;
    fs::remove_file(&marker)?;
    remove(&incoming)?;
    sync(dir)
}

/// Erases the decisions, which a copy does not replace, of users whom the copy has erased. Blocks the thread.
///
/// # Errors
/// Those of the store; the next start repeats it then.
pub fn erase_left_decisions(storage: &Storage) -> Result<(), StorageError> {
    let marker = storage.dir().join(REPLACED);
    if !marker.exists() {
        return Ok(());
    }
    let erased = storage.erase_decisions_of_erased_users()?;
    tracing::info!(erased, "the decisions of users whom the copy of the store has erased are erased");
    fs::remove_file(&marker).map_err(|source| StorageError::Io { action: "remove", path: marker, source })
}

/// Keeps the database of an earlier incarnation beside the one that replaces it. It may have records that the
/// origin of the new one lacked. What was derived from it is removed. If it is interrupted, it can be repeated as
/// long as there is a FORMAT file. The caller has the lock of the directory.
///
/// # Errors
/// Those of the file system, or if there is such a folder already.
pub fn set_aside(dir: &Path, incarnation: u64) -> io::Result<()> {
    let aside = dir.join(format!("db-of-incarnation-{incarnation}"));
    if dir.join(DATABASE).try_exists()? {
        if aside.try_exists()? {
            return Err(io::Error::other(format!("{} exists; move it away", aside.display())));
        }
        fs::rename(dir.join(DATABASE), aside)?;
        sync(dir)?;
    }
    for name in DERIVED {
        remove(&dir.join(name))?;
    }
    fs::remove_file(dir.join(FORMAT))?;
    sync(dir)
}

/// Whether a copy contains files of this name: `FORMAT`, or one directly in `db/`.
fn is_expected(name: &Path) -> bool {
    let parts: Vec<Component> = name.components().collect();
    match parts[..] {
        [Component::Normal(first)] => first == FORMAT,
        [Component::Normal(first), Component::Normal(_)] => first == DATABASE,
        _ => false,
    }
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the copy of the store is not valid: {problem}"))
}

/// Removes a file, or a folder with its contents, if it exists.
fn remove(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::io::{Seek as _, SeekFrom};
    use std::sync::Arc;

    use celeris_model::Shards;
    use celeris_storage::{ClusterIdentity, RegistryBatch, RegistryKey, StorageOptions};
    use tokio::sync::Semaphore;

    use super::*;

    fn identity() -> ClusterIdentity {
        ClusterIdentity { name: "main".to_owned(), incarnation: 2, shards: Shards::new(2).unwrap(), hash_key: [1; 16] }
    }

    fn open(dir: &Path) -> Storage {
        Storage::open_replica(dir, &StorageOptions::default(), &identity()).unwrap()
    }

    fn permit() -> OwnedSemaphorePermit {
        Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap()
    }

    fn archive_of(copy: &StoreCopy) -> Vec<u8> {
        let mut archive = Vec::new();
        copy.write(&mut archive).unwrap();
        assert_eq!(archive.len() as u64, copy.archive_bytes().unwrap());
        archive
    }

    fn archive(dir: &Path) -> Vec<u8> {
        archive_of(&StoreCopy::make(&open(dir), permit()).unwrap())
    }

    #[test]
    fn a_copy_replaces_the_database_whole_or_not_at_all() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let archive = archive(from.path());
        assert!(!from.path().join(OUTGOING).exists());
        fs::write(to.path().join("other"), "stays").unwrap();
        fs::create_dir(to.path().join("selections")).unwrap();
        // Cut off anywhere, it changes nothing.
        for cut in [0, 100, archive.len() / 2, archive.len() - 2048] {
            assert!(receive(to.path(), &archive[..cut]).is_err(), "{cut}");
            assert!(!to.path().join(DATABASE).exists() && !to.path().join(FORMAT).exists(), "{cut}");
        }
        receive(to.path(), &archive[..]).unwrap();
        assert_eq!(open(to.path()).cluster().unwrap(), Some(identity()));
        assert_eq!(fs::read_to_string(to.path().join("other")).unwrap(), "stays");
        // Again, over what is there.
        receive(to.path(), &archive[..]).unwrap();
        assert!(!to.path().join(INCOMING).exists() && !to.path().join(REPLACING).exists());
        erase_left_decisions(&open(to.path())).unwrap();
        assert!(!to.path().join(REPLACED).exists() && to.path().join("selections").exists());
    }

    #[test]
    fn a_database_that_is_set_aside_is_kept_whatever_happens() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let archive = archive(from.path());
        let aside = to.path().join("db-of-incarnation-2");
        receive(to.path(), &archive[..]).unwrap();
        fs::create_dir(to.path().join("selections")).unwrap();
        // As after a crash behind its first step.
        fs::rename(to.path().join(DATABASE), &aside).unwrap();
        set_aside(to.path(), 2).unwrap();
        assert!(aside.exists() && !to.path().join(FORMAT).exists() && !to.path().join("selections").exists());
        // There is one of this incarnation already.
        receive(to.path(), &archive[..]).unwrap();
        assert!(set_aside(to.path(), 2).is_err());
        open(to.path());
    }

    #[test]
    fn an_interrupted_replacement_is_completed() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let whole = archive(from.path());
        receive(to.path(), &whole[..]).unwrap();
        // As after a crash between the two renames.
        let incoming = to.path().join(INCOMING);
        fs::create_dir(&incoming).unwrap();
        fs::rename(to.path().join(FORMAT), incoming.join(FORMAT)).unwrap();
        File::create(to.path().join(REPLACING)).unwrap();
        finish_replacing(to.path()).unwrap();
        finish_replacing(to.path()).unwrap();
        open(to.path());
    }

    #[test]
    fn a_copy_has_the_files_whole_where_they_are_stored_with_holes() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let copy = StoreCopy::make(&open(from.path()), permit()).unwrap();
        let mut file = File::create(copy.folder.join(DATABASE).join("holes")).unwrap();
        file.seek(SeekFrom::Start(1 << 20)).unwrap();
        file.write_all(b"end").unwrap();
        receive(to.path(), &archive_of(&copy)[..]).unwrap();
        let received = fs::read(to.path().join(DATABASE).join("holes")).unwrap();
        assert!(received.len() == (1 << 20) + 3 && received.ends_with(b"\0end"));
    }

    #[test]
    fn a_permit_is_free_again_only_after_the_folder_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let permits = Arc::new(Semaphore::new(1));
        let copy = StoreCopy::make(&open(dir.path()), permits.clone().try_acquire_owned().unwrap()).unwrap();
        assert!(permits.clone().try_acquire_owned().is_err() && dir.path().join(OUTGOING).exists());
        drop(copy);
        assert!(permits.try_acquire_owned().is_ok() && !dir.path().join(OUTGOING).exists());
    }

    #[test]
    fn an_archive_cannot_write_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["../evil", "/tmp/evil", "db/../evil", "evil", "db/a/b"] {
            let mut header = tar::Header::new_gnu();
            // Not by `set_path`, which refuses some of them.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(4);
            header.set_entry_type(tar::EntryType::Regular);
            header.set_cksum();
            let mut builder = tar::Builder::new(Vec::new());
            builder.append(&header, &b"evil"[..]).unwrap();
            let error = receive(&dir.path().join("data"), &builder.into_inner().unwrap()[..]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{name}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_store_of_a_node_on_its_own_is_not_copied() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
        storage.registry().commit(RegistryBatch::new().put(RegistryKey::new(["a"]).unwrap(), &1).unwrap()).unwrap();
        assert!(matches!(StoreCopy::make(&storage, permit()), Err(StorageError::NotOwner)));
    }
}
