//! Versions of a model: registration, activation, rollback, pinning and comparison.

use std::path::PathBuf;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use celeris_manager::{ErasedSpan, ModelRecord, Moved, VersionDiff, VersionPart, VersionRecord, erased_users};
use celeris_model::{ModelName, StreamName};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{Body, InModel, OfTwoVersions, OfVersion};
use crate::schema::versions::{Activated, Diff, Rankings, Version, Versions};
use crate::state::Node;

/// A version to register.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterBody {
    /// The version directory, inside the folder configured as `import_dir`.
    #[schema(value_type = String)]
    path: PathBuf,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new()
        .routes(routes!(list_versions, register_version))
        .routes(routes!(activate_version))
        .routes(routes!(roll_back))
        .routes(routes!(pin_version, unpin_version))
        .routes(routes!(compare_versions))
}

/// The erasures recorded in the log of a stream.
fn erasures(node: &Node, stream: &StreamName) -> Result<Vec<ErasedSpan>, ApiError> {
    let erasures = node.storage.log().erasures(stream)?;
    Ok(erasures.iter().map(ErasedSpan::from).collect())
}

/// What to consider before a version is activated.
fn warning(version: &VersionRecord, model: &ModelRecord, erased_users: usize) -> Option<String> {
    let erased = (erased_users > 0).then(|| {
        format!(
            "this version was trained on observations of {erased_users} users who were erased since; \
             the next training excludes them"
        )
    });
    let features = &model.config.features.0;
    let of_part = |VersionPart { part, unread_fields, is_constant }: &VersionPart| {
        let fields = unread_fields.join(", ");
        let unread = (!fields.is_empty())
            .then(|| format!("no observation of the training had a value of {fields} that the part {part} can read"));
        let constant = is_constant.then(|| {
            format!(
                "the part {part} was the same in all observations of the training, so that it tells no two items apart"
            )
        });
        let is_listed = features.iter().any(|listed| listed.part == *part);
        let unlisted = (!is_listed).then(|| {
            format!(
                "`features` of the model does not list the part {part} of this version; the next training leaves it out"
            )
        });
        [unread, constant, unlisted].into_iter().flatten()
    };
    let warnings: Vec<String> = erased.into_iter().chain(version.parts.iter().flat_map(of_part)).collect();
    (!warnings.is_empty()).then(|| warnings.join("; "))
}

fn describe(record: VersionRecord, model: &ModelRecord, erasures: &[ErasedSpan]) -> Version {
    let erased_users = erased_users(&record, erasures);
    let warning = warning(&record, model, erased_users);
    Version {
        version: record.version.0,
        active: record.version == model.active,
        pinned: record.pinned,
        rollback_target: model.served.last() == Some(&record.version),
        gate: record.gate.map(Into::into),
        watermark: record.watermark,
        parent: record.parent.map(|parent| parent.0),
        warm_from: record.warm.map(|warm| warm.from.0),
        algorithm: record.algorithm,
        created: record.created.0,
        dim: record.dim,
        items: record.items,
        parts: record.parts.into_iter().map(Into::into).collect(),
        label_range: record.label_range,
        half_life: record.half_life,
        metrics: record.metrics,
        erased_users,
        warning,
    }
}

fn activated(node: &Node, record: &ModelRecord) -> Result<Json<Activated>, ApiError> {
    let version = node.manager.registry().version(&record.config.name, record.active)?;
    let erased_users = erased_users(&version, &erasures(node, &record.config.stream)?);
    let warning = warning(&version, record, erased_users);
    Ok(Json(Activated { active_version: record.active.0, warning }))
}

/// Lists all versions of a model, newest first.
#[utoipa::path(get, path = "/v1/models/{model}/versions", tag = "versions", params(InModel),
    responses((status = 200, body = Versions)))]
async fn list_versions(State(node): State<Node>, InModel(model): InModel) -> Result<Json<Versions>, ApiError> {
    let record = node.manager.registry().model(&model)?;
    let erasures = erasures(&node, &record.config.stream)?;
    let versions = node.manager.registry().versions(&model)?;
    let versions = versions.into_iter().map(|version| describe(version, &record, &erasures)).collect();
    Ok(Json(Versions { versions }))
}

