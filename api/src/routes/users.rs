//! Users: what the node knows of one, and how it forgets one.

use axum::Json;
use axum::extract::State;
use celeris_manager::{ErasedSpan, JobId, ReadingTraining};
use celeris_model::{ItemId, ModelId, ModelName, ObservationId, Record, Sequence, UserId};
use celeris_predictor::Erased;
use celeris_storage::observation_id;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{OfUser, Params};
use crate::state::Node;

/// Events shown unless told otherwise.
const HISTORY_DEFAULT: usize = 100;

/// Events shown at most.
const HISTORY_MAX: usize = 10_000;

/// How much of the history to show.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// Events, newest first; 100 by default, at most 10,000.
    history: Option<usize>,
}

/// One event of a user.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserEvent {
    #[schema(value_type = Option<String>)]
    item: Option<ItemId>,
    label: f32,
    weight: f32,
    /// In Unix milliseconds.
    timestamp: i64,
    /// The client's id, or the one that the server made.
    #[schema(value_type = String)]
    observation_id: ObservationId,
    user_epoch: u64,
    sequence: u64,
    feedback: Option<String>,
    /// What this model expected before it learnt; null where the model came later.
    predicted: Option<f32>,
}

/// A user's state and history.
#[derive(Debug, Serialize, ToSchema)]
pub struct User {
    #[schema(value_type = String)]
    user: UserId,
    /// The version of the state.
    version: u64,
    user_epoch: u64,
    /// Whether nothing is known of the user, so that the prior answers.
    cold: bool,
    /// How many observations the state has learnt from.
    observations: u64,
    /// The weights `w_u`.
    weights: Vec<f64>,
    /// A hash of weights and uncertainty, in hexadecimal: equal hashes are states that are equal to the bit.
    state_hash: String,
    /// The latest events, newest first.
    history: Vec<UserEvent>,
}

/// What an erasure has removed, and what remains until when.
#[derive(Debug, Serialize, ToSchema)]
pub struct Receipt {
    #[schema(value_type = String)]
    user: UserId,
    /// The count of the user's events with the erasure, kept so that no epoch is used twice.
    user_epoch: u64,
    /// Observations erased from the log, and with them every state of the user.
    observations: u64,
    /// Decisions erased.
    decisions: u64,
    /// In Unix milliseconds.
    erased: i64,
    /// Versions whose shared parameters were trained on the user's observations. They hold neither the user's name nor
    /// weights. The next training begins without the user; each of these goes when `keep_versions` newer ones are there,
    /// but not while it serves, is pinned, or is what a rollback leads to.
    versions: Vec<KnowingVersion>,
    /// Trainings under way that have read the user's observations. Each begins again without them; one under which users
    /// were erased twice before is let through, and its version is then one that knows of them (`erased_users`).
    trainings: Vec<Training>,
    /// When the sealed Parquet segments hold nothing of the user any more, in Unix milliseconds; null where nothing is
    /// sealed.
    segments_rewritten_by: Option<i64>,
    /// What an erasure does not reach: copies outside of the data directory.
    copies: &'static str,
}

/// What is said of copies.
const COPIES: &str =
    "exports and backups made before hold the user until they are deleted; the node does not know of them";

/// A training that has read what an erased user had said.
#[derive(Debug, Serialize, ToSchema)]
pub struct Training {
    #[schema(value_type = String)]
    job: JobId,
    #[schema(value_type = String)]
    model: ModelName,
    /// When its copy of the observations is removed at latest, in Unix milliseconds; where the node stops before, when it
    /// starts.
    input_removed_by: i64,
}

/// A version that still knows of an erased user.
#[derive(Debug, Serialize, ToSchema)]
pub struct KnowingVersion {
    #[schema(value_type = String)]
    model: ModelName,
    version: u64,
    /// Whether it serves.
    active: bool,
}

impl From<celeris_manager::KnowingVersion> for KnowingVersion {
    fn from(knowing: celeris_manager::KnowingVersion) -> Self {
        Self { model: knowing.model, version: knowing.version.0, active: knowing.active }
    }
}

