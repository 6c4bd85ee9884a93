//! Decision records, written in the background.
//!
//! They are in a separate database: they are not synced, and a write-ahead log that mixes synced
//! and unsynced writes could have holes after a power failure that cannot be distinguished from
//! damage. For the same reason a damaged end of this database does not prevent opening the store.
//!
//! The caller enqueues a decision without waiting: it is rejected, and counted, if the queue is
//! full or the byte rate is exceeded. Until it is written it is read from memory.

mod counters;
mod erasing;
mod events;
mod reading;
mod scrubbing;
mod stored;
mod token_bucket;
mod writer;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use celeris_model::{Decision, DecisionId, ModelId, RecordedCandidates, Timestamp};
use parking_lot::Mutex;

use self::counters::Counters;
pub use self::counters::DecisionCounters;
pub use self::erasing::ErasingDecisions;
pub use self::events::AddedEvent;
pub use self::reading::DecisionRange;
use self::token_bucket::TokenBucket;
use crate::database::{Column, Database, Durability, Tuning};
use crate::erased_users::ErasedUsers;
use crate::error::StorageError;
use crate::layout::keys;
use crate::options::StorageOptions;

const COLUMNS: &[Column] = &[Column::Decisions, Column::DecidedFor, Column::DecisionsErased, Column::RankingEvents];

/// The candidates of a decision, computed by the writer thread, so that requests do not wait for
/// thousands of ids.
pub struct LateCandidates {
    /// Estimated size; corrected once the candidates are known.
    pub bytes: usize,
    /// Computes the candidates.
    pub make: Box<dyn FnOnce() -> RecordedCandidates + Send>,
}

/// The propensity of one slot, computed after the decision was enqueued.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatePropensity {
    pub value: f32,
    /// Standard error of the propensity; `None` if it is exact.
    pub std_error: Option<f32>,
}

enum Message {
    Write(Arc<Decision>, Option<LateCandidates>),
    /// Propensities by slot; ignored if the decision has been deleted.
    Complete(ModelId, DecisionId, Vec<LatePropensity>),
    /// Acknowledged once all earlier messages are readable.
    Flush(Sender<()>),
}

/// Accepted decisions that are not written yet: at most those of the queue and of one write.
type Unwritten = Mutex<HashMap<DecisionId, Arc<Decision>>>;

/// State shared by callers and the writer thread.
struct Shared {
    database: Database,
    unwritten: Unwritten,
    counters: Counters,
    token_bucket: TokenBucket,
    /// Held while existing entries determine a write, so that no erased decision is written again.
    changing: Mutex<()>,
    /// Held from the deletion of decisions of users until their bytes are gone.
    erasing: Mutex<()>,
    erased_users: ErasedUsers<ModelId>,
}

/// The decisions and their writer thread.
pub struct Decisions {
    shared: Arc<Shared>,
    retention: Duration,
    /// `None` after `stop`.
    queue: Mutex<Option<SyncSender<Message>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Decisions {
    /// Writes a copy of the database, as of one moment, into a folder that does not exist yet.
    pub(crate) fn copy_to(&self, folder: &Path) -> Result<(), StorageError> {
        self.shared.database.copy_to(folder).map_err(expendable)
    }

    pub(crate) fn start(path: &Path, tuning: &Tuning, options: &StorageOptions) -> Result<Self, StorageError> {
        let database = Database::open(path, COLUMNS, tuning).map_err(expendable)?;
        let shared = Arc::new(Shared {
            database,
            unwritten: Mutex::default(),
            counters: Counters::default(),
            token_bucket: TokenBucket::new(options.decision_bytes_per_second, Instant::now()),
            changing: Mutex::default(),
            erasing: Mutex::default(),
            erased_users: ErasedUsers::default(),
        });
        let (queue, messages) = sync_channel(options.decision_queue_max);
        let writer = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("celeris-decide".to_owned())
                .spawn(move || writer::run(&shared, &messages))
                .map_err(StorageError::io("start the thread of", "the decisions"))?
        };
        Ok(Self {
            shared,
            retention: options.decision_retention,
            queue: Mutex::new(Some(queue)),
            writer: Mutex::new(Some(writer)),
        })
    }

