//! Models: created, listed, deleted.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use celeris_bandits::{PolicySpec, PoolShare};
use celeris_manager::{
    Comparison, DefaultReward, DriftSettings, GateConfig, ModelConfig, ModelRecord, Schedule, Threshold,
    TrainerSettings, Triggers, Volume, WatchConfig,
};
use celeris_model::{HalfLife, Loss, ModelName, StreamName};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{Body, InModel, Text, parse};
use crate::routes::selections::{self, NewSelectionBody, Selection};
use crate::state::Node;

/// The dimension of a model that names none.
pub const DIM_DEFAULT: usize = 32;

/// What answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A model, which learns.
    #[default]
    Model,
    /// Other models, among which it selects.
    Selection,
}

/// Which kind a body is about; the rest of it is read by what that kind has.
#[derive(Deserialize)]
struct OfKind {
    #[serde(default)]
    kind: Kind,
}

/// A model or a selection to create.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes both kinds of bodies; which one it is, `kind` says before it is read")]
enum NewModelOrSelection {
    Model(Box<NewModel>),
    Selection(Box<NewSelectionBody>),
}

/// A model or a selection.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ModelOrSelection {
    Model(Box<Model>),
    Selection(Box<Selection>),
}

/// A model to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewModel {
    /// `model` by default; a `selection` has other fields.
    #[serde(default)]
    #[expect(dead_code, reason = "it has told by now that this is a model")]
    kind: Kind,
    /// Its name: ASCII letters, digits, `-` and `_`.
    #[schema(value_type = String)]
    pub name: ModelName,
    /// The stream it learns from; its own name by default.
    #[schema(value_type = Option<String>)]
    pub stream: Option<StreamName>,
    /// The length of features and weights, the constant included; 32 by default.
    pub dim: Option<usize>,
    /// What user weights minimise: `squared` (the default), `logistic` for clicks, or `implicit` for feedback that only
    /// says "this, and how often": one preference of 1 for each item taken, with the confidence `1 + sum weight * label`
    /// over its observations.
    #[schema(value_type = Option<String>)]
    pub loss: Option<Loss>,
    /// Seconds in which an observation loses half of its weight, measured to the user's latest one; absent, nothing is
    /// forgotten. Under implicit loss a preference fades by the age of the latest observation of its item.
    #[schema(value_type = Option<f64>)]
    pub half_life: Option<HalfLife>,
    /// How it ranks where a request names no policy: a name, or an object of name and parameters.
    #[schema(value_type = Option<Object>)]
    pub policy: Option<PolicySpec>,
    /// The share of such rankings that are drawn uniformly for the validation pool; 0.01 by default.
    #[schema(value_type = Option<f64>)]
    pub pool_share: Option<PoolShare>,
    /// How its candidates are judged: `margin` (0), `tail_share` (0.05), `pool_min` (100), `force` (false),
    /// `shadow_seconds` (0).
    #[schema(value_type = Option<Object>)]
    pub gate: Option<GateConfig>,
    /// How long a new version is watched: `observations` (1000), `seconds` (3600), `margin` (0.05).
    #[schema(value_type = Option<Object>)]
    pub watch: Option<WatchConfig>,
    /// How many versions are kept beside the active, the pinned and the one that a rollback leads to; 10 by default.
    pub keep_versions: Option<u32>,
    /// When it is retrained by itself: `threshold`, `drift`, `schedule`, `volume` and `cool_down`; all off by default.
    #[schema(value_type = Option<Object>)]
    pub triggers: Option<Triggers>,
    /// Who trains it and how: `{engine, iterations, regularization, alpha, limits: {memory, seconds, heartbeat_seconds,
    /// processes, disk}}`, where `engine` is `als`, the built-in trainer and the default, or the name of one that the node's
    /// configuration holds the command line of. The numbers are for such a trainer's job file; limits may be lower than
    /// the node's.
    #[schema(value_type = Option<Object>)]
    pub trainer: Option<TrainerSettings>,
    /// The reward of shown slots for which none has come in time: `{label, after_seconds, slots}`, where only the first
    /// `slots` (10) of a ranking get one; none by default.
    #[schema(value_type = Option<Object>)]
    pub default_reward: Option<DefaultReward>,
}

/// A watch under way.
#[derive(Debug, Serialize, ToSchema)]
pub struct Watching {
    /// The version that served before, to which the model goes back if the new one is worse.
    against: u64,
    /// When the new version began to serve, in Unix milliseconds.
    since: i64,
    /// The new version as the candidate and the one before as the incumbent, on the same observations since the start of
    /// the node; null before the first look.
    #[schema(value_type = Option<Object>)]
    comparison: Option<Comparison>,
}

