//! Users: state, attributes, history and erasure.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use celeris_manager::{ErasedSpan, JobId, Metric, ReadingTraining};
use celeris_model::{ItemId, ModelId, ModelName, ObservationId, Record, RecordKind, RecordedContext, Sequence, UserId};
use celeris_predictor::{Erased, PredictorError};
use celeris_storage::observation_id;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{Body, InModel, OfUser, Params};
use crate::paging;
use crate::schema::context::ContextFields;
use crate::schema::ids::{Id, Name};
use crate::schema::quality::Mean;
use crate::scope::{Task, carried};
use crate::state::Node;

/// Default number of events.
const HISTORY_DEFAULT: usize = 100;

/// Maximum number of events.
const HISTORY_MAX: usize = 10_000;

/// Query parameters of a user.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UserParams {
    /// Maximum number of events of the history, newest first; 100 by default.
    #[param(maximum = 10_000)]
    history: Option<usize>,
}

/// Which users are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UsersWanted {
    /// The last user of the previous page.
    #[param(value_type = Option<Id>)]
    after: Option<UserId>,
    /// Maximum number of users; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A user of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub struct ListedUser {
    #[schema(value_type = Id)]
    user: UserId,
    /// The count of the user's events.
    user_epoch: u64,
    /// The mean loss of predictions for the user, in the metric of the model; null if the user is not
    /// among those that the quality monitor tracks.
    loss: Option<Mean>,
}

/// A page of users.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UserPage)]
pub struct Users {
    users: Vec<ListedUser>,
    /// The value of `after` for the next page; null on the last page.
    #[schema(value_type = Option<Id>)]
    next: Option<UserId>,
}

/// The kind of an event of a user.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UserEventKind {
    /// An observation.
    Observe,
    /// The correction of an earlier observation, whose label is the corrected one from then on.
    Correct,
    /// The deletion of an earlier observation, which is no longer in the history.
    Retract,
}

/// One event of a user.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserEvent {
    kind: UserEventKind,
    #[schema(value_type = Option<Id>)]
    item: Option<ItemId>,
    /// The label, with corrections applied; 0 of a retraction.
    label: f32,
    /// The weight of the observation.
    weight: f32,
    /// In Unix milliseconds.
    timestamp: i64,
    /// The id given by the client or made by the server; of a correction or retraction, that of the
    /// observation to which it applies.
    #[schema(value_type = Id)]
    observation_id: ObservationId,
    /// The count of the user's events up to this one.
    user_epoch: u64,
    /// The position of the event in its partition of the log.
    sequence: u64,
    /// The kind of feedback; null if the client gave none.
    feedback: Option<String>,
    /// The circumstances, as the client or the decision has described them; null if neither has.
    #[schema(value_type = Option<ContextFields>)]
    context: Option<Box<RecordedContext>>,
    /// The prediction of this model before it learnt the event; null if the model was created
    /// later.
    predicted: Option<f32>,
}

/// A user's state and history.
#[derive(Debug, Serialize, ToSchema)]
pub struct User {
    #[schema(value_type = Id)]
    user: UserId,
    /// The version under which the state is computed.
    version: u64,
    /// The count of the user's events.
    user_epoch: u64,
    /// Whether the user has no observations, so that the state is the prior.
    cold: bool,
    /// Number of observations that the state has learnt from.
    observations: u64,
    /// The weights `w_u`.
    weights: Vec<f64>,
    /// A hash of weights and uncertainty, in hexadecimal; equal hashes mean bitwise equal states.
    state_hash: String,
    /// The attributes given by a caller; null if there are none.
    attributes: Option<Map<String, Value>>,
    /// The latest events, newest first.
    history: Vec<UserEvent>,
}

/// Attributes of a user.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserBody {
    /// Attributes by name; they replace all previous attributes, and an empty object removes them.
    attributes: Map<String, Value>,
}

/// A user whose attributes are on disk and count from now on.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserDescribed {
    #[schema(value_type = Id)]
    user: UserId,
    /// The count of the user's events, of which this is none.
    user_epoch: u64,
}

