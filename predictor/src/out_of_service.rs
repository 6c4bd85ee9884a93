//! Models and selections that exist and cannot serve, since what they are made of cannot be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use celeris_model::ModelName;
use parking_lot::RwLock;

use crate::error::PredictorError;
use crate::node::Predictor;

/// Names with the reason. Only looked at for names that nothing serves.
#[derive(Debug, Default)]
pub(crate) struct OutOfService {
    reasons: RwLock<BTreeMap<ModelName, Arc<str>>>,
}

impl OutOfService {
    pub(crate) fn remove(&self, name: &ModelName) {
        self.reasons.write().remove(name);
    }
}

impl Predictor {
    /// Answers requests to the model or selection of this name by `reason` from now on, until it is removed. The caller
    /// guarantees that it does not serve.
    pub fn take_out_of_service(&self, name: &ModelName, reason: &str) {
        self.out_of_service.reasons.write().insert(name.clone(), reason.into());
    }

    /// The models and selections that cannot serve, by name, with the reason.
    #[must_use]
    pub fn out_of_service(&self) -> BTreeMap<ModelName, Arc<str>> {
        self.out_of_service.reasons.read().clone()
    }

    /// Refuses the name of a model or selection that cannot serve.
    ///
    /// # Errors
    /// `OutOfService`.
    pub fn check_in_service(&self, name: &ModelName) -> Result<(), PredictorError> {
        match self.out_of_service.reasons.read().get(name) {
            Some(reason) => Err(PredictorError::OutOfService { model: name.clone(), reason: Arc::clone(reason) }),
            None => Ok(()),
        }
    }
}
