//! Shadow evaluation: a second version predicts every observation that the active version predicted.
//!
//! A request only checks whether there is a shadow version and pushes an entry to a bounded queue. The reader of the
//! queue makes the prediction, from the user's state before the observation.

use std::sync::Arc;

use celeris_model::{ModelId, ModelName, Prediction, UserEpoch, UserId, VersionId};
use tokio::sync::mpsc;

use crate::error::PredictorError;
use crate::node::Predictor;
use crate::users::{Sources, UserEntry, UserKey};
use crate::version::{ServingVersion, Shadow};

/// A durable observation, and the active version's prediction of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ShadowSample {
    pub user: UserId,
    /// The observation's epoch.
    pub user_epoch: UserEpoch,
    /// The version that predicted.
    pub version: VersionId,
    /// The prediction, made before learning.
    pub predicted: f32,
    pub label: f32,
}

impl Predictor {
    /// Starts sending every observation of `model` to the returned channel, for [`Predictor::predict_beside`] under
    /// `version`. Replaces an earlier comparison. Samples beyond a queue of `waiting_max` are dropped and counted.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn compare_with(
        &self,
        model: &ModelName,
        version: VersionId,
        waiting_max: usize,
    ) -> Result<mpsc::Receiver<ShadowSample>, PredictorError> {
        let (samples, receiver) = mpsc::channel(waiting_max);
        self.model(model)?.shadow.store(Some(Arc::new(Shadow { version, samples })));
        Ok(receiver)
    }

    /// Stops the comparison of the model with `version`, if it is in progress.
    pub fn compare_no_more(&self, (name, id): (&ModelName, ModelId), version: VersionId) {
        if let Ok(model) = self.model(name)
            && model.id == id
            && model.shadow.load().as_ref().is_some_and(|shadow| shadow.version == version)
        {
            model.shadow.store(None);
        }
    }

    pub(crate) fn send_shadow_samples(
        &self,
        predictions: &[Prediction],
        sample: impl Fn(VersionId, f32) -> ShadowSample,
    ) {
        for model in self.served_models().values() {
            let shadow = model.shadow.load();
            let Some(shadow) = &*shadow else { continue };
            let Some(of_model) = predictions.iter().find(|prediction| prediction.model == model.id) else { continue };
            if shadow.samples.try_send(sample(of_model.version, of_model.predicted)).is_err() {
                metrics::counter!("celeris_compared_dropped_total", "model" => model.name.to_string()).increment(1);
            }
        }
    }

    /// The label that `version` predicts for an observation that the active version has predicted, from the user's
    /// state before it. `None` if the observation was retracted, or the state has already learnt from it.
    ///
    /// Blocks on the disk if the user is not in memory.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn predict_beside(
        &self,
        version: &ServingVersion,
        sample: &ShadowSample,
    ) -> Result<Option<f32>, PredictorError> {
        let key = UserKey { stream: self.served_as(version)?.stream.clone(), user: sample.user.clone() };
        let entry = self.users.untracked().get_or_insert_with(&key, UserEntry::new);
        let features = self.features.untracked();
        let sources = Sources::new(&self.storage, &features, &key);
        let mut user = entry.lock(&sources, version)?;
        let predicted = user.state().predict_event(sample.user_epoch, version, &sources)?;
        drop(user);
        self.update_weight(&key);
        Ok(predicted)
    }
}
