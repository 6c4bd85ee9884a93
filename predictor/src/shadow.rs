//! Another version beside the active one: every observation that the active version predicted is predicted by it too.
//!
//! A request pays for a look at whether there is such a version, and an entry in a bounded queue. The prediction itself
//! is made by whoever reads the queue, from the state that the user had before the observation.

use std::sync::Arc;

use celeris_model::{ModelId, ModelName, Prediction, UserEpoch, UserId, VersionId};
use tokio::sync::mpsc;

use crate::error::PredictorError;
use crate::node::Predictor;
use crate::users::{Sources, UserEntry, UserKey};
use crate::version::{Beside, ServingVersion};

/// An observation that is durable, and what the active version had expected of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ShadowSample {
    /// Whose observation.
    pub user: UserId,
    /// Its place among the user's events.
    pub user_epoch: UserEpoch,
    /// The version that predicted.
    pub version: VersionId,
    /// The score before learning.
    pub predicted: f32,
    /// The label that came.
    pub label: f32,
}

impl Predictor {
    /// Tells of every observation of `model` from now on, for [`Predictor::predict_beside`] under `version`, in place of
    /// any version that was compared before. What does not fit the queue of `waiting_max` is dropped and counted.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn compare_with(
        &self,
        model: &ModelName,
        version: VersionId,
        waiting_max: usize,
    ) -> Result<mpsc::Receiver<ShadowSample>, PredictorError> {
        let (witnesses, witnessed) = mpsc::channel(waiting_max);
        self.model(model)?.beside.store(Some(Arc::new(Beside { version, witnesses })));
        Ok(witnessed)
    }

    /// Compares the model of this name and identity no more, if `version` is what it is compared with.
    pub fn compare_no_more(&self, (name, id): (&ModelName, ModelId), version: VersionId) {
        if let Ok(model) = self.model(name)
            && model.id == id
            && model.beside.load().as_ref().is_some_and(|beside| beside.version == version)
        {
            model.beside.store(None);
        }
    }

    pub(crate) fn witness(&self, predictions: &[Prediction], witnessed: impl Fn(VersionId, f32) -> ShadowSample) {
        for model in self.served_models().values() {
            let beside = model.beside.load();
            let Some(beside) = &*beside else { continue };
            let Some(of_model) = predictions.iter().find(|prediction| prediction.model == model.id) else { continue };
            if beside.witnesses.try_send(witnessed(of_model.version, of_model.predicted)).is_err() {
                metrics::counter!("celeris_compared_dropped_total", "model" => model.name.to_string()).increment(1);
            }
        }
    }

    /// What `version` expects of an observation that the active version has predicted, from the state that it would have
    /// had. `None` where that can no longer be told: the observation was forgotten, or the state has gone on.
    ///
    /// Blocks on the disk where the user is not in memory.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn predict_beside(
        &self,
        version: &ServingVersion,
        witnessed: &ShadowSample,
    ) -> Result<Option<f32>, PredictorError> {
        let key = UserKey { stream: self.served_as(version)?.stream.clone(), user: witnessed.user.clone() };
        let entry = self.users.untracked().get_or_insert_with(&key, UserEntry::new);
        let features = self.features.untracked();
        let sources = Sources::new(&self.storage, &features, &key);
        let mut user = entry.lock(&sources, version)?;
        let predicted = user.state().predict_event(witnessed.user_epoch, version, &sources)?;
        drop(user);
        self.update_weight(&key);
        Ok(predicted)
    }
}
