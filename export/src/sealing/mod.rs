//! The background sealer: writes a copy of every stream's log as Parquet for analysis.
//!
//! `observations/stream=NAME/` in the data directory contains segments of *effective* observations,
//! and `_watermark.json` records how far they reach. A segment never changes: new records are
//! written to new segments, small segments are merged, and a segment whose observations were
//! corrected, retracted or erased is rewritten from the log. Then the watermark is replaced
//! atomically, and only after that the files that it no longer lists are removed. A crash at any
//! point therefore leaves a complete set, and unlisted files that the next start removes.
//!
//! `sealed_decisions/model=NAME/` contains the decisions of every model in the same way.
//!
//! The node never reads observations back from here: the log is authoritative, and the folder may
//! be deleted. The guarantees for readers are in `docs/reference/sealed-segments.md`.

mod decisions;
mod files;
mod segments;
mod stream;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use celeris_model::{ModelId, ModelName, StreamName};
use celeris_storage::{Storage, StorageError};
use parking_lot::Mutex;

use self::decisions::DecisionSealer;
pub(crate) use self::files::model_folder_name;
pub use self::files::{folder_name, stream_of_folder};
use self::stream::StreamSealer;
use crate::error::ExportError;

/// Nice value of the sealer, so that requests have priority.
const NICENESS: i32 = 15;

/// Longest interval between two reads of the log's watermark, which is in memory.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Shortest such interval.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(1);

/// Returns the names, by id, of all models and selections that may have recorded decisions.
pub type ModelNames = fn(&Storage) -> Result<BTreeMap<ModelId, ModelName>, StorageError>;

/// Settings of the sealer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealingOptions {
    /// Maximum time that records wait to be sealed; an amended segment is rewritten within two
    /// intervals.
    pub interval: Duration,
    /// Number of waiting records that are sealed without waiting for the interval.
    pub records: u64,
}

/// Sealing status of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SealingStatus {
    /// Number of files.
    pub segments: u64,
    /// Observations in the files.
    pub rows: u64,
    /// Size of the files.
    pub bytes: u64,
    /// Records of the log, of every kind, that are not sealed yet.
    pub lag_records: u64,
    /// Upper bound of the time that the oldest of these has waited.
    pub lag_seconds: f64,
    /// Segments rewritten since the start, because the log was amended or the file was damaged.
    pub rewrites: u64,
    /// Merges of small segments since the start.
    pub merges: u64,
    /// Failed attempts since the start.
    pub failures: u64,
}

/// Progress of one stream after an attempt.
#[derive(Debug, Clone, Copy)]
struct Progress {
    status: SealingStatus,
    sealed_records: u64,
    /// Everything that was durable at this time is sealed.
    caught_up: Instant,
}

struct Shared {
    storage: Storage,
    options: SealingOptions,
    names: ModelNames,
    stopping: AtomicBool,
    streams: Mutex<BTreeMap<StreamName, Progress>>,
}

impl Shared {
    fn status(&self, stream: &StreamName, progress: Progress) -> SealingStatus {
        let records = self.storage.log().watermark(stream).records();
        let lag_records = records.saturating_sub(progress.sealed_records);
        let lag_seconds = if lag_records > 0 { progress.caught_up.elapsed().as_secs_f64() } else { 0.0 };
        SealingStatus { lag_records, lag_seconds, ..progress.status }
    }
}

/// Handle of the sealer's thread, which ends with [`Sealer::stop`] or when the handle is dropped.
pub struct Sealer {
    shared: Arc<Shared>,
    wake: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Sealer {
    /// Starts sealing the streams of `storage`, and the decisions of the models with `names`, into
    /// its data directory.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(storage: Storage, options: SealingOptions, names: ModelNames) -> io::Result<Arc<Self>> {
        let shared = Arc::new(Shared {
            storage,
            options,
            names,
            stopping: AtomicBool::new(false),
            streams: Mutex::new(BTreeMap::new()),
        });
        let (wake, stopped) = mpsc::channel();
        let worker = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("celeris-seal".to_owned())
            .spawn(move || run(&worker, options, &stopped))?;
        Ok(Arc::new(Self { shared, wake: Mutex::new(Some(wake)), thread: Mutex::new(Some(thread)) }))
    }

    /// Maximum time for which an observation that is corrected, retracted or erased may remain in a
    /// segment while the node runs and its disk has room: one interval until the next attempt, and
    /// one for the attempt itself.
    #[must_use]
    pub fn amended_within(&self) -> Duration {
        self.shared.options.interval.saturating_mul(2)
    }

