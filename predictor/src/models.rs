//! The models and selections of a node by name, with the active version of each model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use arc_swap::{ArcSwap, ArcSwapOption};
use celeris_model::{Context, ModelId, ModelName, Prediction, StreamFields, StreamName, UserEpoch, UserId, VersionId};
use parking_lot::{Mutex, RwLock};

use crate::error::PredictorError;
use crate::exploration::{Exploration, ExplorationView};
use crate::index::StreamCatalog;
use crate::selection::{Selection, SelectionRule};
use crate::version::{ServingSettings, ServingVersion};

/// A serving model: its name, the stream it learns from, and its active version.
pub(crate) struct ServedModel {
    pub(crate) name: ModelName,
    pub(crate) id: ModelId,
    pub(crate) stream: StreamName,
    pub(crate) catalog: Arc<StreamCatalog>,
    pub(crate) settings: ServingSettings,
    pub(crate) active: ArcSwap<ServingVersion>,
    pub(crate) exploration: Arc<Exploration>,
    /// The shadow version, compared with the active one at every observation.
    shadow: ArcSwapOption<Shadow>,
}

impl ServedModel {
    /// The label to record for `label`.
    ///
    /// # Errors
    /// `Model` or `LabelRange` if the model takes no such label.
    pub(crate) fn accepted_label(&self, label: f32) -> Result<f32, PredictorError> {
        self.settings.labels.accepted(&self.name, self.active.load().learning.loss(), label)
    }
}

/// The shadow version, and the channel for the samples of the comparison.
struct Shadow {
    version: VersionId,
    samples: SyncSender<ShadowSample>,
}

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

/// A model or selection that cannot serve, because its data cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    pub reason: Arc<str>,
    /// Its identity; `None` if it cannot be read.
    pub id: Option<ModelId>,
    /// Its stream; `None` if it cannot be read.
    pub stream: Option<StreamName>,
}

/// The models and selections of a node. Reads never wait for a change.
#[derive(Default)]
pub struct Models {
    models: ArcSwap<BTreeMap<ModelName, Arc<ServedModel>>>,
    /// Selections among these models.
    selections: ArcSwap<BTreeMap<ModelName, Arc<Selection>>>,
    /// Models and selections that exist but cannot serve. Consulted only for names that do not
    /// serve, and when all data of a stream is addressed.
    out_of_service: RwLock<BTreeMap<ModelName, Unserved>>,
    /// Held while the set of models or selections changes.
    changing: Mutex<()>,
}

impl Models {
    /// Makes a version that has a search index the active one of its model, and creates the model
    /// if it does not serve yet. Requests in progress finish on their version.
    pub(crate) fn switch(&self, settings: ServingSettings, version: Arc<ServingVersion>) {
        let catalog = Arc::clone(version.retrieval().catalog());
        let _changing = self.changing.lock();
        let models = self.models.load();
        let before = models.get(&version.model).filter(|before| before.id == version.model_id);
        // Enlist before dismissing, so that items in both tables stay in the catalog throughout.
        catalog.enlist(version.retrieval());
        if let Some(model) = before
            && model.stream == catalog.stream
            && model.settings == settings
        {
            catalog.dismiss(model.active.swap(version).retrieval());
            return;
        }
        let name = version.model.clone();
        let shadow = before.and_then(|model| model.shadow.load_full());
        let exploration = before.map_or_else(|| Arc::new(Exploration::new()), |model| model.exploration.clone());
        let model = ServedModel {
            name: name.clone(),
            id: version.model_id,
            stream: catalog.stream.clone(),
            catalog,
            settings,
            active: version.into(),
            exploration,
            shadow: shadow.into(),
        };
        let before = before.cloned();
        let mut models = BTreeMap::clone(&models);
        models.insert(name, Arc::new(model));
        self.models.store(Arc::new(models));
        if let Some(before) = before {
            before.catalog.dismiss(before.active.load().retrieval());
        }
    }

    /// Changes the settings of a model that serves.
    pub(crate) fn configure(&self, model: &ModelName, settings: ServingSettings) {
        let _changing = self.changing.lock();
        let mut models = BTreeMap::clone(&self.models.load());
        let Some(before) = models.get(model) else { return };
        let ServedModel { name, id, stream, catalog, active, exploration, shadow, .. } = &**before;
        let configured = ServedModel {
            name: name.clone(),
            id: *id,
            stream: stream.clone(),
            catalog: catalog.clone(),
            settings,
            active: active.load_full().into(),
            exploration: exploration.clone(),
            shadow: shadow.load_full().into(),
        };
        models.insert(name.clone(), Arc::new(configured));
        self.models.store(Arc::new(models));
    }

    /// Stops serving a model, which is returned if it served.
    pub(crate) fn remove(&self, model: &ModelName) -> Option<Arc<ServedModel>> {
        let _changing = self.changing.lock();
        self.out_of_service.write().remove(model);
        let mut models = BTreeMap::clone(&self.models.load());
        let removed = models.remove(model);
        self.models.store(Arc::new(models));
        if let Some(removed) = &removed {
            removed.catalog.dismiss(removed.active.load().retrieval());
        }
        removed
    }

