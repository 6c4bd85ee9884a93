//! API keys of clients.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use celeris_manager::{Changer, NewKey};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::asking::Asking;
use crate::description::{Conflict, NotFound};
use crate::error::ApiError;
use crate::extract::Body;
use crate::schema::keys::{Key, Keys, NewKeyBody, NewKeyReply};
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(list_keys, create_key)).routes(routes!(revoke_key))
}

fn changer(node: &Node, Asking(principal): &Asking) -> Changer {
    Changer {
        name: principal.as_ref().map(|principal| principal.name().to_owned()),
        key: principal.as_ref().and_then(|principal| principal.key().map(str::to_owned)),
        has_other_admin: node.access.has_admin_key(),
    }
}

/// Lists all keys, revoked and expired ones too, the latest first.
#[utoipa::path(get, path = "/v1/keys", tag = "node", responses((status = 200, body = Keys)))]
async fn list_keys(State(node): State<Node>) -> Json<Keys> {
    Json(Keys { keys: node.manager.api_keys().list().iter().map(|key| Key::from(&**key)).collect() })
}

/// Makes a key. With the first one, which has the role `admin`, every request needs a key from then on.
#[utoipa::path(post, path = "/v1/keys", tag = "node", request_body = NewKeyBody,
    responses((status = 201, body = NewKeyReply), (status = 409, response = Conflict)))]
async fn create_key(
    State(node): State<Node>,
    asking: Asking,
    Body(body): Body<NewKeyBody>,
) -> Result<(StatusCode, Json<NewKeyReply>), ApiError> {
    if node.cluster.is_some() && !node.access.node_secret().exists() {
        return Err(ApiError::conflict(
            "the nodes of this cluster do not know each other: give all of them the same cluster.secret_file first",
        ));
    }
    let new = NewKey::from(body);
    let made = node.manager.api_keys().create(new, changer(&node, &asking))?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

/// Revokes a key: it is refused from now on.
#[utoipa::path(delete, path = "/v1/keys/{key}", tag = "node",
    params(("key" = String, Path, description = "The id of the key")),
    responses((status = 200, body = Key), (status = 404, response = NotFound), (status = 409, response = Conflict)))]
async fn revoke_key(State(node): State<Node>, asking: Asking, Path(key): Path<String>) -> Result<Json<Key>, ApiError> {
    let revoked = node.manager.api_keys().revoke(&key, changer(&node, &asking))?;
    Ok(Json(Key::from(&*revoked)))
}
