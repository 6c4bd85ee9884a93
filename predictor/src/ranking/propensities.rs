//! Propensities without a closed form, computed in the background.
//!
//! A ranking whose policy has no closed-form propensities is answered and recorded without them.
//! The policy's inputs are queued for one thread, which simulates the policy and completes the
//! record. If the queue is full, the propensities stay unknown, and the decision is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use celeris_bandits::{BanditError, Origin, PolicySpec, PoolShare, Pooled, Propensity, Simulation};
use celeris_model::{DecisionId, ModelId, UserModel};
use celeris_storage::{LatePropensity, Storage};
use parking_lot::Mutex;

use super::inputs::PolicyInputs;
use crate::version::ServingVersion;

/// Maximum number of queued decisions.
const WAITING_MAX: usize = 1024;

/// Maximum number of bytes of queued candidates.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// A recorded decision without propensities, and the inputs of its policy.
pub(crate) struct PendingPropensities {
    /// The model or selection under which the decision is recorded.
    pub(crate) decided_by: ModelId,
    pub(crate) id: DecisionId,
    /// Whether the validation pool drew it.
    pub(crate) pool: bool,
    pub(crate) seed: u64,
    pub(crate) version: Arc<ServingVersion>,
    pub(crate) posterior: Arc<UserModel>,
    pub(crate) policy: PolicySpec,
    /// The share of such rankings drawn by the validation pool; `None` if the request named the
    /// policy.
    pub(crate) pool_share: Option<PoolShare>,
    /// Indices of the candidates shown, by slot.
    pub(crate) ranking: Vec<usize>,
    pub(crate) inputs: PolicyInputs,
}

impl PendingPropensities {
    /// One propensity for each slot.
    fn propensities(&self) -> Result<Vec<Propensity>, BanditError> {
        let candidates = self.inputs.candidates(&self.posterior, &self.version.learning);
        let origin = if self.pool { Origin::Given } else { Origin::Drawn };
        let simulation = Simulation { seed: self.seed, origin };
        let policy = self.policy.policy();
        match self.pool_share {
            Some(share) => Pooled { share, policy }.estimate_propensities(&candidates, &self.ranking, simulation),
            None => policy.estimate_propensities(&candidates, &self.ranking, simulation),
        }
    }
}

/// The thread that computes propensities, started with the first decision.
pub(crate) struct Estimator {
    storage: Storage,
    waiting_bytes: Arc<AtomicUsize>,
    running: Mutex<Option<Running>>,
}

struct Running {
    queue: SyncSender<Box<PendingPropensities>>,
    thread: JoinHandle<()>,
}

impl Estimator {
    pub(crate) fn new(storage: Storage) -> Self {
        Self { storage, waiting_bytes: Arc::default(), running: Mutex::default() }
    }

    /// Queues a decision, unless the queue is full. Never blocks.
    pub(crate) fn offer(&self, unknown: PendingPropensities) {
        let bytes = unknown.inputs.bytes();
        let mut running = self.running.lock();
        if running.is_none() {
            *running = self.start();
        }
        let fits = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= WAITING_BYTES_MAX;
        let sent = |running: &Running| running.queue.try_send(Box::new(unknown)).is_ok();
        if !(fits && running.as_ref().is_some_and(sent)) {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            count("dropped");
        }
    }

    fn start(&self) -> Option<Running> {
        let (queue, unknown) = sync_channel(WAITING_MAX);
        let (storage, waiting_bytes) = (self.storage.clone(), Arc::clone(&self.waiting_bytes));
        let thread = std::thread::Builder::new().name("celeris-propense".to_owned());
        // Without a thread propensities stay unknown, and the next ranking tries to start it again.
        let thread = thread.spawn(move || run(&storage, &waiting_bytes, &unknown)).ok()?;
        Some(Running { queue, thread })
    }
}

impl Drop for Estimator {
    fn drop(&mut self) {
        let Some(Running { queue, thread }) = self.running.get_mut().take() else { return };
        drop(queue);
        // The thread keeps the store open.
        let _panicked = thread.join();
    }
}

/// Runs until the predictor is dropped.
fn run(storage: &Storage, waiting_bytes: &AtomicUsize, unknown: &Receiver<Box<PendingPropensities>>) {
    while let Ok(unknown) = unknown.recv() {
        waiting_bytes.fetch_sub(unknown.inputs.bytes(), Ordering::Relaxed);
        let outcome = match unknown.propensities() {
            Ok(propensities) => {
                let slots = propensities.into_iter().map(late).collect();
                if storage.decisions().complete(unknown.decided_by, &unknown.id, slots) {
                    "computed"
                } else {
                    "dropped"
                }
            }
            Err(_) => "failed",
        };
        count(outcome);
    }
}

fn late(Propensity { value, std_error }: Propensity) -> LatePropensity {
    LatePropensity { value: value as f32, std_error: (std_error > 0.0).then_some(std_error as f32) }
}

fn count(outcome: &'static str) {
    metrics::counter!("celeris_propensities_total", "outcome" => outcome).increment(1);
}
