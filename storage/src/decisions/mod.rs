//! Rankings, written in the background.
//!
//! They have a database of their own: they are not synced, and a write-ahead log in which some writes are synced and
//! others are not could come back from a loss of power with holes that no check can tell from damage. For the same
//! reason a damaged end of theirs does not keep the store from opening.
//!
//! Whoever ranks hands a decision over and goes on: it is refused, and counted, where the queue is full or the bytes of
//! this second are spent. Until it is written it is found in memory.

mod counters;
mod erasing;
mod reading;
mod stored;
mod token_bucket;
mod writer;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use celeris_model::{Decision, DecisionId, ModelId, RecordedCandidates, UserId};
use parking_lot::Mutex;

use self::counters::Counters;
pub use self::counters::DecisionCounters;
pub use self::erasing::ErasingDecisions;
pub use self::reading::DecisionRange;
use self::token_bucket::TokenBucket;
use crate::database::{Column, Database, Durability, Tuning};
use crate::erased_users::ErasedUsers;
use crate::error::StorageError;
use crate::keys;
use crate::options::StorageOptions;
use crate::store::Storage;

const COLUMNS: &[Column] = &[Column::Decisions, Column::DecidedFor, Column::DecisionsErased];

/// The candidates of a decision, worked out by the writer thread: thousands of ids are not touched while somebody waits.
pub struct LateCandidates {
    /// About the bytes that they will take; what they take is settled once it is known.
    pub bytes: usize,
    /// Works them out.
    pub make: Box<dyn FnOnce() -> RecordedCandidates + Send>,
}

/// The propensity of one slot, computed after the decision was written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatePropensity {
    /// The propensity.
    pub value: f32,
    /// Its standard error; `None` where it is exact.
    pub std_error: Option<f32>,
}

enum Message {
    Write(Arc<Decision>, Option<LateCandidates>),
    /// Propensities by slot; nothing happens where the decision is gone.
    Complete(ModelId, DecisionId, Vec<LatePropensity>),
    /// Answered once everything before it is readable.
    Flush(Sender<()>),
}

/// Decisions that are accepted and not readable yet: no more than the queue and one write take.
type Unwritten = Mutex<HashMap<DecisionId, Arc<Decision>>>;

/// What the callers and the writer thread share.
struct Shared {
    database: Database,
    unwritten: Unwritten,
    counters: Counters,
    token_bucket: TokenBucket,
    /// Held while what is there decides what is written, so that no erased decision comes back.
    changing: Mutex<()>,
    erased_users: ErasedUsers<ModelId>,
}

/// The decisions and their writer thread.
pub(crate) struct Decisions {
    shared: Arc<Shared>,
    retention: Duration,
    /// `None` once stopped.
    queue: Mutex<Option<SyncSender<Message>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Decisions {
    pub(crate) fn start(path: &Path, tuning: &Tuning, options: &StorageOptions) -> Result<Self, StorageError> {
        let database = Database::open(path, COLUMNS, tuning).map_err(expendable)?;
        let shared = Arc::new(Shared {
            database,
            unwritten: Mutex::default(),
            counters: Counters::default(),
            token_bucket: TokenBucket::new(options.decision_bytes_per_second, Instant::now()),
            changing: Mutex::default(),
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

    fn record(&self, decision: Decision, late: Option<LateCandidates>) -> bool {
        let counters = &self.shared.counters;
        let bytes = stored::bytes_at_most(&decision) + late.as_ref().map_or(0, |late| late.bytes);
        if !self.shared.token_bucket.take(bytes, Instant::now()) {
            counters.refuse_over_rate();
            return false;
        }
        let decision = Arc::new(decision);
        let id = decision.id.clone();
        // In this order, so that the writer finds what it takes out again.
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

    fn flush(&self) {
        let Some(queue) = self.queue() else { return };
        let (done, wait) = channel();
        if queue.send(Message::Flush(done)).is_ok() {
            // An error means that the writer is gone, and then nothing is left to wait for.
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

    /// Writes what is queued, ends the writer, and moves everything into sorted files. A second call does nothing.
    pub(crate) fn stop(&self) -> Result<(), StorageError> {
        drop(self.queue.lock().take());
        let Some(writer) = self.writer.lock().take() else { return Ok(()) };
        if writer.join().is_err() {
            tracing::error!("the writer of decisions panicked");
        }
        self.shared.database.flush()
    }
}

/// Damage to decisions has a way out that damage to the log has not.
fn expendable(error: StorageError) -> StorageError {
    match error {
        StorageError::CorruptLog { file, offset, reason } => {
            let reason = format!("{reason} (users' states do not need it: remove `decisions/` to go on without)");
            StorageError::CorruptLog { file, offset, reason }
        }
        other => other,
    }
}

impl Storage {
    /// Queues a decision for the background writer and says whether there was room: in the queue, and in the bytes that
    /// decisions may take this second. It can be read at once, and survives the end of the process once written, but
    /// not a loss of power. Never blocks.
    #[must_use]
    pub fn record_decision(&self, decision: Decision) -> bool {
        self.decisions().record(decision, None)
    }

    /// [`Storage::record_decision`] with the candidates worked out by the writer; until then there is their number.
    #[must_use]
    pub fn record_decision_with(&self, decision: Decision, candidates: LateCandidates) -> bool {
        self.decisions().record(decision, Some(candidates))
    }

    /// Adds the propensities of all slots of a decision, and says whether there was room in the queue. Nothing happens to
    /// a decision that is gone meanwhile. Never blocks.
    pub fn complete_decision(&self, model: ModelId, id: &DecisionId, slots: Vec<LatePropensity>) -> bool {
        let message = Message::Complete(model, id.clone(), slots);
        self.decisions().queue().is_some_and(|queue| queue.try_send(message).is_ok())
    }

    /// What became of the decisions since the store was opened.
    #[must_use]
    pub fn decision_counters(&self) -> DecisionCounters {
        self.decisions().shared.counters.read()
    }

    /// How many decisions found no room or could not be written since the store was opened.
    #[must_use]
    pub fn decisions_dropped(&self) -> u64 {
        self.decision_counters().dropped()
    }

    /// How long decisions are kept.
    #[must_use]
    pub fn decision_retention(&self) -> Duration {
        self.decisions().retention
    }

    /// Waits until every decision accepted so far can be read from the disk. Blocks the thread.
    pub fn flush_decisions(&self) {
        self.decisions().flush();
    }

    /// Deletes a user's decisions under these models. Until the returned value is gone none of the user is written, and
    /// once it is finished none that was made before the erasure: a ranking may be under way. Returns once that is durable
    /// and the bytes have left the sorted files; blocks the thread for as long as it takes to rewrite the models' decisions.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`; decisions may be left ack, and it can be tried again.
    pub fn erase_decisions(&self, models: &[ModelId], user: &UserId) -> Result<ErasingDecisions, StorageError> {
        self.decisions().erase(models, user)
    }
}