/// The receipt of an erasure: what was removed, and what remains until when.
#[derive(Debug, Serialize, ToSchema)]
pub struct Receipt {
    #[schema(value_type = Id)]
    user: UserId,
    /// The user's epoch including the erasure; it is kept so that no epoch is used twice.
    user_epoch: u64,
    /// Number of observations erased from the log, together with all states of the user.
    observations: u64,
    /// Number of decisions erased.
    decisions: u64,
    /// In Unix milliseconds.
    erased: i64,
    /// Versions whose shared parameters were trained on the user's observations. They contain
    /// neither the user's id nor the user's weights. The next training excludes the user. Each of
    /// these versions is pruned once there are `keep_versions` newer ones, unless it serves, is
    /// pinned or is the rollback target.
    versions: Vec<KnowingVersion>,
    /// Running trainings that have read the user's observations. Each starts again without them. A
    /// training that has already started again twice because of erasures is let through; its
    /// version then counts the erased users in `erased_users`.
    trainings: Vec<Training>,
    /// When the sealed Parquet segments contain no more data of the user, in Unix milliseconds;
    /// null if sealing is disabled.
    segments_rewritten_by: Option<i64>,
    /// When the logs of the cluster in NATS contain no more data of the user, in Unix milliseconds; absent on
    /// a node on its own. An estimate: logs are trimmed of what all live nodes have synced, so a live node that
    /// lags behind delays it. A node that is down erases the user from its own files when it is back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    log_trimmed_by: Option<i64>,
    /// What the erasure cannot remove: copies outside of the data directory.
    copies: &'static str,
}

/// The text about copies.
const COPIES: &str =
    "exports and backups made before hold the user until they are deleted; the node does not know of them";

/// A training that has read observations of an erased user.
#[derive(Debug, Serialize, ToSchema)]
pub struct Training {
    #[schema(value_type = Id)]
    job: JobId,
    #[schema(value_type = Name)]
    model: ModelName,
    /// When its copy of the observations is removed at the latest, in Unix milliseconds; if the
    /// node stops before, at its next start.
    input_removed_by: i64,
}

/// A version that was trained on observations of an erased user.
#[derive(Debug, Serialize, ToSchema)]
pub struct KnowingVersion {
    #[schema(value_type = Name)]
    model: ModelName,
    /// The number of the version.
    version: u64,
    /// Whether it serves.
    active: bool,
}

impl From<celeris_manager::AffectedVersion> for KnowingVersion {
    fn from(affected: celeris_manager::AffectedVersion) -> Self {
        Self { model: affected.model, version: affected.version.0, active: affected.active }
    }
}

impl From<ReadingTraining> for Training {
    fn from(training: ReadingTraining) -> Self {
        Self { job: training.job, model: training.model, input_removed_by: training.input_removed_by.0 }
    }
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(list_users)).routes(routes!(get_user, put_user, erase_user))
}

fn event(model: ModelId, sequence: Sequence, record: Record) -> UserEvent {
    let predicted = record.predictions.iter().find(|prediction| prediction.model == model);
    UserEvent {
        kind: match record.kind {
            RecordKind::Correct => UserEventKind::Correct,
            RecordKind::Retract => UserEventKind::Retract,
            RecordKind::Observe | RecordKind::Erase => UserEventKind::Observe,
        },
        observation_id: observation_id(sequence, &record),
        predicted: predicted.map(|prediction| prediction.predicted),
        item: record.item,
        label: record.label,
        weight: record.weight,
        timestamp: record.timestamp.0,
        user_epoch: record.user_epoch.0,
        sequence: sequence.0,
        feedback: record.feedback,
        context: record.context,
    }
}

/// Lists the users with events, in a fixed order that is not that of their ids.
#[utoipa::path(get, path = "/v1/models/{model}/users", tag = "users", params(InModel, UsersWanted),
    responses((status = 200, body = Users)))]
async fn list_users(
    State(node): State<Node>,
    InModel(model): InModel,
    Params(UsersWanted { after, limit }): Params<UsersWanted>,
) -> Result<Json<Users>, ApiError> {
    let limit = paging::entries(limit)?;
    let record = node.manager.registry().model(&model)?;
    let found = node.storage.histories().users(&record.config.stream, after.as_ref(), limit);
    let found = found.map_err(PredictorError::from)?;
    let next = paging::next(&found, limit, |(user, _)| user.clone());
    let loss_of = |user: &UserId| node.manager.monitoring().user_loss(record.id, user);
    let metric = Metric::of(record.config.loss);
    let users = found.into_iter().map(|(user, epoch)| ListedUser {
        loss: loss_of(&user).map(|loss| Mean { value: metric.value(loss.mean), count: loss.count }),
        user,
        user_epoch: epoch.0,
    });
    Ok(Json(Users { users: users.collect(), next }))
}