    fn queue(&self) -> Option<SyncSender<Message>> {
        self.queue.lock().clone()
    }

    /// Enqueues a decision for the background writer and returns whether it was accepted: there was
    /// room in the queue and in the byte rate. It can be read at once, and once written survives
    /// the end of the process, but not a power failure. Candidates in `late` are computed by the
    /// writer; until then only their number is known. Never blocks.
    #[must_use]
    pub fn record(&self, decision: Decision, late: Option<LateCandidates>) -> bool {
        let counters = &self.shared.counters;
        let bytes = stored::bytes_at_most(&decision) + late.as_ref().map_or(0, |late| late.bytes);
        if !self.shared.token_bucket.take(bytes, Instant::now()) {
            counters.refuse_over_rate();
            return false;
        }
        let decision = Arc::new(decision);
        let id = decision.id.clone();
        // In this order, so that the writer finds the entry that it removes.
        self.shared.unwritten.lock().insert(id.clone(), Arc::clone(&decision));
        let accepted = self.queue().is_some_and(|queue| queue.try_send(Message::Write(decision, late)).is_ok());
        if accepted {
            counters.accept();
        } else {
            self.shared.unwritten.lock().remove(&id);
            counters.refuse_full();
        }
        accepted
    }

    /// Sets the propensities of all slots of a decision, and returns whether there was room in the
    /// queue. Ignored if the decision has been deleted meanwhile. Never blocks.
    pub fn complete(&self, model: ModelId, id: &DecisionId, slots: Vec<LatePropensity>) -> bool {
        let message = Message::Complete(model, id.clone(), slots);
        self.queue().is_some_and(|queue| queue.try_send(message).is_ok())
    }

    /// Counters of decisions since the store was opened.
    #[must_use]
    pub fn counters(&self) -> DecisionCounters {
        self.shared.counters.read()
    }

    /// The retention time of decisions.
    #[must_use]
    pub fn retention(&self) -> Duration {
        self.retention
    }

    /// Whether a decision is older than the retention time, whether it has been deleted yet or not.
    #[must_use]
    pub fn is_expired(&self, id: &DecisionId, now: Timestamp) -> bool {
        let kept = i64::try_from(self.retention.as_millis()).unwrap_or(i64::MAX);
        id.made_at().is_some_and(|made| made.0.saturating_add(kept) < now.0)
    }

    /// Waits until all decisions accepted so far are on disk. Blocks the thread.
    pub fn flush(&self) {
        let Some(queue) = self.queue() else { return };
        let (done, wait) = channel();
        if queue.send(Message::Flush(done)).is_ok() {
            // An error means that the writer has ended, so there is nothing to wait for.
            let _ = wait.recv();
        }
    }

    pub(crate) fn delete_model(&self, model: ModelId) -> Result<(), StorageError> {
        self.flush();
        let _changing = self.shared.changing.lock();
        let mut batch = self.shared.database.batch();
        for column in COLUMNS {
            batch.delete_prefix(*column, &keys::of_model(model));
        }
        batch.commit(Durability::Synced)
    }

    /// Writes queued decisions, ends the writer, and flushes. Idempotent.
    pub(crate) fn stop(&self) -> Result<(), StorageError> {
        drop(self.queue.lock().take());
        let Some(writer) = self.writer.lock().take() else { return Ok(()) };
        if writer.join().is_err() {
            tracing::error!("the writer of decisions panicked");
        }
        self.shared.database.flush()
    }
}

/// Also when the store fails to open: no thread may use a database while the process ends.
impl Drop for Decisions {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!(%error, "decisions were not written to sorted files; the next start reads them from the log");
        }
    }
}

/// Extends the message for damage to decisions by a remedy that does not exist for the log.
fn expendable(error: StorageError) -> StorageError {
    match error {
        StorageError::CorruptLog { file, offset, reason } => {
            let reason = format!("{reason} (users' states do not need it: remove `decisions/` to go on without)");
            StorageError::CorruptLog { file, offset, reason }
        }
        other => other,
    }
}
