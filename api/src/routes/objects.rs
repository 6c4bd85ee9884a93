//! Objects: the learnt or large parameters of pipelines.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::description::NotFound;
use crate::error::ApiError;
use crate::extract::{InObject, RawBody};
use crate::schema::pipelines::ObjectReply;
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(get_object, put_object))
}

/// Describes an object.
#[utoipa::path(get, path = "/v1/objects/{object}", tag = "pipelines", params(InObject),
    responses((status = 200, body = ObjectReply), (status = 404, response = NotFound)))]
async fn get_object(State(node): State<Node>, InObject(object): InObject) -> Result<Json<ObjectReply>, ApiError> {
    Ok(Json(node.manager.pipelines().object(object)?.into()))
}

/// Stores an object under the SHA-256 of its bytes. It is removed an hour later unless a pipeline names it by then, and
/// when the last one that does is deleted or declared without it.
#[utoipa::path(put, path = "/v1/objects/{object}", tag = "pipelines", params(InObject),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 201, body = ObjectReply)))]
async fn put_object(
    State(node): State<Node>,
    InObject(object): InObject,
    RawBody(bytes): RawBody,
) -> Result<(StatusCode, Json<ObjectReply>), ApiError> {
    Ok((StatusCode::CREATED, Json(node.manager.pipelines().put_object(object, &bytes)?.into())))
}
