//! Who asks, for handlers.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use celeris_manager::Grant;
use celeris_model::ModelName;

use crate::access::{Counted, Principal};
use crate::error::ApiError;
use crate::state::Node;

/// The principal of a request; `None` on a node that is open.
#[derive(Debug, Clone)]
pub struct Asking(pub Option<Principal>);

impl Asking {
    /// Takes an observation of those that the principal may make.
    ///
    /// # Errors
    /// 429 if none is left.
    pub fn take_observation(&self, node: &Node) -> Result<(), ApiError> {
        self.0.as_ref().map_or(Ok(()), |principal| node.access.take(principal, Counted::Observations, 1.0))
    }

    /// Whether the principal may know of a model or selection.
    #[must_use]
    pub fn covers(&self, node: &Node, model: &ModelName) -> bool {
        self.0.as_ref().is_none_or(|principal| covers(node, principal.grant(), model))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Asking {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        Ok(Self(parts.extensions.get::<Principal>().cloned()))
    }
}

/// Whether a grant is for this model or selection: by its name or by its stream.
pub fn covers(node: &Node, grant: &Grant, model: &ModelName) -> bool {
    if grant.covers(model, None) || grant.streams.is_empty() {
        return grant.covers(model, None);
    }
    let registry = node.manager.registry();
    let of_model = registry.model(model).ok().map(|record| record.config.stream);
    let stream = of_model.or_else(|| registry.selection(model).ok().flatten().map(|record| record.stream));
    grant.covers(model, stream.as_ref())
}
