//! A node, wired: storage, predictor and manager over one data directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use celeris_manager::{Manager, ManagerOptions, Sealer, SealingOptions};
use celeris_predictor::{DecisionLogging, Predictor, PredictorOptions};
use celeris_storage::{Storage, StorageOptions};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::sync::Semaphore;

use crate::cli::Failure;
use crate::config::Config;
use crate::learning_threads::LearningThreads;
use crate::state::{Node, Rooms};

/// Upper bounds of the request time histogram, in seconds: from a cached score to a request that times out.
const REQUEST_SECONDS: [f64; 14] =
    [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

/// How often histograms are condensed, so that they stay small on a node whose metrics nobody reads.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

async fn keep_up(metrics: PrometheusHandle) {
    let mut ticks = tokio::time::interval(UPKEEP_EVERY);
    loop {
        ticks.tick().await;
        metrics.run_upkeep();
    }
}

/// Opens the data directory and brings every model to the point where it serves.
///
/// # Errors
/// [`Failure::BadInput`] where the directory is in use, damaged or of another format.
pub fn open(data_dir: &Path, config: &Config) -> Result<Node, Failure> {
    let metrics = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("celeris_http_request_seconds".to_owned()), &REQUEST_SECONDS)
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(Failure::other)?;
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
        selection_bytes_max: bytes(memory.selections),
        seen_bytes_max: bytes(memory.seen),
        decisions: DecisionLogging {
            enabled: decisions.enabled,
            candidates_in_full: decisions.candidates_in_full,
            candidates_sampled: decisions.candidates_sampled,
        },
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
    tokio::spawn(keep_up(metrics.clone()));
    let sealing = SealingOptions { interval: config.sealing.interval, records: config.sealing.records };
    let sealer = config.sealing.enabled.then(|| Sealer::start(storage.clone(), sealing)).transpose()?;
    let learning_threads = LearningThreads::start().map_err(Failure::other)?;
    Ok(Node::new(Rooms {
        storage,
        predictor,
        manager,
        sealer,
        learning_threads,
        limits: config.limits.clone(),
        permits: Arc::new(Semaphore::new(config.limits.requests)),
        metrics,
    }))
}