impl From<ReadingTraining> for Training {
    fn from(training: ReadingTraining) -> Self {
        Self { job: training.job, model: training.model, input_removed_by: training.input_removed_by.0 }
    }
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(get, erase))
}

fn event(model: ModelId, sequence: Sequence, record: Record) -> UserEvent {
    let predicted = record.predictions.iter().find(|prediction| prediction.model == model);
    UserEvent {
        observation_id: observation_id(sequence, &record),
        predicted: predicted.map(|prediction| prediction.predicted),
        item: record.item,
        label: record.label,
        weight: record.weight,
        timestamp: record.timestamp.0,
        user_epoch: record.user_epoch.0,
        sequence: sequence.0,
        feedback: record.feedback,
    }
}

/// A user's state and latest events. An unknown user has none, and the prior's weights.
#[utoipa::path(get, path = "/v1/models/{model}/users/{user}", tag = "users",
    params(("model" = String, Path), ("user" = String, Path), Shown),
    responses((status = 200, body = User), (status = 404, body = Problem)))]
async fn get(
    State(node): State<Node>,
    OfUser { model, user }: OfUser,
    Params(shown): Params<Shown>,
) -> Result<Json<User>, ApiError> {
    let history_max = shown.history.unwrap_or(HISTORY_DEFAULT);
    if history_max > HISTORY_MAX {
        return Err(ApiError::invalid(format!("history: at most {HISTORY_MAX}, got {history_max}")));
    }
    let id = node.manager.model(&model)?.id;
    let view = node.predictor.user(&model, &user, history_max).await?;
    Ok(Json(User {
        user,
        version: view.version.0,
        user_epoch: view.user_epoch.0,
        cold: view.observations == 0,
        observations: view.observations,
        weights: view.weights,
        state_hash: format!("{:016x}", view.state_hash),
        history: view.history.into_iter().map(|(sequence, record)| event(id, sequence, record)).collect(),
    }))
}

/// Erases a user: history, states, cached predictions and decisions, for every model of the stream. The receipt says
/// what still knows of the user, and until when. Whoever comes under the id afterwards is new.
#[utoipa::path(delete, path = "/v1/models/{model}/users/{user}", tag = "users",
    params(("model" = String, Path), ("user" = String, Path)),
    responses((status = 200, body = Receipt), (status = 404, body = Problem), (status = 503, body = Problem)))]
async fn erase(State(node): State<Node>, OfUser { model, user }: OfUser) -> Result<Json<Receipt>, ApiError> {
    // A task of its own: a client that goes away must not leave an erasure half done.
    tokio::spawn(erased(node, model, user)).await.map_err(ApiError::internal)?
}

async fn erased(node: Node, model: ModelName, user: UserId) -> Result<Json<Receipt>, ApiError> {
    let Erased { stream, user_epoch, decisions, erasure } = node.predictor.erase(&model, &user).await?;
    node.manager.forget_user(&stream, &user, user_epoch);
    let erased = ErasedSpan::from(&erasure);
    let (trainings, versions) = tokio::task::block_in_place(|| {
        // In this order: what a training becomes meanwhile is among the versions.
        let trainings = node.manager.trainings_holding(&stream, erased, erasure.timestamp);
        node.manager.versions_knowing(&stream, erased).map(|versions| (trainings, versions))
    })?;
    let within = node.sealer.as_ref().map(|sealer| sealer.amended_within());
    let within = within.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    Ok(Json(Receipt {
        user,
        user_epoch: user_epoch.0,
        observations: erasure.observations,
        decisions,
        erased: erasure.timestamp.0,
        versions: versions.into_iter().map(KnowingVersion::from).collect(),
        trainings: trainings.into_iter().map(Training::from).collect(),
        segments_rewritten_by: within.map(|time| erasure.timestamp.0.saturating_add(time)),
        copies: COPIES,
    }))
}
