//! Background work for searches on one low-priority thread: opens or builds the graph of a large table, and now and
//! then repeats a graph search exactly to measure its recall.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use celeris_retrieval::graph::{self, Build, GraphError, GraphIndex};
use celeris_retrieval::{CandidateSet, Hit};
use parking_lot::{Condvar, Mutex};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use crate::index::matrix;
use crate::version::ServingVersion;

/// Below this size an exact search is as fast as a graph search.
const GRAPH_ROWS_MIN: usize = 50_000;

/// The graph's file in a version's directory. The manifest does not list it, since it can be rebuilt.
const GRAPH_FILE: &str = "search_graph";

/// Number of weight vectors, drawn from the version's prior, that the graph is measured with.
const QUERIES: usize = 48;

/// Seed of these draws.
const QUERIES_SEED: u64 = 6;

/// Nice value of this thread: requests have priority.
const NICENESS: i32 = 15;

/// A graph search to be repeated exactly.
pub(super) struct Sample {
    pub(super) version: Arc<ServingVersion>,
    pub(super) weights: Vec<f32>,
    pub(super) allowed: CandidateSet,
    /// The result of the graph search.
    pub(super) found: Vec<Hit>,
}

#[derive(Default)]
struct Waiting {
    /// Versions without a graph yet; weak, so that versions that no longer serve are skipped.
    versions: Vec<Weak<ServingVersion>>,
    /// At most one sample waits; further searches are not sampled meanwhile.
    sample: Option<Sample>,
    /// The version whose graph is being built, so that it can be cancelled.
    building: Weak<ServingVersion>,
    stopping: bool,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// The thread, started with the first task. Dropping this stops it.
#[derive(Default)]
pub(crate) struct Background {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Background {
    /// Queues the graph of a serving version, if its table is large and the version has a directory.
    pub(crate) fn want_graph(&self, version: &Arc<ServingVersion>) {
        if version.theta.items().len() < GRAPH_ROWS_MIN || version.dir.is_none() {
            return;
        }
        let mut waiting = self.shared.waiting.lock();
        waiting.versions.retain(|version| version.strong_count() > 0);
        waiting.versions.push(Arc::downgrade(version));
        drop(waiting);
        self.wake();
    }

    /// Whether the queue has room for a sample.
    pub(super) fn wants_sample(&self) -> bool {
        self.shared.waiting.try_lock().is_some_and(|waiting| waiting.sample.is_none())
    }

    pub(super) fn sample(&self, sample: Sample) {
        self.shared.waiting.lock().sample = Some(sample);
        self.wake();
    }

    fn wake(&self) {
        let mut thread = self.thread.lock();
        if thread.is_none() && !self.shared.waiting.lock().stopping {
            let shared = Arc::clone(&self.shared);
            let spawned = std::thread::Builder::new().name("celeris-graph".to_owned()).spawn(move || shared.work());
            // Without the thread searches stay exact and unsampled; the next request to start it tries again.
            *thread = spawned.ok();
        }
        self.shared.changed.notify_one();
    }

    /// Stops the thread and joins it: it writes files, which must not be cut off by the end of the process.
    pub(crate) fn stop(&self) {
        let mut waiting = self.shared.waiting.lock();
        waiting.stopping = true;
        if let Some(version) = waiting.building.upgrade() {
            version.retrieval().retire();
        }
        drop(waiting);
        self.shared.changed.notify_one();
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            metrics::counter!("celeris_search_graph_failures_total").increment(1);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn work(&self) {
        // If the priority cannot be set, the thread competes with requests.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        loop {
            let mut waiting = self.waiting.lock();
            if waiting.stopping {
                return;
            }
            if let Some(sample) = waiting.sample.take() {
                drop(waiting);
                check(&sample);
                continue;
            }
            let Some(next) = waiting.versions.pop() else {
                self.changed.wait(&mut waiting);
                continue;
            };
            waiting.building = next.clone();
            drop(waiting);
            if let Some(version) = next.upgrade() {
                obtain(&version);
            }
            self.waiting.lock().building = Weak::new();
        }
    }
}

/// Opens a version's graph or builds it. Searches are exact until it is attached, and if that fails.
fn obtain(version: &ServingVersion) {
    let Some(dir) = &version.dir else { return };
    let (path, retrieval) = (dir.join(GRAPH_FILE), version.retrieval());
    let found = match GraphIndex::open(&path, matrix(&version.theta)) {
        Ok(found) => Ok(found),
        // Missing, torn or of another table: rebuild it.
        Err(_) if !retrieval.is_retired() => build(version, &path),
        Err(error) => Err(error),
    };
    match found {
        Ok(graph) => retrieval.table().attach(graph),
        Err(GraphError::Stopped) => {}
        Err(_) if retrieval.is_retired() => {}
        Err(_) => metrics::counter!("celeris_search_graph_failures_total").increment(1),
    }
}

fn build(version: &ServingVersion, path: &Path) -> Result<GraphIndex, GraphError> {
    let (retrieval, mut random) = (version.retrieval(), ChaCha8Rng::seed_from_u64(QUERIES_SEED));
    let Ok(mut sampler) = version.newcomer.sampler(&version.learning) else { return Err(GraphError::NoQueries) };
    let mut query = || -> Vec<f32> {
        let weights = sampler.draw(|| random.sample(StandardNormal));
        weights.iter().map(|weight| *weight as f32).collect()
    };
    let queries: Vec<Vec<f32>> = (0..QUERIES).map(|_| query()).collect();
    let build = Build {
        table: retrieval.table(),
        matrix: matrix(&version.theta),
        queries: &queries,
        path,
        threads: 1,
        stop: retrieval.retired(),
    };
    build.run()
}

/// Repeats a search exactly and records the recall of the graph.
fn check(sample: &Sample) {
    let Sample { version, weights, allowed, found } = sample;
    let retrieval = version.retrieval();
    let exact = retrieval.table().search_exact(matrix(&version.theta), weights, found.len(), allowed);
    retrieval.note_recall(graph::recall(found, &exact));
}
