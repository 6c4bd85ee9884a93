//! A node, wired: storage, predictor and manager over one data directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use celeris_manager::{Manager, ManagerError, ManagerOptions, Sealer, SealingOptions};
use celeris_predictor::{DecisionLogging, Predictor, PredictorOptions};
use celeris_storage::{Storage, StorageError, StorageOptions};
use tokio::sync::Semaphore;

use crate::config::Config;
use crate::ingest_pool::IngestPool;
use crate::series::{Live, Series};
use crate::state::{AppState, Node};

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be opened.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The models cannot be brought to serve.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// A setting is not valid.
    #[error("{0}")]
    Setting(String),
    /// The data directory has no path of its own.
    #[error("{}: {source}", path.display())]
    DataDir {
        /// As it was given.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The metrics of the process cannot be installed.
    #[error("metrics: {0}")]
    Metrics(String),
    /// The system refuses threads, or the path of the running program.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Renderings of metrics under way at once: enough for two scrapers, and few for what each costs.
const METRICS_AT_ONCE: usize = 2;

/// How often metrics are condensed, so that they stay small on a node whose metrics nobody reads.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

async fn keep_up(node: Node) {
    let mut ticks = tokio::time::interval(UPKEEP_EVERY);
    loop {
        ticks.tick().await;
        tokio::task::block_in_place(|| keep_series(&node));
    }
}

/// Condenses the metrics, and removes those of models and streams that are gone. Blocks on the disk.
pub fn keep_series(node: &Node) {
    let registry = || {
        let models = node.manager.models()?.into_iter().map(|record| record.config.name.to_string());
        let selections = node.manager.selections()?.into_iter().map(|record| record.name.to_string());
        Ok::<_, ManagerError>(models.chain(selections).collect())
    };
    // What the registry cannot tell is looked at again the next time.
    let Ok(models) = registry() else { return };
    let served = node.predictor.catalogs().into_iter().map(|catalog| catalog.stream.to_string());
    let sealed = node.sealer.iter().flat_map(|sealer| sealer.status()).map(|(stream, _)| stream.to_string());
    node.series.keep_up(&Live { models, streams: served.chain(sealed).collect() });
}

/// Opens the data directory and brings every model to the point where it serves.
///
/// # Errors
/// [`StartError`]: the directory is in use, damaged or of another format, or a setting is not valid.
pub fn open(data_dir: &Path, config: &Config) -> Result<Node, StartError> {
    let series = Series::install().map_err(StartError::Metrics)?;
    let bytes = |size: bytesize::ByteSize| usize::try_from(size.as_u64()).unwrap_or(usize::MAX);
    let memory = &config.memory;
    let decisions = &config.decisions;
    let storage_options = StorageOptions {
        block_cache_bytes: bytes(memory.blocks),
        decision_queue_max: decisions.queue,
        decision_bytes_per_second: decisions.bytes_per_second.as_u64(),
        decision_retention: decisions.retention,
        verification_delay: config.verification.delay,
        verification_interval: config.verification.interval,
        verification_bytes_per_second: config.verification.bytes_per_second.as_u64(),
        ..StorageOptions::default()
    };
    // The trainer runs elsewhere and must find the same files.
    let data_dir =
        std::path::absolute(data_dir).map_err(|source| StartError::DataDir { path: data_dir.to_owned(), source })?;
    let storage = Storage::open(data_dir, &storage_options)?;
    let predictor_options = PredictorOptions {
        user_bytes_max: bytes(memory.users),
        feature_bytes_max: bytes(memory.features),
        prediction_bytes_max: bytes(memory.predictions),
        prediction_items_max: memory.prediction_items,
        selection_bytes_max: bytes(memory.selections),
        seen_bytes_max: bytes(memory.seen),
        decisions: DecisionLogging {
            enabled: decisions.enabled,
            candidates_in_full: decisions.candidates_in_full,
            candidates_sampled: decisions.candidates_sampled,
        },
        clock_skew_max: config.limits.clock_skew,
        ..PredictorOptions::default()
    };
    let (predictor, losses) = Predictor::new(storage.clone(), &predictor_options);
    let predictor = Arc::new(predictor);
    let trainer = std::env::current_exe()?;
    let manager_options = ManagerOptions {
        models_max: config.limits.models,
        trainer,
        training: config.training.options().map_err(StartError::Setting)?,
        import_dir: config.training.import_dir.clone(),
    };
    let manager = Manager::open(storage.clone(), predictor.clone(), manager_options)?;
    tokio::spawn(manager.clone().listen(losses));
    tokio::spawn(manager.clone().keep_decisions());
    let sealing = SealingOptions { interval: config.sealing.interval, records: config.sealing.records };
    let sealer = config.sealing.enabled.then(|| Sealer::start(storage.clone(), sealing)).transpose()?;
    let ingest_pool = IngestPool::start()?;
    let node = Node::new(AppState {
        storage,
        predictor,
        manager,
        sealer,
        ingest_pool,
        limits: config.limits.clone(),
        permits: Arc::new(Semaphore::new(config.limits.requests)),
        arriving: Arc::new(Semaphore::new(
            usize::try_from(config.limits.arriving.as_u64()).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS),
        )),
        stream_permits: Arc::new(Semaphore::new(config.limits.streams)),
        metrics_permits: Semaphore::new(METRICS_AT_ONCE),
        series,
    });
    tokio::spawn(keep_up(node.clone()));
    Ok(node)
}
