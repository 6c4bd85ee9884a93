//! Versions of a model: their history, and which one serves.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use celeris_manager::{ModelRecord, VersionRecord};
use celeris_model::VersionId;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{InModel, OfVersion};
use crate::state::Node;

/// A version.
#[derive(Debug, Serialize, ToSchema)]
pub struct Version {
    version: u64,
    /// Whether it serves.
    active: bool,
    /// The version it was trained after.
    parent: Option<u64>,
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
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(activate)).routes(routes!(roll_back))
}

fn describe(record: VersionRecord, active: VersionId) -> Version {
    Version {
        version: record.version.0,
        active: record.version == active,
        parent: record.parent.map(|parent| parent.0),
        algorithm: record.algorithm,
        created: record.created.0,
        dim: record.dim,
        items: record.items,
        label_range: record.label_range,
        metrics: record.metrics,
    }
}

fn activated(record: &ModelRecord) -> Json<Activated> {
    Json(Activated { active_version: record.active.0 })
}

/// All versions of a model, newest first.
#[utoipa::path(get, path = "/v1/models/{model}/versions", tag = "versions", params(("model" = String, Path)),
    responses((status = 200, body = Versions), (status = 404, body = Problem)))]
async fn list(State(node): State<Node>, InModel(model): InModel) -> Result<Json<Versions>, ApiError> {
    let active = node.manager.model(&model)?.active;
    let versions = node.manager.versions(&model)?.into_iter().map(|record| describe(record, active)).collect();
    Ok(Json(Versions { versions }))
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
    Ok(activated(&record))
}

/// Goes back to the version that served before.
#[utoipa::path(post, path = "/v1/models/{model}/rollback", tag = "versions", params(("model" = String, Path)),
    responses((status = 200, body = Activated), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn roll_back(State(node): State<Node>, InModel(model): InModel) -> Result<Json<Activated>, ApiError> {
    let record = tokio::task::block_in_place(|| node.manager.roll_back(&model))?;
    Ok(activated(&record))
}
