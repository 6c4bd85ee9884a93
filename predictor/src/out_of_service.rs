//! Models and selections that exist and cannot serve, since what they are made of cannot be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use celeris_model::{ModelId, ModelName, StreamName};
use parking_lot::RwLock;

use crate::error::PredictorError;
use crate::node::Predictor;

/// A model or selection that cannot serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// Why it cannot.
    pub reason: Arc<str>,
    /// Its identity; `None` where that cannot be read.
    pub id: Option<ModelId>,
    /// Its stream; `None` where that cannot be read.
    pub stream: Option<StreamName>,
}

/// By name. Only looked at for names that nothing serves, and where all data on a stream is meant.
#[derive(Debug, Default)]
pub(crate) struct OutOfService {
    by_name: RwLock<BTreeMap<ModelName, Unserved>>,
}

impl OutOfService {
    pub(crate) fn remove(&self, name: &ModelName) {
        self.by_name.write().remove(name);
    }

    /// Those that may be on a stream.
    pub(crate) fn on(&self, stream: &StreamName) -> Vec<ModelId> {
        let by_name = self.by_name.read();
        let may_be_on = |unserved: &&Unserved| unserved.stream.as_ref().is_none_or(|other| other == stream);
        by_name.values().filter(may_be_on).filter_map(|unserved| unserved.id).collect()
    }
}

impl Predictor {
    /// Answers requests to the model or selection of this name by the reason from now on, until it is removed. The caller
    /// guarantees that it does not serve.
    pub fn take_out_of_service(&self, name: &ModelName, unserved: Unserved) {
        self.out_of_service.by_name.write().insert(name.clone(), unserved);
    }

    /// The models and selections that cannot serve, by name.
    #[must_use]
    pub fn out_of_service(&self) -> BTreeMap<ModelName, Unserved> {
        self.out_of_service.by_name.read().clone()
    }

    /// Refuses the name of a model or selection that cannot serve.
    ///
    /// # Errors
    /// `OutOfService`.
    pub fn check_in_service(&self, name: &ModelName) -> Result<(), PredictorError> {
        match self.out_of_service.by_name.read().get(name) {
            Some(Unserved { reason, .. }) => {
                Err(PredictorError::OutOfService { model: name.clone(), reason: Arc::clone(reason) })
            }
            None => Ok(()),
        }
    }
}