/// Returns a user's state and latest events. An unknown user has no events and the weights of the
/// prior.
#[utoipa::path(get, path = "/v1/models/{model}/users/{user}", tag = "users",
    params(OfUser, UserParams),
    responses((status = 200, body = User)))]
async fn get_user(
    State(node): State<Node>,
    OfUser { model, user }: OfUser,
    Params(params): Params<UserParams>,
) -> Result<Json<User>, ApiError> {
    let history_max = params.history.unwrap_or(HISTORY_DEFAULT);
    if history_max > HISTORY_MAX {
        return Err(ApiError::field("history", format!("at most {HISTORY_MAX}, got {history_max}")));
    }
    let id = node.manager.registry().model(&model)?.id;
    let view = node.predictor.explainer().user(&model, &user, history_max).await?;
    Ok(Json(User {
        user,
        version: view.version.0,
        user_epoch: view.user_epoch.0,
        cold: view.observations == 0,
        observations: view.observations,
        weights: view.weights,
        state_hash: format!("{:016x}", view.state_hash),
        attributes: view.attributes,
        history: view.history.into_iter().map(|(sequence, record)| event(id, sequence, record)).collect(),
    }))
}

/// Sets the attributes of a user, for every model of the stream. Predictions reflect them as soon as the request is
/// answered, if the active version was trained with attributes of users.
#[utoipa::path(put, path = "/v1/models/{model}/users/{user}", tag = "users", request_body = UserBody,
    params(OfUser),
    responses((status = 200, body = UserDescribed)))]
async fn put_user(
    State(node): State<Node>,
    OfUser { model, user }: OfUser,
    Body(UserBody { attributes }): Body<UserBody>,
) -> Result<Json<UserDescribed>, ApiError> {
    let user_epoch = node.predictor.ingest().describe_user(&model, &user, attributes).await?.0;
    Ok(Json(UserDescribed { user, user_epoch }))
}

/// Erases a user: history, attributes, states, cached predictions and decisions, for every model of the stream.
///
/// The receipt lists what still derives from the user's data, and until when. Later observations
/// under the same id belong to a new user.
#[utoipa::path(delete, path = "/v1/models/{model}/users/{user}", tag = "users",
    params(OfUser),
    responses((status = 200, body = Receipt)))]
async fn erase_user(State(node): State<Node>, OfUser { model, user }: OfUser) -> Result<Json<Receipt>, ApiError> {
    // A task of its own, so that a client that disconnects does not interrupt the erasure. Erasures
    // rewrite the decisions of whole models, and leave threads to requests that serve.
    let erasing = node.clone();
    let erase = async move { node.compute.operate(erased(erasing, model, user)).await };
    let task = tokio::spawn(carried(Task::Erase, erase));
    task.await.map_err(ApiError::internal)??
}

async fn erased(node: Node, model: ModelName, user: UserId) -> Result<Json<Receipt>, ApiError> {
    let Erased { stream, user_epoch, decisions, erasure } = node.predictor.erase(&model, &user).await?;
    node.manager.forget_user(&stream, &user, user_epoch);
    let erased = ErasedSpan::from(&erasure);
    // In this order, because a training that finishes meanwhile is listed among the versions.
    let trainings = node.manager.training().readings().of_erased(&stream, erased, erasure.timestamp);
    let versions = node.manager.registry().versions_trained_on(&stream, erased)?;
    let after =
        |time: Duration| erasure.timestamp.0.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    Ok(Json(Receipt {
        user,
        user_epoch: user_epoch.0,
        observations: erasure.observations,
        decisions,
        erased: erasure.timestamp.0,
        versions: versions.into_iter().map(KnowingVersion::from).collect(),
        trainings: trainings.into_iter().map(Training::from).collect(),
        segments_rewritten_by: node.sealer.as_ref().map(|sealer| after(sealer.amended_within())),
        log_trimmed_by: node.replication.as_ref().map(|replication| after(replication.trimmed_within())),
        copies: COPIES,
    }))
}
