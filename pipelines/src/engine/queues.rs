//! The pair of queues of a group of executors.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use parking_lot::{Condvar, Mutex};

use super::OwnedRecord;
use crate::error::PipelineError;
use crate::plan::{Plan, Scratch};

/// A chunk of a batch, before one of its stages. Dropping it gives the batch up.
pub(super) struct Task {
    pub plan: Arc<Plan>,
    pub records: Arc<[OwnedRecord]>,
    pub range: Range<usize>,
    pub stage: usize,
    /// One for each record, from the first stage on.
    pub scratches: Vec<Scratch>,
    pub results: Sender<(usize, Vec<f32>)>,
}

#[derive(Default)]
struct Waiting {
    /// Chunks that have not begun.
    low: VecDeque<Task>,
    /// Chunks between two stages: at most one for each executor.
    high: VecDeque<Task>,
    is_closed: bool,
}

/// Chunks for executors.
pub(super) struct Queues {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    queued_max: usize,
}

impl Queues {
    pub fn new(queued_max: usize) -> Self {
        Self { waiting: Mutex::default(), wake: Condvar::new(), queued_max }
    }

    /// Queues all chunks of a batch or none. Returns them if the queues are closed.
    ///
    /// # Errors
    /// [`PipelineError::Overloaded`].
    pub fn submit(&self, tasks: VecDeque<Task>) -> Result<Option<VecDeque<Task>>, PipelineError> {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return Ok(Some(tasks));
        }
        let queued = waiting.low.len();
        if queued + tasks.len() > self.queued_max {
            return Err(PipelineError::Overloaded { queued });
        }
        waiting.low.extend(tasks);
        drop(waiting);
        self.wake.notify_all();
        Ok(None)
    }

    /// Queues chunks that were accepted before, beyond the bound if need be; gives them up if the queues are closed.
    pub fn adopt(&self, tasks: VecDeque<Task>) {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            drop(waiting);
            return drop(tasks);
        }
        waiting.low.extend(tasks);
        drop(waiting);
        self.wake.notify_all();
    }

    /// Queues a chunk before its next stage.
    pub fn go_on(&self, task: Task) {
        self.waiting.lock().high.push_back(task);
        self.wake.notify_one();
    }

    /// The next chunk: one under way, or a new one. `None` once the queues are closed and none is under way in them.
    pub fn next(&self) -> Option<Task> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(task) = waiting.high.pop_front() {
                return Some(task);
            }
            if waiting.is_closed {
                return None;
            }
            if let Some(task) = waiting.low.pop_front() {
                return Some(task);
            }
            self.wake.wait(&mut waiting);
        }
    }

    pub fn waiting(&self) -> usize {
        self.waiting.lock().low.len()
    }

    /// Returns the chunks that have not begun, accepts no others, and lets executors end when those under way are done.
    pub fn close(&self) -> VecDeque<Task> {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        let low = std::mem::take(&mut waiting.low);
        drop(waiting);
        self.wake.notify_all();
        low
    }
}
