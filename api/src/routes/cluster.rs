//! The cluster of the node.

use std::io;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use celeris_cluster::{Cluster as Replication, ClusterStatus, LogStatus, Phase};
use celeris_model::{DecisionId, LogId, ModelId, VersionId};
use futures_util::future::join_all;
use tokio::time::timeout;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::cluster::context_fields::{self, Definition};
use crate::cluster::events::{self, DescribedActions, NamedEvent};
use crate::cluster::{PACE, StoreCopy, written_body};
use crate::description::NotFound;
use crate::error::ApiError;
use crate::extract::InObject;
use crate::routes::personalizer::write_here;
use crate::schema::cluster::{ClusterMap, ClusterReply, DrainReply};
use crate::state::Node;

/// How long a copy that must be current waits for the logs, and between two looks.
const CATCH_UP_MAX: Duration = Duration::from_secs(10);
const CATCH_UP_LOOK: Duration = Duration::from_millis(50);

/// What clients and operators ask.
pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(get_cluster)).routes(routes!(drain))
}

/// What the other nodes of the cluster ask: files, which may be large, decisions, and fields of contexts.
pub fn for_nodes() -> axum::Router<Node> {
    axum::Router::new()
        .route(context_fields::PATH, axum::routing::post(define_context_fields))
        .route(events::PATH, axum::routing::post(get_ranking_event))
        .route(events::ACTIONS_PATH, axum::routing::post(describe_actions))
        .route("/v1/cluster/copy", axum::routing::get(get_copy))
        .route("/v1/cluster/decisions/{model}/{decision}", axum::routing::get(get_decision))
        .route("/v1/cluster/objects/{object}", axum::routing::get(get_object))
        .route("/v1/cluster/versions/{model}/{version}/{file}", axum::routing::get(get_version_file))
}

fn replication_of(node: &Node) -> Result<&Replication, ApiError> {
    node.replication.as_deref().ok_or_else(|| ApiError::not_found("the node is in no cluster"))
}

fn check_is_member(node: &Node) -> Result<(), ApiError> {
    node.cluster.as_ref().map(drop).ok_or_else(|| ApiError::not_found("the node is in no cluster"))
}

/// Returns the nodes of the cluster, which of them answers for which users, and how far the logs are.
#[utoipa::path(get, path = "/v1/cluster", tag = "node", responses((status = 200, body = ClusterReply)))]
async fn get_cluster(State(node): State<Node>) -> Json<ClusterReply> {
    let map = node.cluster.as_ref().map(|cluster| ClusterMap::from(&*cluster.view()));
    let status = node.replication.as_ref().map(|replication| replication.status().into());
    Json(ClusterReply { enabled: map.is_some(), map, status })
}

/// Has this node give its users up to the other nodes, and take none until it is started again. It goes on
/// forwarding requests. Returns at once; `GET /v1/cluster` shows when it owns nothing.
#[utoipa::path(post, path = "/v1/cluster/drain", tag = "node",
    responses((status = 202, body = DrainReply), (status = 404, response = NotFound)))]
async fn drain(State(node): State<Node>) -> Result<impl IntoResponse, ApiError> {
    let replication = replication_of(&node)?;
    if replication.live().iter().all(|other| other.is_draining) {
        return Err(ApiError::unavailable(
            "no other node is up, and not draining itself, that could take the users over",
        ));
    }
    replication.drain();
    let owned = replication.view().borrow().owned.len();
    Ok((StatusCode::ACCEPTED, Json(DrainReply { draining: true, owned })))
}

/// Fails if the store of this node lacks what others have for good.
fn check_is_whole(status: &ClusterStatus) -> Result<(), ApiError> {
    if let Some(failure) = &status.failure {
        return Err(ApiError::unavailable(format!("node {} fails: {failure}; ask another node", status.node)));
    }
    let stuck = status.logs.iter().find(|(_, log)| log.phase == Phase::Stuck);
    let Some((name, log)) = stuck else { return Ok(()) };
    let problem = log.problem.as_ref().map(|problem| format!(": {problem}")).unwrap_or_default();
    Err(ApiError::unavailable(format!("node {} has stopped to read {name}{problem}; ask another node", status.node)))
}

/// Waits until this node has read everything that was acknowledged before now.
async fn catch_up(replication: &Replication) -> Result<(), ApiError> {
    let late = |_| ApiError::unavailable("this node does not know yet whether it has read all of the logs");
    timeout(CATCH_UP_MAX, read_all(replication)).await.map_err(late)
}

