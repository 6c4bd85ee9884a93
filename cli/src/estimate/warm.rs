//! An in-process predictor over a real store in a temporary folder, with users who have
//! observations.

use std::sync::Arc;

use celeris_datasets::TemporaryFolder;
use celeris_model::{ItemId, ModelError, ModelId, ModelName, Observation, ObservationId, StreamName, VersionId};
use celeris_predictor::{LossEvent, Predictor, PredictorOptions, ServingSettings, ServingVersion};
use celeris_storage::{AckMode, Storage, StorageOptions};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use rand::RngExt;
use tokio::sync::mpsc;

use crate::Failure;
use crate::estimate::scene;

/// Whether observations carry an `observation_id` of 32 characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// The server makes them.
    None,
    /// The client gives them.
    Given,
}

/// An id of 32 characters.
///
/// # Errors
/// None: the id is valid.
pub fn observation_id(number: u128) -> Result<ObservationId, ModelError> {
    ObservationId::new(format!("{number:032x}"))
}

/// A predictor over a temporary store, with warm users.
pub struct Warm {
    /// The served model.
    pub model: ModelName,
    pub predictor: Predictor,
    /// The items of its version.
    pub items: Vec<ItemId>,
    storage: Storage,
    metrics: PrometheusHandle,
    _losses: mpsc::Receiver<LossEvent>,
    _dir: TemporaryFolder,
}

impl Warm {
    /// Opens a predictor that serves a version with `catalog` items and has no observations.
    ///
    /// # Errors
    /// If no store can be opened in the temporary folder.
    pub fn open(catalog: usize, dim: usize, options: &PredictorOptions) -> Result<Self, Failure> {
        let dir = TemporaryFolder::new().map_err(Failure::other)?;
        let storage = Storage::open(dir.path(), &StorageOptions::default())?;
        // A separate recorder: counters cost as much as on a node, and two predictors are not
        // counted together.
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = recorder.handle();
        let (predictor, losses) = metrics::with_local_recorder(&recorder, || Predictor::new(storage.clone(), options));
        let version = version("bench", VersionId(1), catalog, dim)?;
        let (model, items) = (version.model.clone(), version.theta.items().to_vec());
        predictor
            .activation()
            .activate(&StreamName::of_model(&model), ServingSettings::default(), version)
            .map_err(Failure::other)?;
        Ok(Self { model, predictor, items, storage, metrics, _losses: losses, _dir: dir })
    }

    /// A second predictor over the same store with empty caches, which serves version `id` of the
    /// same table.
    ///
    /// # Errors
    /// None for synthetic data.
    pub fn restarted(&self, id: VersionId) -> Result<Predictor, Failure> {
        let (predictor, _losses) = Predictor::new(self.storage.clone(), &PredictorOptions::default());
        let version = version("bench", id, self.items.len(), self.version()?.dim())?;
        let stream = StreamName::of_model(&self.model);
        predictor.activation().activate(&stream, ServingSettings::default(), version).map_err(Failure::other)?;
        Ok(predictor)
    }

    /// Serves another model that learns from the same stream.
    ///
    /// # Errors
    /// If the name is invalid.
    pub fn add_model(&self, name: &str, catalog: usize, dim: usize) -> Result<(), Failure> {
        let version = version(name, VersionId(1), catalog, dim)?;
        let stream = StreamName::of_model(&self.model);
        self.predictor.activation().activate(&stream, ServingSettings::default(), version).map_err(Failure::other)
    }

    /// Adds `history` observations to each of the first `users` users.
    ///
    /// # Errors
    /// If the log fails.
    pub async fn teach(&self, users: usize, history: usize, ids: Ids) -> Result<(), Failure> {
        let mut rng = scene::rng(3);
        for number in 0..users {
            let user = scene::user(number).map_err(Failure::other)?;
            let mut last = None;
            for _ in 0..history {
                let observation = Observation {
                    user: user.clone(),
                    item: self.items[rng.random_range(0..self.items.len())].clone(),
                    label: rng.random_range(1..=5_u8).into(),
                    weight: 1.0,
                    timestamp: None,
                    observation_id: match ids {
                        Ids::None => None,
                        Ids::Given => Some(observation_id(rng.random()).map_err(Failure::other)?),
                    },
                    feedback: None,
                    decision: None,
                    context: None,
                };
                let begun = self.predictor.ingest().begin_observe(&self.model, None, &observation, AckMode::Wait);
                last = Some(begun.map_err(Failure::other)?);
            }
            // A user's events become durable in order, so waiting for the last one is enough.
            if let Some(last) = last {
                self.predictor.ingest().finish_observe(last).await.map_err(Failure::other)?;
            }
        }
        Ok(())
    }

    /// The value of a counter or gauge of the predictor's cache with this name.
    #[must_use]
    pub fn cache_metric(&self, name: &str, cache: &str) -> f64 {
        metric(&self.metrics.render(), &format!("{name}{{cache=\"{cache}\"}}")).unwrap_or(0.0)
    }

    /// The accounted bytes of the cache with this name.
    #[must_use]
    pub fn held_bytes(&self, cache: &str) -> f64 {
        self.cache_metric("celeris_cache_bytes", cache)
    }

    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The active version.
    ///
    /// # Errors
    /// None: the model is served.
    pub fn version(&self) -> Result<Arc<ServingVersion>, Failure> {
        self.predictor.models().active(&self.model).map_err(Failure::other)
    }
}

fn version(name: &str, id: VersionId, catalog: usize, dim: usize) -> Result<ServingVersion, Failure> {
    let model = ModelName::new(name).map_err(Failure::other)?;
    let theta = scene::theta(catalog, dim).map_err(Failure::other)?;
    let prior = scene::prior(dim).map_err(Failure::other)?;
    ServingVersion::new((model, ModelId(1)), id, theta, prior.into()).map_err(Failure::other)
}

impl Drop for Warm {
    fn drop(&mut self) {
        // The folder is removed as well, so errors do not matter.
        let _ = self.storage.close();
    }
}

/// The value of a series in Prometheus text; `None` if it is missing.
pub fn metric(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}