    /// The status of every stream, by name.
    #[must_use]
    pub fn status(&self) -> Vec<(StreamName, SealingStatus)> {
        let streams = self.shared.streams.lock().clone();
        streams.into_iter().map(|(stream, progress)| (stream.clone(), self.shared.status(&stream, progress))).collect()
    }

    /// Stops the thread. An unfinished segment is discarded; its records are sealed after the next
    /// start.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        drop(self.wake.lock().take());
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the sealer panicked");
        }
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Writes all observations of a stream below `root` in the sealed format, and returns their number.
///
/// # Errors
/// Same as sealing: `Io`, `Format` or `Storage`, or `NoRoomToSeal`.
pub(crate) fn seal_into(
    storage: &Storage,
    stream: &StreamName,
    root: &Path,
    stopping: &AtomicBool,
) -> Result<u64, ExportError> {
    let mut sealer = StreamSealer::new(storage.clone(), stream.clone(), root, Instant::now());
    sealer.seal(stopping)?;
    Ok(sealer.progress().status.rows)
}

fn observations_dir(storage: &Storage) -> PathBuf {
    storage.dir().join("observations")
}

fn sealed_decisions_dir(storage: &Storage) -> PathBuf {
    storage.dir().join("sealed_decisions")
}

/// Seals the decisions of every model that is due.
fn look_at_decisions(
    shared: &Shared,
    options: SealingOptions,
    root: &Path,
    sealers: &mut BTreeMap<ModelId, DecisionSealer>,
) -> Result<(), ExportError> {
    let names = (shared.names)(&shared.storage)?;
    let present = shared.storage.decisions().models()?;
    let present: BTreeMap<ModelId, &ModelName> =
        present.into_iter().filter_map(|id| names.get(&id).map(|name| (id, name))).collect();
    sealers.retain(|id, _| present.contains_key(id));
    let is_unknown = |model: &ModelName| !present.values().any(|known| *known == model);
    files::remove_unknown(root, |folder| files::model_of_folder(folder).as_ref().is_some_and(is_unknown))?;
    for (id, name) in present {
        if shared.stopping.load(Ordering::Acquire) {
            return Ok(());
        }
        let made = || DecisionSealer::new(shared.storage.clone(), (name, id), root);
        let sealer = sealers.entry(id).or_insert_with(made);
        if sealer.is_due(options.interval) {
            sealer.seal(&shared.stopping)?;
        }
    }
    Ok(())
}

fn run(shared: &Shared, options: SealingOptions, stopped: &mpsc::Receiver<()>) {
    // On Linux this sets the priority of the calling thread only.
    if let Err(problem) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::warn!(%problem, "cannot lower the priority of the sealer");
    }
    let root = observations_dir(&shared.storage);
    let decisions_root = sealed_decisions_dir(&shared.storage);
    let mut streams: BTreeMap<StreamName, StreamSealer> = BTreeMap::new();
    let mut decisions: BTreeMap<ModelId, DecisionSealer> = BTreeMap::new();
    let started = Instant::now();
    let known = shared.storage.log().streams();
    let is_unknown = |folder: &str| stream_of_folder(folder).is_some_and(|stream| !known.contains(&stream));
    if let Err(error) = files::remove_unknown(&root, is_unknown) {
        tracing::warn!(%error, "cannot remove the sealed segments of deleted streams");
    }
    let pause = options.interval.clamp(LOOK_EVERY_MIN, LOOK_EVERY);
    loop {
        look(shared, options, &root, started, &mut streams);
        if let Err(error) = look_at_decisions(shared, options, &decisions_root, &mut decisions) {
            tracing::warn!(%error, "sealing decisions failed; retrying after the sealing interval");
        }
        match stopped.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Seals every stream that is due.
fn look(
    shared: &Shared,
    options: SealingOptions,
    root: &Path,
    started: Instant,
    streams: &mut BTreeMap<StreamName, StreamSealer>,
) {
    let present = shared.storage.log().streams();
    streams.retain(|stream, sealer| {
        let keep = present.contains(stream);
        if !keep {
            sealer.remove_all();
            shared.streams.lock().remove(stream);
        }
        keep
    });
    for stream in present {
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        let sealer = streams
            .entry(stream.clone())
            .or_insert_with(|| StreamSealer::new(shared.storage.clone(), stream.clone(), root, started));
        if sealer.is_due(options)
            && let Err(error) = sealer.seal(&shared.stopping)
        {
            tracing::warn!(%stream, %error, "sealing failed; retrying after the sealing interval");
        }
        shared.streams.lock().insert(stream, sealer.progress());
    }
}
