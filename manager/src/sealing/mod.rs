//! The background sealer: a copy of every stream's log as Parquet, for those who analyse it.
//!
//! `observations/stream=NAME/` in the data directory holds segments of *effective* observations, and `_watermark.json`
//! says how far they go. A segment never changes: new records make new segments, small segments are merged, and a
//! segment whose observations have been corrected, retracted or erased is written anew from the log. Only then is the
//! watermark replaced, in one atomic step, and only then are the files it no longer lists removed; so a crash at any
//! moment leaves a whole set, and files that nobody lists, which the next start removes.
//!
//! `sealed_decisions/model=NAME/` likewise holds the decisions of every model.
//!
//! Nothing is read back from here: the log stays the truth, and the folder may be deleted. `docs/sealed-segments.md`
//! says what readers can rely on.

mod decisions;
mod files;
mod segments;
mod stream;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use celeris_model::{ModelId, ModelName, StreamName};
use celeris_storage::Storage;
use parking_lot::Mutex;

use self::decisions::DecisionSealer;
pub use self::files::{folder_name, stream_of_folder};
use self::stream::StreamSealer;
use crate::deleting::deciding;
use crate::error::ManagerError;

/// How much nicer than the rest of the node the sealer is: requests go first.
const NICENESS: i32 = 15;

/// How often the log is asked how far it is, at most; it answers from memory.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often the log is asked at the shortest of intervals.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(1);

/// When to seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealingOptions {
    /// Records wait for sealing no longer than this; an amended segment is written anew within two of them.
    pub interval: Duration,
    /// So many waiting records are sealed at once.
    pub records: u64,
}

/// How far one stream is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SealingStatus {
    /// Files.
    pub segments: u64,
    /// Observations in them.
    pub rows: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Records of the log, of every kind, that are not sealed yet.
    pub lag_records: u64,
    /// How long the oldest of these can have waited, at most.
    pub lag_seconds: f64,
    /// Segments written anew since the start, because the log had changed or the file had.
    pub rewrites: u64,
    /// Merges of small segments since the start.
    pub merges: u64,
    /// Attempts that failed since the start.
    pub failures: u64,
}

/// What the sealer says of one stream after each attempt.
#[derive(Debug, Clone, Copy)]
struct Progress {
    status: SealingStatus,
    sealed_records: u64,
    /// Everything durable at this moment is sealed.
    caught_up: Instant,
}

struct Shared {
    storage: Storage,
    options: SealingOptions,
    stopping: AtomicBool,
    streams: Mutex<BTreeMap<StreamName, Progress>>,
}

impl Shared {
    fn status(&self, stream: &StreamName, progress: Progress) -> SealingStatus {
        let records = self.storage.watermark(stream).records();
        let lag_records = records.saturating_sub(progress.sealed_records);
        let lag_seconds = if lag_records > 0 { progress.caught_up.elapsed().as_secs_f64() } else { 0.0 };
        SealingStatus { lag_records, lag_seconds, ..progress.status }
    }
}

/// The sealer's thread. It ends with [`Sealer::stop`], or when this is dropped.
pub struct Sealer {
    shared: Arc<Shared>,
    wake: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Sealer {
    /// Starts sealing the streams of `storage` into its data directory.
    ///
    /// # Errors
    /// `Io` where no thread can be started.
    pub fn start(storage: Storage, options: SealingOptions) -> Result<Arc<Self>, ManagerError> {
        let shared = Arc::new(Shared {
            storage,
            options,
            stopping: AtomicBool::new(false),
            streams: Mutex::new(BTreeMap::new()),
        });
        let (wake, stopped) = mpsc::channel();
        let worker = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("celeris-seal".to_owned())
            .spawn(move || run(&worker, options, &stopped))
            .map_err(ManagerError::io(observations_dir(&shared.storage)))?;
        Ok(Arc::new(Self { shared, wake: Mutex::new(Some(wake)), thread: Mutex::new(Some(thread)) }))
    }

    /// How long an observation that is corrected, retracted or erased may still be in a segment, while the node runs and
    /// its disk has room: one interval until the next attempt, and one for the attempt itself.
    #[must_use]
    pub fn amended_within(&self) -> Duration {
        self.shared.options.interval.saturating_mul(2)
    }

    /// How far every stream is sealed, by name.
    #[must_use]
    pub fn status(&self) -> Vec<(StreamName, SealingStatus)> {
        let streams = self.shared.streams.lock().clone();
        streams.into_iter().map(|(stream, progress)| (stream.clone(), self.shared.status(&stream, progress))).collect()
    }

    /// Ends the thread. A segment that is being written is given up; its records are sealed after the next start.
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

/// Writes all of a stream's observations below `root`, as they are sealed, and returns how many there are.
///
/// # Errors
/// As sealing: `Io`, `Retrain` or `Storage`, or `NoRoomToSeal`.
pub(crate) fn seal_into(
    storage: &Storage,
    stream: &StreamName,
    root: &Path,
    stopping: &AtomicBool,
) -> Result<u64, ManagerError> {
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
) -> Result<(), ManagerError> {
    let names = deciding(&shared.storage)?;
    let present = shared.storage.models_with_decisions()?;
    let present: BTreeMap<ModelId, &ModelName> =
        present.into_iter().filter_map(|id| names.get(&id).map(|name| (id, name))).collect();
    sealers.retain(|id, _| present.contains_key(id));
    files::remove_unknown_models(root, &present)?;
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
    // On Linux this is the priority of the calling thread alone.
    if let Err(problem) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::warn!(%problem, "cannot lower the priority of the sealer");
    }
    let root = observations_dir(&shared.storage);
    let decisions_root = sealed_decisions_dir(&shared.storage);
    let mut streams: BTreeMap<StreamName, StreamSealer> = BTreeMap::new();
    let mut decisions: BTreeMap<ModelId, DecisionSealer> = BTreeMap::new();
    let started = Instant::now();
    if let Err(error) = files::remove_unknown_streams(&root, &shared.storage.streams()) {
        tracing::warn!(%error, "cannot remove the sealed segments of deleted streams");
    }
    let pause = options.interval.clamp(LOOK_EVERY_MIN, LOOK_EVERY);
    loop {
        look(shared, options, &root, started, &mut streams);
        if let Err(error) = look_at_decisions(shared, options, &decisions_root, &mut decisions) {
            tracing::warn!(%error, "sealing decisions failed; it is tried again after the sealing interval");
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
    let present = shared.storage.streams();
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
            tracing::warn!(%stream, %error, "sealing failed; it is tried again after the sealing interval");
        }
        shared.streams.lock().insert(stream, sealer.progress());
    }
}
