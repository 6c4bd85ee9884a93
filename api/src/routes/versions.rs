//! Versions of a model: their history, and which one serves.

use std::collections::BTreeMap;
use std::path::PathBuf;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use celeris_manager::{ErasedSpan, ModelRecord, VersionRecord, erased_users};
use celeris_model::{StreamName, VersionId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{Body, InModel, OfVersion};
use crate::state::Node;

/// A version.
#[derive(Debug, Serialize, ToSchema)]
pub struct Version {
    version: u64,
    /// Whether it serves.
    active: bool,
    /// The version it was trained after.
    parent: Option<u64>,
    /// The version whose factors its training went on from; null where it was trained from nothing.
    warm_from: Option<u64>,
    algorithm: String,
    /// In Unix milliseconds.
    created: i64,
    dim: usize,
    /// Items in its table.
    items: u64,
    /// The smallest and largest label it was trained on.
    label_range: Option<(f32, f32)>,
    /// What the trainer measured.
    metrics: BTreeMap<String, f64>,
    /// Users who have been erased since it was trained on what they had said.
    erased_users: usize,
    /// What to mind before it is made to serve; null where there is nothing.
    warning: Option<String>,
}

/// All versions, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Versions {
    versions: Vec<Version>,
}

/// Which version serves now.
#[derive(Debug, Serialize, ToSchema)]
pub struct Activated {
    active_version: u64,
    /// What to mind about it; null where there is nothing.
    warning: Option<String>,
}

/// A version to register.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterBody {
    /// The version directory, inside the folder that the node's configuration names as `import_dir`.
    #[schema(value_type = String)]
    path: PathBuf,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(list, register)).routes(routes!(activate)).routes(routes!(roll_back))
}

/// The erasures of a stream that the log remembers.
fn erasures(node: &Node, stream: &StreamName) -> Result<Vec<ErasedSpan>, ApiError> {
    let erasures = tokio::task::block_in_place(|| node.storage.erasures(stream))?;
    Ok(erasures.iter().map(ErasedSpan::from).collect())
}

fn warning(erased_users: usize) -> Option<String> {
    (erased_users > 0).then(|| {
        format!(
            "this version was trained on what {erased_users} since erased users had said; \
             retrain with \"cold\": true to be rid of it"
        )
    })
}

fn describe(record: VersionRecord, active: VersionId, erasures: &[ErasedSpan]) -> Version {
    let erased_users = erased_users(&record, erasures);
    Version {
        version: record.version.0,
        active: record.version == active,
        parent: record.parent.map(|parent| parent.0),
        warm_from: record.warm.map(|warm| warm.from.0),
        algorithm: record.algorithm,
        created: record.created.0,
        dim: record.dim,
        items: record.items,
        label_range: record.label_range,
        metrics: record.metrics,
        erased_users,
        warning: warning(erased_users),
    }
}

fn activated(node: &Node, record: &ModelRecord) -> Result<Json<Activated>, ApiError> {
    let version = node.manager.version(&record.config.name, record.active)?;
    let erased_users = erased_users(&version, &erasures(node, &record.config.stream)?);
    Ok(Json(Activated { active_version: record.active.0, warning: warning(erased_users) }))
}

/// All versions of a model, newest first.
#[utoipa::path(get, path = "/v1/models/{model}/versions", tag = "versions", params(("model" = String, Path)),
    responses((status = 200, body = Versions), (status = 404, body = Problem)))]
async fn list(State(node): State<Node>, InModel(model): InModel) -> Result<Json<Versions>, ApiError> {
    let ModelRecord { active, config, .. } = node.manager.model(&model)?;
    let erasures = erasures(&node, &config.stream)?;
    let versions = node.manager.versions(&model)?;
    let versions = versions.into_iter().map(|record| describe(record, active, &erasures)).collect();
    Ok(Json(Versions { versions }))
}

/// Registers a version that an external batch job has trained. The directory is checked whole and copied; the version
/// that serves stays the same until another is activated.
#[utoipa::path(post, path = "/v1/models/{model}/versions", tag = "versions", params(("model" = String, Path)),
    request_body = RegisterBody,
    responses((status = 201, body = Version), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn register(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(body): Body<RegisterBody>,
) -> Result<(StatusCode, Json<Version>), ApiError> {
    let registered = tokio::task::block_in_place(|| node.manager.register(&model, &body.path))?;
    let ModelRecord { active, config, .. } = node.manager.model(&model)?;
    let erasures = erasures(&node, &config.stream)?;
    Ok((StatusCode::CREATED, Json(describe(registered, active, &erasures))))
}

/// Makes a version serve. What users have taught since stays with them.
#[utoipa::path(post, path = "/v1/models/{model}/versions/{version}/activate", tag = "versions",
    params(("model" = String, Path), ("version" = u64, Path)),
    responses((status = 200, body = Activated), (status = 404, body = Problem)))]
async fn activate(
    State(node): State<Node>,
    OfVersion { model, version }: OfVersion,
) -> Result<Json<Activated>, ApiError> {
    let record = tokio::task::block_in_place(|| node.manager.activate(&model, version))?;
    activated(&node, &record)
}

/// Goes back to the version that served before.
#[utoipa::path(post, path = "/v1/models/{model}/rollback", tag = "versions", params(("model" = String, Path)),
    responses((status = 200, body = Activated), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn roll_back(State(node): State<Node>, InModel(model): InModel) -> Result<Json<Activated>, ApiError> {
    let record = tokio::task::block_in_place(|| node.manager.roll_back(&model))?;
    activated(&node, &record)
}
