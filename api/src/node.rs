//! A node, wired: storage, predictor and manager over one data directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use celeris_manager::{Manager, ManagerError, ManagerOptions, Sealer, SealingOptions};
use celeris_predictor::{DecisionLogging, Predictor, PredictorOptions};
use celeris_storage::{Storage, StorageOptions};
use tokio::sync::Semaphore;

use crate::cli::Failure;
use crate::config::Config;
use crate::learning_threads::LearningThreads;
use crate::series::{Live, Series};
use crate::state::{Node, Rooms};

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
    let catalog = || {
        let models = node.manager.models()?.into_iter().map(|record| record.config.name.to_string());
        let selections = node.manager.selections()?.into_iter().map(|record| record.name.to_string());
        Ok::<_, ManagerError>(models.chain(selections).collect())
    };
    // What the catalog cannot tell is looked at again the next time.
    let Ok(models) = catalog() else { return };
    let served = node.predictor.catalogues().into_iter().map(|catalogue| catalogue.stream.to_string());
    let sealed = node.sealer.iter().flat_map(|sealer| sealer.status()).map(|(stream, _)| stream.to_string());
    node.series.keep_up(&Live { models, streams: served.chain(sealed).collect() });
}

/// Opens the data directory and brings every model to the point where it serves.
///
/// # Errors
/// [`Failure::BadInput`] where the directory is in use, damaged or of another format.
pub fn open(data_dir: &Path, config: &Config) -> Result<Node, Failure> {
    let series = Series::install().map_err(Failure::other)?;
    let bytes = |size: bytesize::ByteSize| usize::try_from(size.as_u64()).unwrap_or(usize::MAX);
    let memory = &config.memory;
    let decisions = &config.decisions;
    let storage_options = StorageOptions {
        block_cache_bytes: bytes(memory.blocks),
        decision_queue_max: decisions.queue,
        decision_bytes_per_second: decisions.bytes_per_second.as_u64(),
        decision_retention: decisions.retention,
        ..StorageOptions::default()
    };
    // The trainer runs elsewhere and must find the same files.
    let data_dir = std::path::absolute(data_dir).map_err(Failure::bad_input)?;
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
    let trainer = std::env::current_exe().map_err(Failure::other)?;
    let manager_options = ManagerOptions {
        models_max: config.limits.models,
        trainer,
        training: config.training.options().map_err(Failure::BadInput)?,
        import_dir: config.training.import_dir.clone(),
    };
    let manager = Manager::open(storage.clone(), predictor.clone(), manager_options).map_err(Failure::from)?;
    tokio::spawn(manager.clone().listen(losses));
    tokio::spawn(manager.clone().keep_decisions());
    let sealing = SealingOptions { interval: config.sealing.interval, records: config.sealing.records };
    let sealer = config.sealing.enabled.then(|| Sealer::start(storage.clone(), sealing)).transpose()?;
    let learning_threads = LearningThreads::start().map_err(Failure::other)?;
    let node = Node::new(Rooms {
        storage,
        predictor,
        manager,
        sealer,
        learning_threads,
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