async fn read_all(replication: &Replication) {
    let asked = Instant::now();
    let mut looks = tokio::time::interval(CATCH_UP_LOOK);
    loop {
        looks.tick().await;
        let owned: Vec<LogId> = replication.view().borrow().owned.iter().copied().collect();
        let confirmed = join_all(owned.iter().map(|log| replication.confirm(*log))).await;
        let still_owns = confirmed.iter().all(Result::is_ok);
        let is_read = |log: &LogStatus| {
            let age = log.staleness_seconds.and_then(|age| Duration::try_from_secs_f64(age).ok());
            (still_owns && log.phase == Phase::Owning) || age.is_some_and(|age| age <= asked.elapsed())
        };
        if replication.status().logs.values().all(is_read) {
            return;
        }
    }
}

/// Waits until a copy of the store of this node would have everything that was acknowledged before now; at once in a node
/// on its own.
///
/// # Errors
/// 503 if the store lacks what others have.
pub async fn await_whole(node: &Node) -> Result<(), ApiError> {
    let Some(replication) = node.replication.as_deref() else { return Ok(()) };
    check_is_whole(&replication.status())?;
    catch_up(replication).await
}

/// A copy of the store, as a tar archive. A node that joins reads the logs on from there.
async fn get_copy(State(node): State<Node>) -> Result<Response, ApiError> {
    let replication = replication_of(&node)?;
    check_is_whole(&replication.status())?;
    let permit = node.copy_permits.clone().try_acquire_owned();
    let permit =
        permit.map_err(|_| ApiError::unavailable("the store is being copied; a node makes one copy at a time"))?;
    let storage = node.storage.clone();
    // Not ended by a client that goes away, and so with the permit.
    let made = tokio::task::spawn_blocking(move || StoreCopy::make(&storage, permit)).await;
    let copy = made.map_err(ApiError::internal)??;
    let bytes = copy.archive_bytes().map_err(ApiError::internal)?;
    let body = written_body(PACE, move |into| copy.write(into));
    let headers = [(header::CONTENT_TYPE, "application/x-tar".to_owned()), (header::CONTENT_LENGTH, bytes.to_string())];
    Ok((headers, body).into_response())
}

/// Defines fields of contexts, as the owner of the catalog.
async fn define_context_fields(
    State(node): State<Node>,
    Json(Definition { stream, fields }): Json<Definition>,
) -> Result<StatusCode, ApiError> {
    replication_of(&node)?;
    let predictor = node.predictor.clone();
    let define = move || predictor.catalog().define_fields_here(&stream, &fields);
    tokio::task::spawn_blocking(define).await.map_err(ApiError::internal)??;
    Ok(StatusCode::NO_CONTENT)
}

/// A decision that was made here.
async fn get_decision(
    State(node): State<Node>,
    Path((model, decision)): Path<(u64, DecisionId)>,
) -> Result<Response, ApiError> {
    replication_of(&node)?;
    let found = node.storage.decisions().get(ModelId(model), &decision)?;
    let found = found.filter(|decision| !node.storage.decisions().is_erased(decision));
    let found = found.ok_or_else(|| ApiError::not_found(format!("decision {decision} is not on this node")))?;
    Ok(Json(&*found).into_response())
}

/// An event that was made here.
async fn get_ranking_event(
    State(node): State<Node>,
    Json(NamedEvent { model, event: id }): Json<NamedEvent>,
) -> Result<Response, ApiError> {
    check_is_member(&node)?;
    let found = node.storage.decisions().event(ModelId(model), &id)?;
    let found = found.ok_or_else(|| ApiError::not_found(format!("event {id} is not on this node")))?;
    Ok(Json(found).into_response())
}

/// Describes actions as items, as the owner of the catalog.
async fn describe_actions(
    State(node): State<Node>,
    Json(DescribedActions { model, actions }): Json<DescribedActions>,
) -> Result<StatusCode, ApiError> {
    check_is_member(&node)?;
    let describe = move || write_here(&node, &model, actions);
    tokio::task::spawn_blocking(describe).await.map_err(ApiError::internal)??;
    Ok(StatusCode::NO_CONTENT)
}

/// The bytes of an object.
async fn get_object(State(node): State<Node>, InObject(id): InObject) -> Result<Response, ApiError> {
    replication_of(&node)?;
    let manager = node.manager.clone();
    let read = move || manager.pipelines().object_bytes(id);
    let bytes = tokio::task::spawn_blocking(read).await.map_err(ApiError::internal)??;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}

/// A file of a version.
async fn get_version_file(
    State(node): State<Node>,
    Path((model, version, file)): Path<(u64, u64, String)>,
) -> Result<Response, ApiError> {
    replication_of(&node)?;
    let manager = node.manager.clone();
    let opened = move || manager.versions().open_file((ModelId(model), VersionId(version)), &file);
    let (mut opened, bytes) = tokio::task::spawn_blocking(opened).await.map_err(ApiError::internal)??;
    let body: Body = written_body(PACE, move |into| io::copy(&mut opened, into).map(drop));
    let headers =
        [(header::CONTENT_TYPE, "application/octet-stream".to_owned()), (header::CONTENT_LENGTH, bytes.to_string())];
    Ok((headers, body).into_response())
}
