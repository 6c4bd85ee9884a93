//! Pipelines of computed features.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use celeris_manager::pipelines::RECORDS_MAX;
use celeris_manager::{Explained, PipelineInput};
use celeris_pipelines::PipelineSpec;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::description::{Conflict, NotFound};
use crate::error::ApiError;
use crate::extract::{Body, InPipeline, Params};
use crate::schema::pipelines::{Pipeline, PipelineBody, PipelineList, RunBody, RunRecord, RunReply};
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new()
        .routes(routes!(list_pipelines, declare_pipeline))
        .routes(routes!(get_pipeline, delete_pipeline))
        .routes(routes!(run_pipeline))
}

/// Lists the declared pipelines.
#[utoipa::path(get, path = "/v1/pipelines", tag = "pipelines", responses((status = 200, body = PipelineList)))]
async fn list_pipelines(State(node): State<Node>) -> Result<Json<PipelineList>, ApiError> {
    let pipelines = node.manager.pipelines().list()?.into_iter().map(Into::into).collect();
    Ok(Json(PipelineList { pipelines }))
}

/// Declares a pipeline, or another revision of it. Its objects are there already (`PUT /v1/objects/{object}`).
#[utoipa::path(post, path = "/v1/pipelines", tag = "pipelines", request_body = PipelineBody,
    responses((status = 201, body = Pipeline), (status = 409, response = Conflict)))]
async fn declare_pipeline(
    State(node): State<Node>,
    Body(declaration): Body<Value>,
) -> Result<(StatusCode, Json<Pipeline>), ApiError> {
    let spec = PipelineSpec::parse(&declaration)?;
    Ok((StatusCode::CREATED, Json(node.manager.declare_pipeline(spec)?.into())))
}

/// How a pipeline is described.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Describing {
    /// Whether to describe its stages, what the optimizer has changed, and its objects.
    #[serde(default)]
    explain: bool,
}

/// Describes a pipeline.
#[utoipa::path(get, path = "/v1/pipelines/{pipeline}", tag = "pipelines", params(InPipeline, Describing),
    responses((status = 200, body = Pipeline), (status = 404, response = NotFound)))]
async fn get_pipeline(
    State(node): State<Node>,
    InPipeline(pipeline): InPipeline,
    Params(Describing { explain }): Params<Describing>,
) -> Result<Json<Pipeline>, ApiError> {
    let explained = if explain { Explained::Yes } else { Explained::No };
    Ok(Json(node.manager.pipelines().describe(pipeline.as_str(), explained)?.into()))
}

/// Deletes a pipeline, and the objects that no other one names.
#[utoipa::path(delete, path = "/v1/pipelines/{pipeline}", tag = "pipelines", params(InPipeline),
    responses((status = 204, description = "The pipeline is deleted"), (status = 404, response = NotFound),
        (status = 409, response = Conflict)))]
async fn delete_pipeline(State(node): State<Node>, InPipeline(pipeline): InPipeline) -> Result<StatusCode, ApiError> {
    node.manager.delete_pipeline(pipeline.as_str())?;
    Ok(StatusCode::NO_CONTENT)
}

/// Runs a pipeline on some records.
#[utoipa::path(post, path = "/v1/pipelines/{pipeline}/run", tag = "pipelines", params(InPipeline),
    request_body = RunBody,
    responses((status = 200, body = RunReply), (status = 404, response = NotFound), (status = 409, response = Conflict)))]
async fn run_pipeline(
    State(node): State<Node>,
    InPipeline(pipeline): InPipeline,
    Body(RunBody { records }): Body<RunBody>,
) -> Result<Json<RunReply>, ApiError> {
    if records.len() > RECORDS_MAX {
        return Err(ApiError::field("records", format!("at most {RECORDS_MAX} at once, got {}", records.len())));
    }
    let input = |RunRecord { item, context }: RunRecord| PipelineInput { item, context };
    let inputs: Vec<PipelineInput> = records.into_iter().map(input).collect();
    Ok(Json(RunReply { outputs: node.manager.pipelines().run(pipeline.as_str(), inputs)? }))
}
