//! A model version in memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use celeris_bandits::{PolicySpec, PoolShare};
use celeris_features::{ColdMap, Parts, Theta, UserMap};
use celeris_model::{Learning, Loss, ModelError, ModelId, ModelName, UserModel, VersionId};

use serde_json::{Map, Value};

use crate::index::Retrieval;
use crate::label_rule::LabelRule;

/// One immutable version of one model, in memory.
pub struct ServingVersion {
    pub model: ModelName,
    /// The model's identity, part of the storage keys of its data.
    pub model_id: ModelId,
    pub id: VersionId,
    pub theta: Theta,
    /// How user states learn under it: prior, noise, loss and forgetting.
    pub learning: Learning,
    /// The map from attributes to features for items outside the table, if training produced one.
    pub cold_map: Option<Arc<ColdMap>>,
    /// The map from attributes of users to their prior means, if training produced one.
    pub(crate) user_map: Option<Arc<UserMap>>,
    /// The computed parts of the features; `None` if all are factors.
    pub(crate) parts: Option<Arc<Parts>>,
    /// The length of features that callers give: the factors and the constant.
    pub(crate) table_dim: usize,
    /// Fingerprint of the learning rule, stored in snapshots.
    pub(crate) rule: u64,
    /// The state of a user without observations.
    pub(crate) newcomer: Arc<UserModel>,
    /// Identifies this version in cache keys; unique in this process.
    pub(crate) serial: u64,
    /// Its search index, set before it serves.
    retrieval: OnceLock<Retrieval>,
}

/// The last serial that was assigned.
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
        let dim = theta.dim();
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
            user_map: None,
            parts: None,
            table_dim: dim,
            rule,
            newcomer,
            serial,
            retrieval: OnceLock::new(),
        })
    }

    /// Adds a map from attributes to features. A map to features of another length is ignored.
    #[must_use]
    pub fn with_cold_map(mut self, map: Option<Arc<ColdMap>>) -> Self {
        self.cold_map = map.filter(|map| map.dim() == self.theta.dim());
        self
    }

    /// Adds a map from attributes of users to their prior means. Ignored are a map to means of another length, and one
    /// under a loss whose posterior is not linear in the labels.
    #[must_use]
    pub fn with_user_map(mut self, map: Option<Arc<UserMap>>) -> Self {
        let fits = |map: &Arc<UserMap>| map.dim() == self.dim() && self.learning.loss() == Loss::Squared;
        self.user_map = map.filter(fits);
        self
    }

    /// What these attributes of a user move the state by, see [`UserModel::with_profile`]; `None` if by nothing.
    pub(crate) fn profile(&self, attributes: &Map<String, Value>) -> Option<Arc<[f32]>> {
        let shift = self.user_map.as_ref()?.shift(attributes)?;
        Some(self.learning.prior().pulls(&shift).into())
    }

    /// Adds the computed parts of a model whose factors and constant are `table_dim`. A version that was trained before the
    /// model had them has none.
    #[must_use]
    pub fn with_parts(mut self, parts: Option<Arc<Parts>>, table_dim: usize) -> Self {
        self.table_dim = parts.as_ref().map_or(table_dim, |parts| parts.table_dim());
        self.parts = parts;
        self
    }

    /// Factors that a caller has given, of length `table_dim`, as features: with the columns of the parts that depend on the
    /// item alone, and zeros for the others.
    pub(crate) fn widened(&self, factors: &[f32], attributes: Option<&Map<String, Value>>) -> Box<[f32]> {
        match &self.parts {
            Some(parts) => parts.materialised(factors, attributes),
            None => {
                let (constant, factors) = factors.split_last().unwrap_or((&1.0, &[]));
                let mut features = factors.to_vec();
                features.resize(self.dim() - 1, 0.0);
                features.push(*constant);
                features.into()
            }
        }
    }

    /// Sets the search index. Once only: a version's rows never change.
    pub(crate) fn equip(&self, retrieval: Retrieval) {
        let kept = self.retrieval.set(retrieval);
        debug_assert!(kept.is_ok(), "a version is equipped once, when it is prepared");
    }

    pub(crate) fn retrieval(&self) -> &Retrieval {
        self.retrieval.get().expect("a version is equipped before it serves")
    }

    /// The length of features and weights.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.learning.dim()
    }
}

/// The settings of a model that serving depends on, besides its active version.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServingSettings {
    pub ranking: RankingDefaults,
    pub labels: LabelRule,
    /// Number of candidates of a recommendation that parts which depend on the context score.
    pub candidates: usize,
}

/// How a model ranks if the request does not specify it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankingDefaults {
    pub policy: PolicySpec,
    /// The share of rankings drawn uniformly for the validation pool.
    pub pool_share: PoolShare,
}
