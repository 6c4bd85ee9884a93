//! Rankings, written in the background.
//!
//! They have a database of their own: they are not synced, and a write-ahead log in which some writes are synced and
//! others are not could come back from a loss of power with holes that no check can tell from damage. For the same
//! reason a damaged end of theirs does not keep the store from opening.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use celeris_model::{Decision, DecisionId, ModelName, UserId};
use parking_lot::Mutex;

use crate::database::{Access, Column, Database, Durability, KeyRange, Tuning};
use crate::envelope::{self, corrupt, unseal};
use crate::error::StorageError;
use crate::keys::{self, KeyReader};
use crate::store::Storage;

/// Decisions that share one write at most.
const BATCH_DECISIONS_MAX: usize = 256;

const COLUMNS: &[Column] = &[Column::Decisions, Column::DecidedFor];

enum Message {
    Write(Box<Decision>),
    /// Answered once everything before it is readable.
    Flush(Sender<()>),
}

/// The decisions and their writer thread.
pub(crate) struct Decisions {
    database: Arc<Database>,
    dropped: Arc<AtomicU64>,
    /// `None` once stopped.
    queue: Mutex<Option<SyncSender<Message>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Decisions {
    pub(crate) fn start(path: &Path, tuning: &Tuning, queue_max: usize) -> Result<Self, StorageError> {
        let database = Arc::new(Database::open(path, COLUMNS, tuning).map_err(expendable)?);
        let dropped = Arc::new(AtomicU64::new(0));
        let (queue, messages) = sync_channel(queue_max);
        let writer = {
            let (database, dropped) = (Arc::clone(&database), Arc::clone(&dropped));
            std::thread::Builder::new()
                .name("celeris-decide".to_owned())
                .spawn(move || run(&database, &messages, &dropped))
                .map_err(StorageError::io("start the thread of", "the decisions"))?
        };
        Ok(Self { database, dropped, queue: Mutex::new(Some(queue)), writer: Mutex::new(Some(writer)) })
    }

    fn queue(&self) -> Option<SyncSender<Message>> {
        self.queue.lock().clone()
    }

    fn flush(&self) {
        let Some(queue) = self.queue() else { return };
        let (done, wait) = channel();
        if queue.send(Message::Flush(done)).is_ok() {
            // An error means that the writer is gone, and then nothing is left to wait for.
            let _ = wait.recv();
        }
    }

    pub(crate) fn delete_model(&self, model: &ModelName) -> Result<(), StorageError> {
        self.flush();
        let mut batch = self.database.batch();
        batch.delete_prefix(Column::Decisions, &keys::of_model(model));
        batch.delete_prefix(Column::DecidedFor, &keys::of_model(model));
        batch.commit(Durability::Synced)
    }

    /// Deletes one user's decisions, those that wait too.
    fn erase(&self, models: &[ModelName], user: &UserId) -> Result<u64, StorageError> {
        self.flush();
        let mut erased = 0;
        let mut touched = Vec::new();
        let mut batch = self.database.batch();
        for model in models {
            let range = KeyRange::prefix(keys::all_decided_for(model, user));
            let prefix = range.from.len();
            let before = erased;
            self.database.scan(Column::DecidedFor, range, Access::Lookup, |key, _| {
                let id = KeyReader::new(&key[prefix..]).text().and_then(|id| DecisionId::new(id).ok());
                let id = id.ok_or_else(|| corrupt(Column::DecidedFor, key, "its key names no decision"))?;
                batch.delete(Column::Decisions, &keys::decision(model, &id));
                batch.delete(Column::DecidedFor, key);
                erased += 1;
                Ok(ControlFlow::Continue(()))
            })?;
            if erased > before {
                touched.push(model);
            }
        }
        if erased == 0 {
            return Ok(0);
        }
        batch.commit(Durability::Synced)?;
        self.database.flush()?;
        for model in touched {
            let range = KeyRange::prefix(keys::of_model(model));
            self.database.compact(Column::DecidedFor, &range)?;
            self.database.compact(Column::Decisions, &range)?;
        }
        // One more change, of nothing, so that the manifest is written anew without the files that went.
        let mut nothing = self.database.batch();
        nothing.delete(Column::DecidedFor, &[]);
        nothing.commit(Durability::Synced)?;
        self.database.flush()?;
        Ok(erased)
    }

    /// Writes what is queued, ends the writer, and moves everything into sorted files. A second call does nothing.
    pub(crate) fn stop(&self) -> Result<(), StorageError> {
        drop(self.queue.lock().take());
        let Some(writer) = self.writer.lock().take() else { return Ok(()) };
        if writer.join().is_err() {
            tracing::error!("the writer of decisions panicked");
        }
        self.database.flush()
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

/// Writes until every sender is gone.
fn run(database: &Database, messages: &Receiver<Message>, dropped: &AtomicU64) {
    while let Ok(first) = messages.recv() {
        let mut batch = database.batch();
        let mut decisions = 0;
        let mut waiting = Vec::new();
        for message in std::iter::once(first).chain(messages.try_iter().take(BATCH_DECISIONS_MAX)) {
            match message {
                Message::Write(decision) => {
                    let (key, value) = encode(&decision);
                    batch.put(Column::Decisions, &key, &value);
                    batch.put(
                        Column::DecidedFor,
                        &keys::decided_for(&decision.model, &decision.user, &decision.id),
                        &[],
                    );
                    decisions += 1;
                }
                Message::Flush(done) => waiting.push(done),
            }
        }
        if let Err(error) = batch.commit(Durability::Buffered) {
            dropped.fetch_add(decisions, Ordering::Relaxed);
            tracing::error!(%error, decisions, "decisions were lost");
        }
        for done in waiting {
            // Whoever waited may have given up.
            let _ = done.send(());
        }
    }
}

fn encode(decision: &Decision) -> (Vec<u8>, Vec<u8>) {
    let key = keys::decision(&decision.model, &decision.id);
    let mut value =
        postcard::to_extend(decision, envelope::begin()).expect("a vector takes any bytes, and every length is known");
    envelope::seal(&key, &mut value);
    (key, value)
}

fn decode(key: &[u8], value: &[u8]) -> Result<Decision, StorageError> {
    let body = unseal(Column::Decisions, key, value)?;
    postcard::from_bytes(body).map_err(|error| corrupt(Column::Decisions, key, &error.to_string()))
}

impl Storage {
    /// Queues a decision for the background writer and says whether there was room. It survives the end of the process
    /// once written, but not a loss of power. Never blocks.
    #[must_use]
    pub fn record_decision(&self, decision: Decision) -> bool {
        let decisions = self.decisions();
        let accepted =
            decisions.queue().is_some_and(|queue| queue.try_send(Message::Write(Box::new(decision))).is_ok());
        if !accepted {
            decisions.dropped.fetch_add(1, Ordering::Relaxed);
        }
        accepted
    }

    /// How many decisions found no room or could not be written since the store was opened.
    #[must_use]
    pub fn decisions_dropped(&self) -> u64 {
        self.decisions().dropped.load(Ordering::Relaxed)
    }

    /// Waits until every decision accepted so far can be read. Blocks the thread.
    pub fn flush_decisions(&self) {
        self.decisions().flush();
    }

    /// Deletes a user's decisions under these models and says how many there were. Returns once that is durable and the
    /// bytes have left the sorted files; blocks the thread for as long as it takes to rewrite the models' decisions.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`; decisions may be left then, and it can be tried again.
    pub fn erase_decisions(&self, models: &[ModelName], user: &UserId) -> Result<u64, StorageError> {
        self.decisions().erase(models, user)
    }

    /// Visits the decisions of a model that have been written, in the order of their ids, until `visit` breaks off.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn scan_decisions<B>(
        &self,
        model: &ModelName,
        mut visit: impl FnMut(Decision) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, StorageError> {
        self.flush_decisions();
        let mut outcome = ControlFlow::Continue(());
        let range = KeyRange::prefix(keys::of_model(model));
        self.decisions().database.scan(Column::Decisions, range, Access::Sweep, |key, value| {
            outcome = visit(decode(key, value)?);
            Ok(if outcome.is_break() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(outcome)
    }

    /// One decision.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn decision(&self, model: &ModelName, id: &DecisionId) -> Result<Option<Decision>, StorageError> {
        let key = keys::decision(model, id);
        let Some(value) = self.decisions().database.get(Column::Decisions, &key)? else { return Ok(None) };
        Ok(Some(decode(&key, &value)?))
    }
}
