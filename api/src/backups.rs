//! Copies of the data directory that are held for a backup, and the backups that were made of this node.
//!
//! A copy consists of links to files that never change, so it takes room only as the store rewrites them; but as long as it
//! is held, users who are erased meanwhile are in it. So a copy that is not read is removed after a while, and no copy
//! outlives the process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use celeris_manager::{CopyForBackup, ManagerError};
use celeris_model::Timestamp;
use celeris_storage::Watermark;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The folder of the copies, in the data directory.
const COPIES: &str = "backup-outgoing";

/// The file with the last backups, in the data directory.
const MADE: &str = "backups.json";

/// Copies that are held at a time.
pub const HELD_MAX: usize = 2;

/// A copy without requests is removed after this time, and any after the second.
pub const IDLE_MAX: Duration = Duration::from_secs(600);
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Backups that the node remembers.
const MADE_MAX: usize = 20;

/// The end of a sorted file has the identity of the database, of its session and the number of the file, which no other
/// file has in common.
const END_BYTES: u64 = 64 << 10;

/// The manifest of a version, which has the checksums of its files.
const VERSION_MANIFEST: &str = "_SUCCESS";

/// A file of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedFile {
    /// Its path in the data directory.
    pub name: String,
    pub bytes: u64,
    /// Names the contents, for a file that never changes: another file by this has the same.
    pub known_by: Option<String>,
}

/// A copy that is held.
pub struct Held {
    pub id: String,
    pub at: Timestamp,
    /// Who asked for it, if the node knows.
    pub principal: Option<String>,
    pub records: u64,
    pub files: Vec<CopiedFile>,
    folder: PathBuf,
    since: Instant,
    used: Mutex<Instant>,
}

impl Held {
    /// Opens one of the files.
    ///
    /// # Errors
    /// `NotFound` if there is none of this number, or the copy was removed meanwhile.
    pub fn open(&self, number: usize) -> io::Result<(File, u64)> {
        *self.used.lock() = Instant::now();
        let file = self.files.get(number).ok_or(io::ErrorKind::NotFound)?;
        Ok((File::open(self.folder.join(&file.name))?, file.bytes))
    }

    fn is_expired(&self) -> bool {
        self.used.lock().elapsed() > IDLE_MAX || self.since.elapsed() > AGE_MAX
    }
}

/// Removes the files of a copy, whichever way it ends. What is being read of it can be read on.
impl Drop for Held {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, folder = %folder.display(), "a copy for a backup was not removed");
    }
}

/// A backup that was made of this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    pub id: String,
    /// When the copy was made: the state of the store that the backup has.
    pub at: Timestamp,
    /// When it was complete.
    pub finished: Timestamp,
    pub principal: Option<String>,
    /// Where it is.
    pub to: String,
    pub records: u64,
    pub bytes: u64,
    /// What of it was not there before.
    pub sent_bytes: u64,
}

/// The copies and the backups of a node.
pub struct Backups {
    data_dir: PathBuf,
    held: Mutex<BTreeMap<String, Arc<Held>>>,
    /// Copies that are being made or held.
    permits: Arc<Semaphore>,
    taken: Mutex<BTreeMap<String, OwnedSemaphorePermit>>,
    made: Mutex<Vec<Made>>,
}

