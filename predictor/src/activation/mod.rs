//! Which versions serve: activation, preparation of a switch, and shadow predictions.

mod warm;

use std::sync::Arc;

use celeris_model::{ModelId, ModelName, StreamName, VersionId};
use celeris_storage::Storage;

use crate::catalog::ItemCatalog;
use crate::error::PredictorError;
use crate::features::FeatureStore;
use crate::models::{Models, ShadowSample};
use crate::ranking::Scorer;
use crate::users::{Sources, UserKey, UserStore};
use crate::version::{ServingSettings, ServingVersion};

pub use warm::{Hot, Prepared, Share, Warmed};

/// Makes versions serve.
pub struct Activation {
    pub(crate) storage: Storage,
    pub(crate) models: Arc<Models>,
    pub(crate) users: Arc<UserStore>,
    pub(crate) features: Arc<FeatureStore>,
    pub(crate) catalog: Arc<ItemCatalog>,
    pub(crate) scorer: Arc<Scorer>,
}

impl Activation {
    /// Makes `version` the active version of its model, and creates the model if it does not serve
    /// yet. Requests in progress finish on their version.
    ///
    /// # Errors
    /// `Storage`.
    pub fn activate(
        &self,
        stream: &StreamName,
        settings: ServingSettings,
        version: ServingVersion,
    ) -> Result<(), PredictorError> {
        let version = Arc::new(version);
        self.catalog.equip(stream, &version)?;
        self.models.switch(settings, version);
        Ok(())
    }

    /// Makes a prepared version the active one, at once for all requests that start afterwards.
    /// Requests in progress finish on their version.
    pub fn switch(&self, settings: ServingSettings, prepared: Prepared) {
        self.models.switch(settings, prepared.version);
    }

    /// Changes the settings of a model that serves, at once for all requests that start afterwards.
    pub fn configure(&self, model: &ModelName, settings: ServingSettings) {
        self.models.configure(model, settings);
    }

    /// Stops serving a model.
    pub fn remove(&self, model: &ModelName) {
        if let Some(removed) = self.models.remove(model) {
            self.users.release(&removed.stream, removed.id, &[]);
        }
    }

    /// Drops the model's user states under versions not in `kept` from memory.
    pub fn release(&self, (name, id): (&ModelName, ModelId), kept: &[VersionId]) {
        if let Ok(model) = self.models.get(name)
            && model.id == id
        {
            self.users.release(&model.stream, id, kept);
        }
    }

    /// The label that `version` predicts for an observation that the active version has predicted,
    /// from the user's state before it. `None` if the observation was retracted, or the state has
    /// already learnt from it.
    ///
    /// Blocks on the disk if the user is not in memory.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn shadow_prediction(
        &self,
        version: &ServingVersion,
        sample: &ShadowSample,
    ) -> Result<Option<f32>, PredictorError> {
        let key = UserKey { stream: self.models.serving(version)?.stream.clone(), user: sample.user.clone() };
        let entry = self.users.untracked(&key);
        let features = self.features.untracked();
        let sources = Sources::new(&self.storage, &features, &key);
        let mut user = entry.lock(&sources, version)?;
        let predicted = user.state().predict_event(sample.user_epoch, version, &sources)?;
        drop(user);
        self.users.update_weight(&key);
        Ok(predicted)
    }
}