/// Settings to change. What is missing stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelChange {
    /// Triggers to change: an object sets one, null turns it off, and what is missing stays.
    triggers: Option<TriggersChange>,
    /// How candidates are judged, from the next one on; replaces all of `gate`, its missing fields by their defaults.
    #[schema(value_type = Option<Object>)]
    gate: Option<GateConfig>,
    /// How long new versions are watched, from the next one on; replaces all of `watch`.
    #[schema(value_type = Option<Object>)]
    watch: Option<WatchConfig>,
    /// How many versions are kept, from the next one on.
    keep_versions: Option<u32>,
    /// Who trains it and how, from the next training on; replaces all of `trainer`.
    #[schema(value_type = Option<Object>)]
    trainer: Option<TrainerSettings>,
    /// The reward of shown slots for which none has come in time; null turns it off.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Object>)]
    default_reward: Option<Option<DefaultReward>>,
}

/// Triggers to set, to turn off by null, or, where they are missing, to leave.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TriggersChange {
    /// `{margin?, window?, on?}`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Object>)]
    threshold: Option<Option<Threshold>>,
    /// `{tolerance?, threshold?, warm_up?}`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Object>)]
    drift: Option<Option<DriftSettings>>,
    /// `{every}`, in seconds.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Object>)]
    schedule: Option<Option<Schedule>>,
    /// `{observations}`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Object>)]
    volume: Option<Option<Volume>>,
    /// Seconds for which all triggers rest after a training.
    cool_down: Option<f64>,
}

/// Tells null, which is an answer, from a field that is missing.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

impl TriggersChange {
    fn make(self, triggers: &mut Triggers) {
        let Self { threshold, drift, schedule, volume, cool_down } = self;
        triggers.threshold = threshold.unwrap_or(triggers.threshold);
        triggers.drift = drift.unwrap_or(triggers.drift);
        triggers.schedule = schedule.unwrap_or(triggers.schedule);
        triggers.volume = volume.unwrap_or(triggers.volume);
        triggers.cool_down = cool_down.unwrap_or(triggers.cool_down);
    }
}

/// How well a model has predicted lately.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecentLoss {
    /// Root of the mean squared error of predictions made before learning.
    pub rmse: f64,
    /// Over how many observations.
    pub count: usize,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
pub struct Model {
    /// `model`.
    kind: Kind,
    /// Its identity, which is never reused: a model that is deleted and created again under its name has another.
    id: u64,
    #[schema(value_type = String)]
    name: ModelName,
    #[schema(value_type = String)]
    stream: StreamName,
    dim: usize,
    #[schema(value_type = String)]
    loss: Loss,
    /// Seconds in which an observation loses half of its weight; null where nothing is forgotten.
    #[schema(value_type = Option<f64>)]
    half_life: Option<HalfLife>,
    #[schema(value_type = Object)]
    policy: PolicySpec,
    #[schema(value_type = f64)]
    pool_share: PoolShare,
    #[schema(value_type = Object)]
    gate: GateConfig,
    #[schema(value_type = Object)]
    watch: WatchConfig,
    keep_versions: u32,
    /// The watch of the active version; null where there is none.
    watching: Option<Watching>,
    /// When it is retrained by itself.
    #[schema(value_type = Object)]
    triggers: Triggers,
    #[schema(value_type = Object)]
    trainer: TrainerSettings,
    /// The reward of shown slots for which none has come in time; null where they have none.
    #[schema(value_type = Option<Object>)]
    default_reward: Option<DefaultReward>,
    /// When it was created, in Unix milliseconds.
    created: i64,
    /// The version that serves.
    active_version: u64,
    /// How many versions there are.
    versions: usize,
    /// Items in the active version's table.
    items: usize,
    /// Records in the log of its stream.
    observations: u64,
    /// The latest loss; null before the first observation.
    recent_loss: Option<RecentLoss>,
}

/// All models.
#[derive(Debug, Serialize, ToSchema)]
pub struct Models {
    models: Vec<ModelOrSelection>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(get, change, delete))
}

fn describe(node: &Node, record: ModelRecord) -> Result<Model, ApiError> {
    let ModelRecord { id, config, created, active, watching, .. } = record;
    let status = node.manager.watch_status(id);
    let watching = watching.map(|watching| Watching {
        against: watching.against.0,
        since: watching.since.0,
        comparison: status.and_then(|status| status.comparison),
    });
    let recent = node.manager.recent_loss(id);
    Ok(Model {
        kind: Kind::Model,
        id: id.0,
        versions: node.manager.versions(&config.name)?.len(),
        items: node.predictor.active(&config.name)?.theta.items().len(),
        observations: node.storage.watermark(&config.stream).records(),
        recent_loss: recent.map(|loss| RecentLoss { rmse: loss.rmse, count: loss.count }),
        name: config.name,
        stream: config.stream,
        dim: config.dim,
        loss: config.loss,
        half_life: config.half_life,
        policy: config.policy,
        pool_share: config.pool_share,
        gate: config.gate,
        watch: config.watch,
        keep_versions: config.keep_versions,
        watching,
        triggers: config.triggers,
        trainer: config.trainer,
        default_reward: config.default_reward,
        created: created.0,
        active_version: active.0,
    })
}

