//! A model version as it is served, and the model that serves it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use celeris_bandits::{PolicySpec, PoolShare};
use celeris_features::{ColdMap, Theta};
use celeris_model::{Learning, ModelError, ModelId, ModelName, StreamName, UserModel, VersionId};
use tokio::sync::mpsc;

use crate::catalog::{Retrieval, StreamCatalog};
use crate::exploration::Exploration;

/// One immutable version of one model, in memory.
pub struct ServingVersion {
    /// The model's name.
    pub model: ModelName,
    /// The model's identity, which is part of the key of everything that is kept for it.
    pub model_id: ModelId,
    /// The version's number.
    pub id: VersionId,
    /// Its feature table.
    pub theta: Theta,
    /// How users learn under it: its prior and noise, and the model's loss and forgetting.
    pub learning: Learning,
    /// What attributes say of the features of items outside the table, if the training knew any.
    pub cold_map: Option<Arc<ColdMap>>,
    /// Tells in snapshots by what rule users learn under it.
    pub(crate) rule: u64,
    /// The state of everybody who has said nothing.
    pub(crate) newcomer: Arc<UserModel>,
    /// Names this version in cache keys: no other of this process has it.
    pub(crate) serial: u64,
    /// Where it lies, if it lies anywhere: what can be built again for it is kept there.
    pub(crate) dir: Option<PathBuf>,
    /// What is searched of it, from before it serves.
    retrieval: OnceLock<Retrieval>,
}

/// The serial handed out last.
static SERIAL: AtomicU64 = AtomicU64::new(0);

impl ServingVersion {
    /// A version ready to serve.
    ///
    /// # Errors
    /// `DimMismatch` where table and prior disagree.
    pub fn new(
        (model, model_id): (ModelName, ModelId),
        id: VersionId,
        theta: Theta,
        learning: Learning,
    ) -> Result<Self, ModelError> {
        if theta.dim() != learning.dim() {
            let (expected, received) = (theta.dim(), learning.dim());
            return Err(ModelError::DimMismatch { what: "prior mean", expected, received });
        }
        let newcomer = Arc::new(UserModel::from_prior(&learning)?);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed) + 1;
        let rule = learning.fingerprint();
        Ok(Self {
            model,
            model_id,
            id,
            theta,
            learning,
            cold_map: None,
            rule,
            newcomer,
            serial,
            dir: None,
            retrieval: OnceLock::new(),
        })
    }

    /// The same with a map from attributes to features, which is left out where its features are of another length.
    #[must_use]
    pub fn with_cold_map(mut self, map: Option<Arc<ColdMap>>) -> Self {
        self.cold_map = map.filter(|map| map.dim() == self.theta.dim());
        self
    }

    /// The same, and it lies in this directory.
    #[must_use]
    pub fn kept_in(mut self, dir: PathBuf) -> Self {
        self.dir = Some(dir);
        self
    }

    /// Keeps what is searched of it. Once only: a version's rows never change.
    pub(crate) fn equip(&self, retrieval: Retrieval) {
        let kept = self.retrieval.set(retrieval);
        debug_assert!(kept.is_ok(), "a version is equipped once, when it is prepared");
    }

    /// What is searched of it.
    pub(crate) fn retrieval(&self) -> &Retrieval {
        self.retrieval.get().expect("a version is equipped before it serves and before anybody hears of it")
    }

    /// The length of features and weights.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.learning.dim()
    }
}

/// How a model ranks where the request does not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankingDefaults {
    /// The policy.
    pub policy: PolicySpec,
    /// The share of rankings that are drawn uniformly for the validation pool.
    pub pool_share: PoolShare,
}

/// A model that answers requests: a name, the stream it learns from, and the version that is active.
pub(crate) struct ServedModel {
    pub(crate) name: ModelName,
    pub(crate) id: ModelId,
    pub(crate) stream: StreamName,
    /// The stream's items.
    pub(crate) catalog: Arc<StreamCatalog>,
    pub(crate) defaults: RankingDefaults,
    pub(crate) active: ArcSwap<ServingVersion>,
    pub(crate) exploration: Arc<Exploration>,
    /// What the active version is compared with, observation by observation.
    pub(crate) beside: ArcSwapOption<Beside>,
}

/// A version beside the active one, and who is told what there is to compare.
#[derive(Clone)]
pub(crate) struct Beside {
    pub(crate) version: VersionId,
    pub(crate) witnesses: mpsc::Sender<ShadowSample>,
}