    /// The model of this name.
    pub(crate) fn get(&self, name: &ModelName) -> Result<Arc<ServedModel>, PredictorError> {
        let models = self.models.load();
        models.get(name).cloned().ok_or_else(|| match (self.selection(name), self.check_in_service(name)) {
            (Some(selection), _) => selection.is_no_model(),
            (None, Err(out)) => out,
            (None, Ok(())) => PredictorError::UnknownModel { model: name.clone() },
        })
    }

    /// The model of this name, or the first arm of the selection of this name: both are on the same
    /// stream.
    pub(crate) fn on_stream_of(&self, name: &ModelName) -> Result<Arc<ServedModel>, PredictorError> {
        self.addressed(name).map(|(_, served)| served)
    }

    /// The id of the model or selection of this name, and [`Models::on_stream_of`] it.
    pub(crate) fn addressed(&self, name: &ModelName) -> Result<(ModelId, Arc<ServedModel>), PredictorError> {
        match self.selection(name) {
            Some(selection) => Ok((selection.rule.id, self.get(&selection.rule.arms[0])?)),
            None => self.get(name).map(|served| (served.id, served)),
        }
    }

    /// The label to record for `label` on a model or selection `name`, of which `served` is the first
    /// or only model: one that is within the `label_range` of every arm.
    ///
    /// # Errors
    /// `Model` or `LabelRange` if a model takes no such label.
    pub(crate) fn accepted_label(
        &self,
        name: &ModelName,
        served: &ServedModel,
        label: f32,
    ) -> Result<f32, PredictorError> {
        let label = served.accepted_label(label)?;
        // Models and selections share one space of names, so this is a model, and not looked up again.
        if served.name == *name {
            return Ok(label);
        }
        let Some(selection) = self.selection(name) else { return Ok(label) };
        let others = selection.rule.arms.iter().skip(1);
        others.map(|arm| self.get(arm)).try_fold(label, |label, arm| {
            let arm = arm?;
            // An arm of another loss limits labels when it learns.
            if arm.settings.labels.range.is_some() { arm.accepted_label(label) } else { Ok(label) }
        })
    }

    /// The serving model that `version` belongs to; fails if another model was created under its
    /// name since.
    pub(crate) fn serving(&self, version: &ServingVersion) -> Result<Arc<ServedModel>, PredictorError> {
        let served = self.get(&version.model)?;
        if served.id == version.model_id {
            Ok(served)
        } else {
            Err(PredictorError::UnknownModel { model: version.model.clone() })
        }
    }

    /// The serving models.
    pub(crate) fn served(&self) -> Vec<Arc<ServedModel>> {
        self.models.load().values().cloned().collect()
    }

    /// The active versions of all models that learn from `stream`, by model name.
    pub(crate) fn learners(&self, stream: &StreamName) -> Vec<Arc<ServingVersion>> {
        let models = self.models.load();
        models.values().filter(|model| model.stream == *stream).map(|model| model.active.load_full()).collect()
    }

    /// The models and selections on `stream`, in service or not.
    pub(crate) fn all_on(&self, stream: &StreamName) -> Vec<ModelId> {
        let (models, selections) = (self.models.load(), self.selections.load());
        let mut ids: Vec<ModelId> =
            models.values().filter(|model| model.stream == *stream).map(|model| model.id).collect();
        let rules = selections.values().map(|selection| &selection.rule);
        ids.extend(rules.filter(|rule| rule.stream == *stream).map(|rule| rule.id));
        let may_be_on = |unserved: &&Unserved| unserved.stream.as_ref().is_none_or(|other| other == stream);
        ids.extend(self.out_of_service.read().values().filter(may_be_on).filter_map(|unserved| unserved.id));
        ids
    }

    pub(crate) fn selection(&self, name: &ModelName) -> Option<Arc<Selection>> {
        self.selections.load().get(name).cloned()
    }

    /// The serving selections.
    pub(crate) fn selections(&self) -> Vec<Arc<Selection>> {
        self.selections.load().values().cloned().collect()
    }

    /// Sends the samples of an observation's predictions to the shadow comparisons in progress.
    pub(crate) fn send_shadow_samples(
        &self,
        predictions: &[Prediction],
        sample: impl Fn(VersionId, f32) -> ShadowSample,
    ) {
        for model in self.models.load().values() {
            let shadow = model.shadow.load();
            let Some(shadow) = &*shadow else { continue };
            let Some(of_model) = predictions.iter().find(|prediction| prediction.model == model.id) else { continue };
            if shadow.samples.try_send(sample(of_model.version, of_model.predicted)).is_err() {
                metrics::counter!("celeris_compared_dropped_total", "model" => model.name.to_string()).increment(1);
            }
        }
    }