impl Backups {
    /// Removes what an earlier process has left.
    pub fn open(data_dir: &Path) -> Self {
        remove(&data_dir.join(COPIES));
        let made = match fs::read(data_dir.join(MADE)) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                tracing::warn!(%error, "{MADE} cannot be read; the backups made so far are not known");
                Vec::new()
            }),
            Err(_) => Vec::new(),
        };
        Self {
            data_dir: data_dir.to_owned(),
            held: Mutex::default(),
            permits: Arc::new(Semaphore::new(HELD_MAX)),
            taken: Mutex::default(),
            made: Mutex::new(made),
        }
    }

    /// The right to make one more copy.
    pub fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.expire();
        self.permits.clone().try_acquire_owned().ok()
    }

    /// Makes a copy by `copy`, which gets its folder. Blocks the thread.
    ///
    /// # Errors
    /// Those of `copy`, and of reading the files.
    pub fn hold(
        &self,
        (permit, principal): (OwnedSemaphorePermit, Option<String>),
        copy: impl FnOnce(&Path) -> Result<CopyForBackup, ManagerError>,
    ) -> Result<(Arc<Held>, CopyForBackup), ManagerError> {
        let at = Timestamp::from(SystemTime::now());
        let id = new_id();
        let folder = self.data_dir.join(COPIES).join(&id);
        let now = Instant::now();
        let (files, records, used) = (Vec::new(), 0, Mutex::new(now));
        // From here on the folder is removed whatever happens.
        let mut held = Held { id, at, principal, records, files, folder, since: now, used };
        let copied = copy(&held.folder)?;
        let failed = |source| ManagerError::Io { path: held.folder.clone(), source };
        let files = files_of(&held.folder).map_err(failed)?;
        held.files = files;
        held.records = copied.position.values().map(Watermark::records).sum();
        *held.used.lock() = Instant::now();
        let held = Arc::new(held);
        self.taken.lock().insert(held.id.clone(), permit);
        self.held.lock().insert(held.id.clone(), held.clone());
        Ok((held, copied))
    }

    /// A copy that is held.
    pub fn get(&self, id: &str) -> Option<Arc<Held>> {
        self.expire();
        let held = self.held.lock().get(id).cloned()?;
        *held.used.lock() = Instant::now();
        Some(held)
    }

    /// The copies that are held.
    pub fn held(&self) -> Vec<Arc<Held>> {
        self.held.lock().values().cloned().collect()
    }

    /// Removes a copy; returns it if there was one.
    pub fn release(&self, id: &str) -> Option<Arc<Held>> {
        let held = self.held.lock().remove(id);
        self.taken.lock().remove(id);
        held
    }

    /// Removes the copies that have had no request for too long.
    pub fn expire(&self) {
        let expired: Vec<String> =
            self.held.lock().values().filter(|held| held.is_expired()).map(|held| held.id.clone()).collect();
        for id in expired {
            tracing::warn!(%id, "a copy for a backup was abandoned, and is removed");
            self.release(&id);
        }
    }

    /// Notes a complete backup, and removes its copy. Blocks the thread.
    pub fn note(&self, made: Made) {
        tracing::info!(id = %made.id, to = %made.to, principal = made.principal, records = made.records, bytes = made.bytes,
            sent = made.sent_bytes, "a backup was made");
        metrics::counter!("celeris_backups_total").increment(1);
        metrics::counter!("celeris_backup_sent_bytes_total").increment(made.sent_bytes);
        self.release(&made.id);
        let mut all = self.made.lock();
        all.retain(|other| other.id != made.id);
        all.push(made);
        let dropped = all.len().saturating_sub(MADE_MAX);
        all.drain(..dropped);
        if let Err(error) = self.write(&all) {
            tracing::warn!(%error, "{MADE} was not written; the next start does not know of the backup");
        }
    }

    fn write(&self, made: &[Made]) -> io::Result<()> {
        let (path, draft) = (self.data_dir.join(MADE), self.data_dir.join(format!("{MADE}.new")));
        let mut file = File::create(&draft)?;
        file.write_all(&serde_json::to_vec(made)?)?;
        file.sync_all()?;
        fs::rename(&draft, &path)
    }

    /// The last backups, the latest first.
    pub fn made(&self) -> Vec<Made> {
        self.made.lock().iter().rev().cloned().collect()
    }

    /// Sets the gauges of the last backup.
    #[expect(clippy::cast_precision_loss, reason = "gauges are f64; milliseconds and bytes stay below 2^53")]
    pub fn render(&self) {
        metrics::gauge!("celeris_backups_running").set(self.held.lock().len() as f64);
        let Some(last) = self.made.lock().last().cloned() else { return };
        let age = Timestamp::from(SystemTime::now()).0.saturating_sub(last.at.0).max(0);
        metrics::gauge!("celeris_backup_age_seconds").set(age as f64 / 1e3);
        metrics::gauge!("celeris_backup_bytes").set(last.bytes as f64);
    }
}

/// Sorts by time, and no two are equal.
fn new_id() -> String {
    static LAST: Mutex<i64> = Mutex::new(0);
    let mut last = LAST.lock();
    // Milliseconds, of which no two of one node are equal; the process distinguishes nodes.
    let now = Timestamp::from(SystemTime::now()).0.max(*last + 1);
    *last = now;
    let time = jiff::Timestamp::from_millisecond(now).unwrap_or_default();
    // Random for each process.
    let hash = RandomState::new().hash_one(now) & 0xffff_ffff;
    format!("{}-{hash:08x}", time.strftime("%Y%m%dT%H%M%S.%3fZ"))
}

/// The files of a copy, by name. Files that the database writes for people, and locks, are left out.
fn files_of(folder: &Path) -> io::Result<Vec<CopiedFile>> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), String::new())];
    while let Some((path, prefix)) = folders.pop() {
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let full = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                folders.push((entry.path(), format!("{full}/")));
            } else if name != "LOCK" && name != "LOG" && !name.starts_with("LOG.old") {
                let bytes = entry.metadata()?.len();
                let known_by = known_by(&entry.path(), &full, bytes)?;
                files.push(CopiedFile { name: full, bytes, known_by });
            }
        }
    }
    files.sort_unstable_by(|left, right| left.name.cmp(&right.name));
    Ok(files)
}

fn known_by(path: &Path, name: &str, bytes: u64) -> io::Result<Option<String>> {
    if name.ends_with(".sst") {
        let mut end = bytes.to_be_bytes().to_vec();
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(bytes.saturating_sub(END_BYTES)))?;
        file.take(END_BYTES).read_to_end(&mut end)?;
        return Ok(Some(format!("sorted-{}", hex(&end))));
    }
    if let Some(object) = name.strip_prefix("objects/") {
        return Ok(Some(format!("object-{object}")));
    }
    if name.starts_with("versions/") {
        let manifest = fs::read(path.with_file_name(VERSION_MANIFEST)).unwrap_or_default();
        let file = name.rsplit('/').next().unwrap_or(name);
        return Ok((!manifest.is_empty()).then(|| format!("version-{}-{file}", hex(&manifest))));
    }
    Ok(None)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    digest(&SHA256, bytes).as_ref().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