/// Registers a version that was trained externally.
///
/// The directory is validated and copied. The active version does not change until another one is
/// activated.
#[utoipa::path(post, path = "/v1/models/{model}/versions", tag = "versions", params(InModel),
    request_body = RegisterBody,
    responses((status = 201, body = Version)))]
async fn register_version(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(body): Body<RegisterBody>,
) -> Result<(StatusCode, Json<Version>), ApiError> {
    let registered = node.manager.versions().register(&model, &body.path)?;
    let record = node.manager.registry().model(&model)?;
    let erasures = erasures(&node, &record.config.stream)?;
    Ok((StatusCode::CREATED, Json(describe(registered, &record, &erasures))))
}

/// Activates a version.
///
/// It serves once the states of recently used users are recomputed under it, within about twenty
/// seconds. Users keep everything that they have taught since.
#[utoipa::path(post, path = "/v1/models/{model}/versions/{version}/activate", tag = "versions",
    params(OfVersion),
    responses((status = 200, body = Activated)))]
async fn activate_version(
    State(node): State<Node>,
    OfVersion { model, version }: OfVersion,
) -> Result<Json<Activated>, ApiError> {
    let record = node.manager.promotion().activate(&model, version)?;
    activated(&node, &record)
}

/// Rolls back to the previously active version.
#[utoipa::path(post, path = "/v1/models/{model}/rollback", tag = "versions", params(InModel),
    responses((status = 200, body = Activated)))]
async fn roll_back(State(node): State<Node>, InModel(model): InModel) -> Result<Json<Activated>, ApiError> {
    let record = node.manager.promotion().roll_back(&model)?;
    activated(&node, &record)
}

fn described(node: &Node, model: &ModelName, version: VersionRecord) -> Result<Version, ApiError> {
    let record = node.manager.registry().model(model)?;
    Ok(describe(version, &record, &erasures(node, &record.config.stream)?))
}

/// Pins a version, so that it is not pruned.
#[utoipa::path(post, path = "/v1/models/{model}/versions/{version}/pin", tag = "versions",
    params(OfVersion),
    responses((status = 200, body = Version)))]
async fn pin_version(
    State(node): State<Node>,
    OfVersion { model, version }: OfVersion,
) -> Result<Json<Version>, ApiError> {
    let version = node.manager.versions().pin(&model, version)?;
    Ok(Json(described(&node, &model, version)?))
}

/// Unpins a version, so that it can be pruned.
#[utoipa::path(delete, path = "/v1/models/{model}/versions/{version}/pin", tag = "versions",
    params(OfVersion),
    responses((status = 200, body = Version)))]
async fn unpin_version(
    State(node): State<Node>,
    OfVersion { model, version }: OfVersion,
) -> Result<Json<Version>, ApiError> {
    let version = node.manager.versions().unpin(&model, version)?;
    Ok(Json(described(&node, &model, version)?))
}

/// Compares two versions: items, losses on the same observations, and changes of rankings.
#[utoipa::path(get, path = "/v1/models/{model}/versions/{from}/diff/{to}", tag = "versions",
    params(OfTwoVersions),
    responses((status = 200, body = Diff)))]
async fn compare_versions(State(node): State<Node>, versions: OfTwoVersions) -> Result<Json<Diff>, ApiError> {
    let OfTwoVersions { model, from, to } = versions;
    let VersionDiff { from, to, added, removed, measure, loss, rankings } =
        node.manager.promotion().diff(&model, from, to)?;
    let rankings = rankings.map(|Moved { users, items, overlap_at_10, kendall_tau }| Rankings {
        users,
        items,
        overlap_at_10,
        kendall_tau,
    });
    Ok(Json(Diff {
        from: described(&node, &model, from)?,
        to: described(&node, &model, to)?,
        items_added: added.into(),
        items_removed: removed.into(),
        measure: measure.into(),
        loss: loss.map(Into::into),
        rankings,
    }))
}
