//! The writer thread: writes queued decisions to the database in batches.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use celeris_model::{Decision, DecisionId};

use super::{LateCandidates, LatePropensity, Message, Shared, stored};
use crate::database::{Batch, Column, Durability};
use crate::error::StorageError;
use crate::layout::keys;

/// Maximum number of decisions per write.
const BATCH_DECISIONS_MAX: usize = 1024;

/// Pause after a write in which decisions accumulate. Senders need not wake the writer during it.
const GATHER: Duration = Duration::from_millis(1);

/// Writes until all senders are dropped.
pub(super) fn run(shared: &Shared, messages: &Receiver<Message>) {
    if let Err(error) = shared.scrub_unfinished() {
        tracing::warn!(%error, "bytes of erased decisions remain until the next erasure or start");
    }
    while let Ok(first) = messages.recv() {
        let changing = shared.changing.lock();
        let mut batch = DecisionBatch::new(shared);
        for message in std::iter::once(first).chain(messages.try_iter().take(BATCH_DECISIONS_MAX)) {
            match message {
                Message::Write(decision, late) => batch.write(decision, late),
                Message::Complete(model, id, slots) => {
                    if batch.new.contains(&id) {
                        std::mem::replace(&mut batch, DecisionBatch::new(shared)).commit();
                    }
                    batch.complete(&keys::decision(model, &id), &slots);
                }
                Message::Flush(done) => batch.waiting.push(done),
            }
        }
        batch.commit();
        drop(changing);
        std::thread::sleep(GATHER);
    }
}

/// Decisions that share one write.
struct DecisionBatch<'a> {
    shared: &'a Shared,
    writes: Batch<'a>,
    /// Decisions that are written for the first time.
    new: HashSet<DecisionId>,
    waiting: Vec<Sender<()>>,
}

impl<'a> DecisionBatch<'a> {
    fn new(shared: &'a Shared) -> Self {
        Self { shared, writes: shared.database.batch(), new: HashSet::new(), waiting: Vec::new() }
    }

    fn write(&mut self, decision: Arc<Decision>, late: Option<LateCandidates>) {
        let decision = match late {
            None => decision,
            Some(late) => {
                let taken = stored::bytes_at_most(&decision) + late.bytes;
                let whole = Decision { candidates: (late.make)(), ..Arc::unwrap_or_clone(decision) };
                self.shared.token_bucket.settle(taken, stored::bytes_at_most(&whole));
                Arc::new(whole)
            }
        };
        let (key, value) = stored::encode(&decision);
        self.new.insert(decision.id.clone());
        if self.shared.erased_users.holds(&decision.model_id, &decision.user, decision.user_epoch) {
            return;
        }
        self.writes.put(Column::Decisions, &key, &value);
        let decided_for = keys::decided_for(decision.model_id, &decision.user, &decision.id);
        self.writes.put(Column::DecidedFor, &decided_for, &[]);
    }

    fn complete(&mut self, key: &[u8], slots: &[LatePropensity]) {
        if let Err(error) = self.try_complete(key, slots) {
            tracing::warn!(%error, "the propensities of a decision stay unknown");
        }
    }

    fn try_complete(&mut self, key: &[u8], slots: &[LatePropensity]) -> Result<(), StorageError> {
        let Some(value) = self.shared.database.get(Column::Decisions, key)? else { return Ok(()) };
        let mut decision = stored::decode(key, &value)?;
        for (slot, LatePropensity { value, std_error }) in decision.shown.iter_mut().zip(slots) {
            slot.propensity = Some(*value);
            slot.propensity_std_error = *std_error;
        }
        let (key, value) = stored::encode(&decision);
        self.writes.put(Column::Decisions, &key, &value);
        Ok(())
    }

    fn commit(self) {
        let Self { shared, writes, new, waiting } = self;
        let (bytes, decisions) = (writes.bytes() as u64, new.len() as u64);
        match writes.commit(Durability::Buffered) {
            Ok(()) => shared.counters.write(bytes),
            Err(error) => {
                shared.counters.fail(decisions);
                tracing::error!(%error, decisions, "decisions were lost");
            }
        }
        let mut unwritten = shared.unwritten.lock();
        for id in &new {
            unwritten.remove(id);
        }
        drop(unwritten);
        for done in waiting {
            // The receiver may have given up.
            let _ = done.send(());
        }
    }
}
