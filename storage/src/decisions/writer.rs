//! The writer thread: what is queued goes to the database, many decisions a write.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use celeris_model::{Decision, DecisionId};

use super::{Message, Shared, stored};
use crate::database::{Batch, Column, Durability};
use crate::error::StorageError;
use crate::keys;

/// Decisions that share one write at most.
const BATCH_DECISIONS_MAX: usize = 256;

/// Writes until every sender is gone.
pub(super) fn run(shared: &Shared, messages: &Receiver<Message>) {
    while let Ok(first) = messages.recv() {
        let mut batch = Together::new(shared);
        let _changing = shared.changing.lock();
        for message in std::iter::once(first).chain(messages.try_iter().take(BATCH_DECISIONS_MAX)) {
            match message {
                Message::Write(decision) => batch.write(&decision),
                Message::Complete(decision) => batch.complete(&decision),
                Message::Flush(done) => batch.waiting.push(done),
            }
        }
        batch.commit();
    }
}

/// Decisions that are written together.
struct Together<'a> {
    shared: &'a Shared,
    writes: Batch<'a>,
    /// Those written for the first time.
    new: HashSet<DecisionId>,
    waiting: Vec<Sender<()>>,
}

impl<'a> Together<'a> {
    fn new(shared: &'a Shared) -> Self {
        Self { shared, writes: shared.database.batch(), new: HashSet::new(), waiting: Vec::new() }
    }

    fn write(&mut self, decision: &Arc<Decision>) {
        let (key, value) = stored::encode(decision);
        self.writes.put(Column::Decisions, &key, &value);
        let decided_for = keys::decided_for(&decision.model, &decision.user, &decision.id);
        self.writes.put(Column::DecidedFor, &decided_for, &[]);
        self.new.insert(decision.id.clone());
    }

    fn complete(&mut self, decision: &Decision) {
        let (key, value) = stored::encode(decision);
        let is_there =
            || -> Result<bool, StorageError> { Ok(self.shared.database.get(Column::Decisions, &key)?.is_some()) };
        if self.new.contains(&decision.id) || is_there().unwrap_or(false) {
            self.writes.put(Column::Decisions, &key, &value);
        }
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
            // Whoever waited may have given up.
            let _ = done.send(());
        }
    }
}
