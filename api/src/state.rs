//! What every handler shares.

use std::ops::Deref;
use std::sync::Arc;

use celeris_manager::{Manager, Sealer};
use celeris_predictor::Predictor;
use celeris_storage::Storage;
use tokio::sync::Semaphore;

use crate::config::Limits;
use crate::ingest_pool::IngestPool;
use crate::series::Series;

/// A node: its rooms, wired. Every request clones it more than once, so that it is one pointer.
#[derive(Clone)]
pub struct Node(Arc<AppState>);

impl Node {
    /// A node of these rooms.
    pub fn new(rooms: AppState) -> Self {
        Self(Arc::new(rooms))
    }
}

impl Deref for Node {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.0
    }
}

/// The rooms of a node.
pub struct AppState {
    /// The storage layer.
    pub storage: Storage,
    /// The local state that answers requests.
    pub predictor: Arc<Predictor>,
    /// The life cycle of models.
    pub manager: Arc<Manager>,
    /// The copy of the log as Parquet, where it is enabled.
    pub sealer: Option<Arc<Sealer>>,
    /// The threads that learn from streams.
    pub ingest_pool: IngestPool,
    /// The bounds of requests.
    pub limits: Limits,
    /// One permit for every request that may be under way.
    pub permits: Arc<Semaphore>,
    /// One permit for every byte of bodies that have not arrived whole.
    pub arriving: Arc<Semaphore>,
    /// One permit for every stream that may be open.
    pub stream_permits: Arc<Semaphore>,
    /// One permit for every rendering of metrics that may be under way.
    pub metrics_permits: Semaphore,
    /// The metrics of the process.
    pub series: Arc<Series>,
}