/// All models, and the selections among them behind.
#[utoipa::path(get, path = "/v1/models", tag = "models", responses((status = 200, body = Models)))]
async fn list(State(node): State<Node>) -> Result<Json<Models>, ApiError> {
    let mut models = Vec::new();
    for record in node.manager.models()? {
        models.push(ModelOrSelection::Model(describe(&node, record)?.into()));
    }
    for record in node.manager.selections()? {
        models.push(ModelOrSelection::Selection(selections::describe(&node, record).await?.into()));
    }
    Ok(Json(Models { models }))
}

/// Creates a model, or with `kind: "selection"` a selection among models. It serves at once: users of a model start from
/// nothing and learn from their first observation on.
#[utoipa::path(post, path = "/v1/models", tag = "models", request_body = NewModelOrSelection,
    responses((status = 201, body = ModelOrSelection), (status = 409, body = Problem), (status = 422, body = Problem)))]
async fn create(State(node): State<Node>, Text(body): Text) -> Result<(StatusCode, Json<ModelOrSelection>), ApiError> {
    let created = match parse::<OfKind>(&body)?.kind {
        Kind::Model => ModelOrSelection::Model(create_model(&node, parse(&body)?)?.into()),
        Kind::Selection => {
            let new = parse::<NewSelectionBody>(&body)?.into();
            let record = tokio::task::block_in_place(|| node.manager.create_selection(new))?;
            ModelOrSelection::Selection(selections::describe(&node, record).await?.into())
        }
    };
    Ok((StatusCode::CREATED, Json(created)))
}

fn create_model(node: &Node, new: NewModel) -> Result<Model, ApiError> {
    let usual = ModelConfig::new(new.name, new.dim.unwrap_or(DIM_DEFAULT));
    let config = ModelConfig {
        stream: new.stream.unwrap_or(usual.stream),
        name: usual.name,
        dim: usual.dim,
        loss: new.loss.unwrap_or(usual.loss),
        half_life: new.half_life,
        policy: new.policy.unwrap_or(usual.policy),
        pool_share: new.pool_share.unwrap_or(usual.pool_share),
        gate: new.gate.unwrap_or(usual.gate),
        watch: new.watch.unwrap_or(usual.watch),
        keep_versions: new.keep_versions.unwrap_or(usual.keep_versions),
        triggers: new.triggers.unwrap_or(usual.triggers),
        trainer: new.trainer.unwrap_or(usual.trainer),
        default_reward: new.default_reward,
    };
    let record = tokio::task::block_in_place(|| node.manager.create(config))?;
    describe(node, record)
}

/// One model or selection.
#[utoipa::path(get, path = "/v1/models/{model}", tag = "models", params(("model" = String, Path)),
    responses((status = 200, body = ModelOrSelection), (status = 404, body = Problem)))]
async fn get(State(node): State<Node>, InModel(model): InModel) -> Result<Json<ModelOrSelection>, ApiError> {
    if let Some(record) = node.manager.selection(&model)? {
        return Ok(Json(ModelOrSelection::Selection(selections::describe(&node, record).await?.into())));
    }
    let record = node.manager.model(&model)?;
    Ok(Json(ModelOrSelection::Model(describe(&node, record)?.into())))
}

/// Changes settings of a model, which hold from now on.
#[utoipa::path(patch, path = "/v1/models/{model}", tag = "models", params(("model" = String, Path)),
    request_body = ModelChange,
    responses((status = 200, body = Model), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn change(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(ModelChange { triggers, gate, watch, keep_versions, trainer, default_reward }): Body<ModelChange>,
) -> Result<Json<Model>, ApiError> {
    let change = |config: &mut ModelConfig| {
        if let Some(triggers) = triggers {
            triggers.make(&mut config.triggers);
        }
        config.gate = gate.unwrap_or(config.gate);
        config.watch = watch.unwrap_or(config.watch);
        config.keep_versions = keep_versions.unwrap_or(config.keep_versions);
        if let Some(trainer) = trainer {
            config.trainer = trainer;
        }
        config.default_reward = default_reward.unwrap_or(config.default_reward);
        Ok(())
    };
    let record = tokio::task::block_in_place(|| node.manager.configure(&model, change))?;
    Ok(Json(describe(&node, record)?))
}

/// Deletes a model with its versions, or a selection, whose arms stay. The observations of the stream stay in the log.
#[utoipa::path(delete, path = "/v1/models/{model}", tag = "models", params(("model" = String, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn delete(State(node): State<Node>, InModel(model): InModel) -> Result<StatusCode, ApiError> {
    tokio::task::block_in_place(|| match node.manager.delete_selection(&model)? {
        true => Ok(()),
        false => node.manager.delete(&model),
    })?;
    Ok(StatusCode::NO_CONTENT)
}
