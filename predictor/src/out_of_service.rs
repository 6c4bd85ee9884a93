//! Models and selections that exist and cannot serve, because their data cannot be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use celeris_model::{ModelId, ModelName, StreamName};
use parking_lot::RwLock;

use crate::error::PredictorError;
use crate::node::Predictor;

/// A model or selection that cannot serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    pub reason: Arc<str>,
    /// Its identity; `None` if it cannot be read.
    pub id: Option<ModelId>,
    /// Its stream; `None` if it cannot be read.
    pub stream: Option<StreamName>,
}

/// By name. Consulted only for names that do not serve, and when all data of a stream is addressed.
#[derive(Debug, Default)]
pub(crate) struct OutOfService {
    by_name: RwLock<BTreeMap<ModelName, Unserved>>,
}

impl OutOfService {
    pub(crate) fn remove(&self, name: &ModelName) {
        self.by_name.write().remove(name);
    }

    /// Those that are or may be on a stream.
    pub(crate) fn on(&self, stream: &StreamName) -> Vec<ModelId> {
        let by_name = self.by_name.read();
        let may_be_on = |unserved: &&Unserved| unserved.stream.as_ref().is_none_or(|other| other == stream);
        by_name.values().filter(may_be_on).filter_map(|unserved| unserved.id).collect()
    }
}

impl Predictor {
    /// Fails requests to the model or selection of this name with the reason until it is removed. The caller guarantees
    /// that it does not serve.
    pub fn take_out_of_service(&self, name: &ModelName, unserved: Unserved) {
        self.out_of_service.by_name.write().insert(name.clone(), unserved);
    }

    /// The models and selections that cannot serve, by name.
    #[must_use]
    pub fn out_of_service(&self) -> BTreeMap<ModelName, Unserved> {
        self.out_of_service.by_name.read().clone()
    }

    /// Fails if the model or selection of this name cannot serve.
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
