//! Checks of every request before its handler: host and origin, then who asks.

use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request};
use axum::http::Method;
use celeris_manager::Role;
use celeris_model::ModelName;

use super::origins::Origins;
use crate::access::{Counted, Needs, Principal, needs, principal_of_node};
use crate::asking::covers;
use crate::cluster::HOP;
use crate::error::ApiError;
use crate::state::Node;

/// What a request is checked by.
pub struct Admission {
    pub origins: Origins,
    pub node: Node,
}

impl Admission {
    /// The request with its principal, if it has one.
    ///
    /// # Errors
    /// Those of [`Origins::check`]; 401 without a valid key, 403 if the key is not for the operation, 429 beyond its rate, 503 on
    /// a node that does not know the keys of its cluster yet.
    pub async fn admit(&self, request: Request) -> Result<Request, ApiError> {
        self.origins.check(&request)?;
        with_principal_of(&self.node, request).await
    }
}

/// Finds out who asks, and notes it in the request.
async fn with_principal_of(node: &Node, request: Request) -> Result<Request, ApiError> {
    let access = &node.access;
    let is_required = access.is_required(node.manager.api_keys());
    // A preflight request of a browser has no key.
    let Some(path) = request.extensions().get::<MatchedPath>().filter(|_| *request.method() != Method::OPTIONS) else {
        return Ok(request);
    };
    let path = path.as_str();
    // What is not of the API is a file of the page, or a request between nodes.
    let needed = match needs(request.method(), path) {
        Some(Needs::Nothing) => return Ok(request),
        None if !path.starts_with("/v1/") => return Ok(request),
        needed => needed,
    };
    let is_hop = request.headers().contains_key(HOP);
    match access.node_secret().is_in(request.headers()) {
        Some(true) => {
            let principal = principal_of_node(request.headers());
            // What only nodes ask, they ask for themselves.
            let principal = principal.or_else(|| needed.is_none().then(Principal::node));
            access.check_goes_on(node.manager.api_keys(), principal.as_ref())?;
            return Ok(with_principal(request, principal));
        }
        Some(false) => {
            return Err(ApiError::unavailable(
                "the secret of the cluster is another one here; give all nodes the same cluster.secret_file",
            ));
        }
        None if access.node_secret().exists() && (is_hop || (needed.is_none() && !is_required)) => {
            return Err(ApiError::unauthenticated("this is for the nodes of the cluster, which know its secret"));
        }
        None => {}
    }
    if !is_required {
        if !node.has_joined() && node.replication.is_some() {
            return Err(ApiError::unavailable("the node joins its cluster, and does not know its keys yet"));
        }
        return Ok(request);
    }
    let principal = access.principal_of(node.manager.api_keys(), request.headers()).await?;
    let request = allowed(node, needed, &principal, request).await?;
    Ok(with_principal(request, Some(principal)))
}

/// The request, if the principal may make it.
async fn allowed(
    node: &Node,
    needed: Option<Needs>,
    principal: &Principal,
    request: Request,
) -> Result<Request, ApiError> {
    node.access.take(principal, Counted::Requests, 1.0)?;
    let grant = principal.grant();
    let role = match needed {
        Some(Needs::Nothing) => return Ok(request),
        Some(Needs::Filtered(role) | Needs::OfModel(role) | Needs::OfNode(role)) => role,
        // What nodes ask each other.
        None => Role::Admin,
    };
    if !grant.has(role) {
        return Err(ApiError::not_permitted(format!("this needs a key with the role {role}")));
    }
    if !grant.is_bounded() || matches!(needed, Some(Needs::Filtered(_))) {
        return Ok(request);
    }
    if !matches!(needed, Some(Needs::OfModel(_))) {
        return Err(ApiError::not_permitted("this needs a key that is not bounded to models or streams"));
    }
    let (mut parts, body) = request.into_parts();
    let texts = RawPathParams::from_request_parts(&mut parts, &()).await.ok();
    let named = texts.as_ref().and_then(|texts| texts.iter().find(|(name, _)| *name == "model"));
    let model = named.and_then(|(_, text)| ModelName::new(text).ok());
    if !model.is_some_and(|model| covers(node, grant, &model)) {
        return Err(ApiError::not_permitted("the key is for other models or streams"));
    }
    Ok(Request::from_parts(parts, body))
}

fn with_principal(mut request: Request, principal: Option<Principal>) -> Request {
    if let Some(principal) = principal {
        request.extensions_mut().insert(principal);
    }
    request
}
