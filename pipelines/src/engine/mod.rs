//! The batch engine: executors that run stages of batches, after PRETZEL's scheduler (section 4.2.2).
//!
//! A batch is cut into chunks of records. All executors of a group pull from a pair of queues: one of chunks that have not
//! begun, one of chunks between two stages, which goes first, so that chunks under way end and return their buffers soon.
//! The values have the same bits as those of [`Plan::run`], which serves single requests without a queue.

mod executor;
mod queues;

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use celeris_model::Context;
use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::error::PipelineError;
use crate::graph::Fingerprint;
use crate::plan::Plan;
use crate::stages::SubPlans;
use queues::{Queues, Task};

/// Number of executors of a group, at most.
pub const EXECUTORS_MAX: usize = 256;

/// Number of outputs of a batch, of all records together.
pub const BATCH_NUMBERS_MAX: usize = 1 << 26;

/// A record of a batch.
#[derive(Debug, Clone, Default)]
pub struct OwnedRecord {
    pub item: Arc<Map<String, Value>>,
    pub context: Arc<Context>,
}

/// Sizes of an engine. All have a minimum of 1.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// Threads that all pipelines without a reservation share.
    pub executors: usize,
    /// Number of chunks that wait; a batch that does not fit is refused.
    pub queued_max: usize,
    /// Number of records of a chunk.
    pub chunk: usize,
    /// Results of stages that several plans share.
    pub kept: Option<Arc<SubPlans>>,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self { executors: 1, queued_max: 1024, chunk: 64, kept: None }
    }
}

/// Runs batches on threads of its own. Dropping it ends the chunks under way, gives up those that wait, and joins the
/// threads.
pub struct Engine {
    settings: EngineSettings,
    shared: Group,
    /// The queues of pipelines with executors of their own.
    reserved: Arc<Reserved>,
}

type Reserved = Mutex<HashMap<Fingerprint, Weak<Queues>>>;

/// Executors and their queues.
struct Group {
    queues: Arc<Queues>,
    threads: Vec<JoinHandle<()>>,
}

impl Group {
    fn new(executors: usize, settings: &EngineSettings) -> Result<Self, PipelineError> {
        let queues = Arc::new(Queues::new(settings.queued_max.max(1)));
        // Dropping it ends the threads that were started, if one cannot be.
        let mut group = Self { queues, threads: Vec::new() };
        for number in 0..executors.clamp(1, EXECUTORS_MAX) {
            let (queues, kept) = (group.queues.clone(), settings.kept.clone());
            let thread = std::thread::Builder::new().name(format!("pipelines-{number}"));
            let started = thread.spawn(move || executor::run(&queues, kept.as_deref()));
            group.threads.push(started.map_err(|error| PipelineError::Threads { problem: error.to_string() })?);
        }
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        drop(self.queues.close());
        for thread in self.threads.drain(..) {
            // Executors catch the panics of operators.
            let _ = thread.join();
        }
    }
}

/// Executors of one pipeline alone; dropping it returns its waiting chunks to the shared executors. Parameters and stages
/// stay shared.
pub struct Reservation {
    plan: Fingerprint,
    group: Group,
    shared: Arc<Queues>,
    reserved: Arc<Reserved>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.reserved.lock().remove(&self.plan);
        self.shared.adopt(self.group.queues.close());
    }
}

/// The results of a batch to come.
#[derive(Debug)]
pub struct Ticket {
    results: Receiver<(usize, Vec<f32>)>,
    chunks: usize,
    dim: usize,
    records: usize,
}

impl Ticket {
    /// Waits for the outputs, row-major `records x dim`.
    ///
    /// # Errors
    /// [`PipelineError::GivenUp`] if the engine was dropped or an operator panicked.
    pub fn wait(self) -> Result<Vec<f32>, PipelineError> {
        let mut out = vec![0.0; self.records * self.dim];
        for _ in 0..self.chunks {
            let (first, values) = self.results.recv().map_err(|_| PipelineError::GivenUp {
                problem: "the engine was shut down, or an operator panicked".to_owned(),
            })?;
            out[first * self.dim..][..values.len()].copy_from_slice(&values);
        }
        Ok(out)
    }
}

impl Engine {
    /// Starts the executors.
    ///
    /// # Errors
    /// [`PipelineError::Threads`].
    pub fn new(settings: EngineSettings) -> Result<Self, PipelineError> {
        let shared = Group::new(settings.executors, &settings)?;
        Ok(Self { settings, shared, reserved: Arc::default() })
    }

    /// Queues a batch.
    ///
    /// # Errors
    /// [`PipelineError::Overloaded`] if the queue has no room for all of its chunks, [`PipelineError::BatchSize`] beyond
    /// [`BATCH_NUMBERS_MAX`].
    pub fn submit(&self, plan: &Arc<Plan>, records: Vec<OwnedRecord>) -> Result<Ticket, PipelineError> {
        let received = records.len().saturating_mul(plan.dim());
        if received > BATCH_NUMBERS_MAX {
            return Err(PipelineError::BatchSize { received, max: BATCH_NUMBERS_MAX });
        }
        let own = self.reserved.lock().get(&plan.fingerprint()).and_then(Weak::upgrade);
        let (sender, results) = channel();
        let (count, chunk) = (records.len(), self.settings.chunk.max(1));
        let records: Arc<[OwnedRecord]> = records.into();
        let firsts = (0..count).step_by(chunk);
        let chunks = firsts.len();
        let task = |first: usize| Task {
            plan: plan.clone(),
            records: records.clone(),
            range: first..(first + chunk).min(count),
            stage: 0,
            scratches: Vec::new(),
            results: sender.clone(),
        };
        let mut refused = Some(firsts.map(task).collect());
        // A reservation that ends meanwhile accepts nothing more.
        for queues in own.iter().chain([&self.shared.queues]) {
            if let Some(tasks) = refused.take() {
                refused = queues.submit(tasks)?;
            }
        }
        Ok(Ticket { results, chunks, dim: plan.dim(), records: count })
    }

    /// Starts executors for this pipeline alone; an earlier reservation of it gets no more work.
    ///
    /// # Errors
    /// [`PipelineError::Threads`].
    pub fn reserve(&self, plan: &Plan, executors: usize) -> Result<Reservation, PipelineError> {
        let group = Group::new(executors, &self.settings)?;
        self.reserved.lock().insert(plan.fingerprint(), Arc::downgrade(&group.queues));
        let (shared, reserved) = (self.shared.queues.clone(), self.reserved.clone());
        Ok(Reservation { plan: plan.fingerprint(), group, shared, reserved })
    }

    /// Number of chunks that wait for the shared executors.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.queues.waiting()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.debug_struct("Engine").field("settings", &self.settings).finish_non_exhaustive()
    }
}