    /// The active version of a model.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn active(&self, model: &ModelName) -> Result<Arc<ServingVersion>, PredictorError> {
        Ok(self.get(model)?.active.load_full())
    }

    /// Names of the serving models, in order.
    #[must_use]
    pub fn names(&self) -> Vec<ModelName> {
        self.models.load().keys().cloned().collect()
    }

    /// Names and ids of the serving selections, in the order of the names.
    #[must_use]
    pub fn selection_ids(&self) -> Vec<(ModelName, ModelId)> {
        self.selections().into_iter().map(|selection| (selection.rule.name.clone(), selection.rule.id)).collect()
    }

    /// Fails if neither a model nor a selection of this name serves.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn check_serves(&self, name: &ModelName) -> Result<(), PredictorError> {
        self.on_stream_of(name).map(drop)
    }

    /// The fields of the contexts on the stream of a model or selection.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn context_fields(&self, name: &ModelName) -> Result<Arc<StreamFields>, PredictorError> {
        self.on_stream_of(name).map(|served| served.catalog.fields())
    }

    /// Checks the fields of a context against those of the stream of a model or selection.
    ///
    /// # Errors
    /// `UnknownModel`, or `Model` for a field of another type.
    pub(crate) fn check_context(&self, name: &ModelName, context: Option<&Context>) -> Result<(), PredictorError> {
        let Some(context) = context else { return Ok(()) };
        Ok(self.on_stream_of(name)?.catalog.fields().check(context)?)
    }

    /// The stream of the model or selection.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn stream_of(&self, name: &ModelName) -> Result<StreamName, PredictorError> {
        Ok(self.on_stream_of(name)?.stream.clone())
    }

    /// The id of the model or selection, under which its decisions are stored.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn decides_as(&self, name: &ModelName) -> Result<ModelId, PredictorError> {
        self.addressed(name).map(|(id, _)| id)
    }

    /// The exploration counts of a model since the node started.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn exploration(&self, model: &ModelName) -> Result<ExplorationView, PredictorError> {
        Ok(self.get(model)?.exploration.view())
    }

    /// Starts serving a selection, replacing one of the same name. The caller guarantees that its
    /// arms are serving models that learn from its stream.
    pub fn put_selection(&self, rule: SelectionRule) {
        let _changing = self.changing.lock();
        let mut selections = BTreeMap::clone(&self.selections.load());
        let selection = Selection::new(rule);
        selections.insert(selection.rule.name.clone(), selection.into());
        self.selections.store(Arc::new(selections));
    }

    /// Stops serving a selection, and storing its state; returns whether it was serving.
    pub fn remove_selection(&self, name: &ModelName) -> bool {
        let _changing = self.changing.lock();
        let mut selections = BTreeMap::clone(&self.selections.load());
        let removed = selections.remove(name);
        self.selections.store(Arc::new(selections));
        if let Some(view) = removed.as_ref().and_then(|selection| selection.shared.as_ref()) {
            view.end_storing();
        }
        removed.is_some()
    }

    /// Fails requests to the model or selection of this name with the reason until it is removed.
    /// The caller guarantees that it does not serve.
    pub fn take_out_of_service(&self, name: &ModelName, unserved: Unserved) {
        self.out_of_service.write().insert(name.clone(), unserved);
    }

    /// The models and selections that cannot serve, by name.
    #[must_use]
    pub fn out_of_service(&self) -> BTreeMap<ModelName, Unserved> {
        self.out_of_service.read().clone()
    }

    /// Fails if the model or selection of this name cannot serve.
    ///
    /// # Errors
    /// `OutOfService`.
    pub fn check_in_service(&self, name: &ModelName) -> Result<(), PredictorError> {
        match self.out_of_service.read().get(name) {
            Some(Unserved { reason, .. }) => {
                Err(PredictorError::OutOfService { model: name.clone(), reason: Arc::clone(reason) })
            }
            None => Ok(()),
        }
    }

    /// Starts sending every observation of `model` to the returned channel, to be predicted by the
    /// shadow `version` ([`crate::Activation::shadow_prediction`]). Replaces an earlier comparison.
    /// Samples beyond a queue of `waiting_max` are dropped and counted.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn start_shadow(
        &self,
        model: &ModelName,
        version: VersionId,
        waiting_max: usize,
    ) -> Result<Receiver<ShadowSample>, PredictorError> {
        let (samples, receiver) = sync_channel(waiting_max);
        self.get(model)?.shadow.store(Some(Arc::new(Shadow { version, samples })));
        Ok(receiver)
    }

    /// Stops the comparison of the model with the shadow `version`, if it is in progress.
    pub fn stop_shadow(&self, (name, id): (&ModelName, ModelId), version: VersionId) {
        if let Ok(model) = self.get(name)
            && model.id == id
            && model.shadow.load().as_ref().is_some_and(|shadow| shadow.version == version)
        {
            model.shadow.store(None);
        }
    }
}
