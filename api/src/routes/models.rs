//! Models: creation, listing, settings and deletion.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use celeris_manager::{ModelConfig, ModelRecord, NameKind};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::asking::Asking;
use crate::description::Conflict;
use crate::error::ApiError;
use crate::extract::{Body, InModel, Text, parse};
use crate::node::keep_series;
use crate::routes::selections;
use crate::schema::models::{
    Guarding, Kind, Model, ModelChange, ModelOrSelection, Models, NewModel, NewModelOrSelection, OfKind, RecentLoss,
    Unavailable,
};
use crate::schema::selections::NewSelectionBody;
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(list_models, create_model)).routes(routes!(
        get_model,
        change_model,
        delete_model
    ))
}

fn describe(node: &Node, record: ModelRecord) -> Result<Model, ApiError> {
    let ModelRecord { id, config, created, active, guarding, .. } = record;
    let status = node.manager.promotion().guard_status(id);
    let guarding = guarding.map(|guarding| Guarding {
        against: guarding.against.0,
        since: guarding.since.0,
        comparison: status.and_then(|status| status.comparison).map(Into::into),
    });
    let recent = node.manager.monitoring().recent_loss(id);
    let context_fields = node.predictor.models().context_fields(&config.name)?;
    Ok(Model {
        kind: Kind::Model,
        id: id.0,
        versions: node.manager.registry().versions(&config.name)?.len(),
        items: node.predictor.models().active(&config.name)?.theta.items().len(),
        observations: node.storage.log().watermark(&config.stream).records(),
        context_fields: context_fields.as_slice().iter().map(Into::into).collect(),
        recent_loss: recent.map(|loss| RecentLoss { metric: loss.metric.into(), value: loss.value, count: loss.count }),
        name: config.name,
        stream: config.stream,
        dim: config.dim,
        features: config.features.0.into_iter().map(Into::into).collect(),
        candidates: config.candidates,
        loss: config.loss.into(),
        half_life: config.half_life,
        label_range: config.label_range,
        labels_outside: config.labels_outside.into(),
        policy: config.policy.into(),
        pool_share: config.pool_share,
        gate: config.gate.into(),
        guard: config.guard.into(),
        keep_versions: config.keep_versions,
        guarding,
        triggers: config.triggers.into(),
        trainer: config.trainer.into(),
        default_reward: config.default_reward.map(Into::into),
        created: created.0,
        active_version: active.0,
    })
}

/// Lists all models, then the selections, then models and selections that are out of service; those that the key is for.
#[utoipa::path(get, path = "/v1/models", tag = "models", responses((status = 200, body = Models)))]
async fn list_models(State(node): State<Node>, asking: Asking) -> Result<Json<Models>, ApiError> {
    let mut models = Vec::new();
    for record in node.manager.registry().models()? {
        if !asking.covers(&node, &record.config.name) {
            continue;
        }
        models.push(ModelOrSelection::Model(describe(&node, record)?.into()));
    }
    for record in node.manager.registry().selections()? {
        if !asking.covers(&node, &record.name) {
            continue;
        }
        models.push(ModelOrSelection::Selection(selections::describe(&node, record).await?.into()));
    }
    for celeris_manager::Unavailable { name, kind, reason } in node.manager.registry().unavailable()? {
        if !asking.covers(&node, &name) {
            continue;
        }
        let kind = match kind {
            NameKind::Model => Kind::Model,
            NameKind::Selection => Kind::Selection,
        };
        models.push(ModelOrSelection::Unavailable(Unavailable { kind, name, unavailable: reason.to_string() }));
    }
    Ok(Json(Models { models }))
}

/// Creates a model, or with `kind: "selection"` a selection among models.
///
/// It serves at once: users of a new model start from the prior and learn from their first
/// observation.
#[utoipa::path(post, path = "/v1/models", tag = "models", request_body = NewModelOrSelection,
    responses((status = 201, body = ModelOrSelection), (status = 409, response = Conflict)))]
async fn create_model(
    State(node): State<Node>,
    Text(body): Text,
) -> Result<(StatusCode, Json<ModelOrSelection>), ApiError> {
    let created = match parse::<OfKind>(&body)?.kind {
        Kind::Model => ModelOrSelection::Model(new_model(&node, parse(&body)?)?.into()),
        Kind::Selection => {
            let new = parse::<NewSelectionBody>(&body)?.into();
            let record = node.manager.registry().create_selection(new)?;
            ModelOrSelection::Selection(selections::describe(&node, record).await?.into())
        }
    };
    Ok((StatusCode::CREATED, Json(created)))
}

fn new_model(node: &Node, new: NewModel) -> Result<Model, ApiError> {
    let are_named = new.triggers.is_some();
    let mut config = ModelConfig::from(new);
    if !are_named {
        config.triggers = node.manager.training().triggers_of_new_models();
    }
    describe(node, node.manager.create(config)?)
}

/// Returns a model or selection.
#[utoipa::path(get, path = "/v1/models/{model}", tag = "models", params(InModel),
    responses((status = 200, body = ModelOrSelection)))]
async fn get_model(State(node): State<Node>, InModel(model): InModel) -> Result<Json<ModelOrSelection>, ApiError> {
    if let Some(record) = node.manager.registry().selection(&model)? {
        return Ok(Json(ModelOrSelection::Selection(selections::describe(&node, record).await?.into())));
    }
    let record = node.manager.registry().model(&model)?;
    Ok(Json(ModelOrSelection::Model(describe(&node, record)?.into())))
}

/// Changes settings of a model. They take effect immediately.
#[utoipa::path(patch, path = "/v1/models/{model}", tag = "models", params(InModel),
    request_body = ModelChange,
    responses((status = 200, body = Model)))]
async fn change_model(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(change): Body<ModelChange>,
) -> Result<Json<Model>, ApiError> {
    let change = |config: &mut _| {
        change.apply(config);
        Ok(())
    };
    let record = node.manager.configure(&model, change)?;
    Ok(Json(describe(&node, record)?))
}

/// Deletes a model with its versions, or a selection but not its arms. The observations of the
/// stream stay in the log.
#[utoipa::path(delete, path = "/v1/models/{model}", tag = "models", params(InModel),
    responses((status = 204, description = "The model or selection is deleted")))]
async fn delete_model(State(node): State<Node>, InModel(model): InModel) -> Result<StatusCode, ApiError> {
    if !node.manager.registry().delete_selection(&model)? {
        node.manager.delete(&model)?;
    }
    // A model that is created again under this name gets series of its own.
    keep_series(&node);
    Ok(StatusCode::NO_CONTENT)
}
