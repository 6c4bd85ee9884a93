//! Feedback: one observation, or a stream of them as NDJSON.

use std::time::Duration;

use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use celeris_model::{DecisionId, ItemId, ModelName, Observation, ObservationId, Timestamp, UserId};
use celeris_predictor::{Observed, PendingObservation};
use futures_util::{Stream, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};
use tokio_util::io::StreamReader;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{Body, InModel, parse, timestamp};
use crate::state::Node;

/// How long a stream pauses where the log's queue is full, before it offers the same observation again.
const OVERLOAD_PAUSE: Duration = Duration::from_millis(5);

/// The longest name of a kind of feedback, in bytes.
const FEEDBACK_BYTES_MAX: usize = 64;

/// One observation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObserveBody {
    #[schema(value_type = String)]
    user: UserId,
    #[schema(value_type = String)]
    item: ItemId,
    /// The rating, reward or other outcome; finite.
    label: f32,
    /// How many times over it counts; 1 by default.
    weight: Option<f32>,
    /// RFC 3339 or Unix milliseconds; the time of arrival by default.
    #[serde(default, deserialize_with = "timestamp")]
    #[schema(value_type = Option<Object>)]
    timestamp: Option<Timestamp>,
    /// Unique in the stream: a repeat with the same body is answered like the first, and learnt from once.
    #[schema(value_type = Option<String>)]
    observation_id: Option<ObservationId>,
    /// The ranking that this is the outcome of.
    #[schema(value_type = Option<String>)]
    decision_id: Option<DecisionId>,
    /// What kind of feedback it is, as you call it.
    feedback: Option<String>,
}

impl ObserveBody {
    fn observation(self) -> Result<Observation, ApiError> {
        if self.feedback.as_ref().is_some_and(|feedback| feedback.len() > FEEDBACK_BYTES_MAX) {
            return Err(ApiError::invalid(format!("feedback: at most {FEEDBACK_BYTES_MAX} bytes")));
        }
        Ok(Observation {
            user: self.user,
            item: self.item,
            label: self.label,
            weight: self.weight.unwrap_or(1.0),
            timestamp: self.timestamp,
            observation_id: self.observation_id,
            feedback: self.feedback,
            decision: self.decision_id,
        })
    }
}

/// What became of an observation.
#[derive(Debug, Serialize, ToSchema)]
pub struct ObserveReply {
    /// The count of the user's events with this one; as `min_epoch`, it reads the user's own writes.
    user_epoch: u64,
    /// Its place in its partition of the log.
    sequence: u64,
    #[schema(value_type = String)]
    observation_id: ObservationId,
    /// Whether it was there already.
    duplicate: bool,
    /// What the model expected before it learnt.
    predicted: Option<f32>,
}

impl ObserveReply {
    /// An answer of the right shape, without any work: what the benches hold a node against.
    pub fn example(body: ObserveBody) -> Self {
        let made = || ObservationId::new("~12-3456").expect("a valid id");
        Self {
            user_epoch: 21,
            sequence: 3456,
            observation_id: body.observation_id.unwrap_or_else(made),
            duplicate: false,
            predicted: Some(3.141_592_7),
        }
    }
}

impl From<Observed> for ObserveReply {
    fn from(observed: Observed) -> Self {
        let Observed { user_epoch, sequence, observation_id, duplicate, predicted } = observed;
        Self { user_epoch: user_epoch.0, sequence: sequence.0, observation_id, duplicate, predicted }
    }
}

/// A line of a stream that was not taken.
#[derive(Debug, Serialize, ToSchema)]
pub struct RejectedLine {
    /// Its number, from 1.
    line: u64,
    error: Problem,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(observe)).routes(routes!(observe_stream))
}

/// Learns from one observation; answers once it is durable.
#[utoipa::path(post, path = "/v1/models/{model}/observe", tag = "serving", request_body = ObserveBody,
    params(("model" = String, Path)),
    responses((status = 200, body = ObserveReply), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem), (status = 503, body = Problem)))]
async fn observe(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(body): Body<ObserveBody>,
) -> Result<Json<ObserveReply>, ApiError> {
    let observed = node.predictor.observe(&model, body.observation()?).await?;
    Ok(Json(observed.into()))
}

/// Learns from a stream of observations, one JSON object a line; answers a line for each, in order, once it is durable.
///
/// A line that is not taken is answered with its number and the problem, and the stream goes on.
#[utoipa::path(post, path = "/v1/models/{model}/observations", tag = "serving",
    request_body(content = ObserveBody, content_type = "application/x-ndjson"), params(("model" = String, Path)),
    responses((status = 200, body = ObserveReply, content_type = "application/x-ndjson"),
        (status = 404, body = Problem)))]
async fn observe_stream(
    State(node): State<Node>,
    InModel(model): InModel,
    request: Request,
) -> Result<Response, ApiError> {
    node.predictor.active(&model)?;
    // A stream outlives the request that opened it, and counts as long as it lives.
    let permit = node.permits.clone().try_acquire_owned();
    let permit =
        permit.map_err(|_| ApiError::unavailable("too many requests are under way on this node; try again"))?;
    let (sender, receiver) = mpsc::channel(node.limits.observations_in_flight);
    let answering = node.clone();
    tokio::spawn(async move {
        read_lines(&node, &model, request.into_body(), &sender).await;
        drop(permit);
    });
    let answers = answer_lines(answering, receiver).map(Ok::<_, std::convert::Infallible>);
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], HttpBody::from_stream(answers)).into_response())
}

/// A line on its way: its number, and the observation begun or refused.
struct Begun {
    line: u64,
    outcome: Result<PendingObservation, ApiError>,
}

/// Begins the observation of every line, as fast as answers are read: the channel is the back-pressure.
async fn read_lines(node: &Node, model: &ModelName, body: HttpBody, sender: &mpsc::Sender<Begun>) {
    let bytes_max = usize::try_from(node.limits.line.as_u64()).unwrap_or(usize::MAX);
    let body = body.into_data_stream().map_err(std::io::Error::other);
    let mut lines = FramedRead::new(StreamReader::new(body), LinesCodec::new_with_max_length(bytes_max));
    let mut number = 0;
    while let Some(line) = lines.next().await {
        number += 1;
        let begun = match line {
            Ok(line) if line.trim().is_empty() => continue,
            Ok(line) => begin(node, model, &line).await,
            Err(LinesCodecError::MaxLineLengthExceeded) => {
                // After an error the stream ends once, and then goes on behind the line.
                let _ended = lines.next().await;
                Err(ApiError::too_large(format!("a line may take at most {bytes_max} bytes")))
            }
            Err(LinesCodecError::Io(error)) => Err(ApiError::malformed(format!("the body broke off: {error}"))),
        };
        if sender.send(Begun { line: number, outcome: begun }).await.is_err() {
            // Nobody reads the answers any more; what was begun is in the log all the same.
            return;
        }
    }
}

async fn begin(node: &Node, model: &ModelName, line: &str) -> Result<PendingObservation, ApiError> {
    let observation = parse::<ObserveBody>(line.as_bytes())?.observation()?;
    loop {
        match node.predictor.begin_observe(model, observation.clone()) {
            Err(error) if error.is_overload() => tokio::time::sleep(OVERLOAD_PAUSE).await,
            begun => return Ok(begun?),
        }
    }
}

fn answer_lines(node: Node, receiver: mpsc::Receiver<Begun>) -> impl Stream<Item = Vec<u8>> {
    ReceiverStream::new(receiver).then(move |Begun { line, outcome }| {
        let node = node.clone();
        async move {
            let observed = match outcome {
                Ok(pending) => node.predictor.finish_observe(pending).await.map_err(ApiError::from),
                Err(error) => Err(error),
            };
            let answer = match observed {
                Ok(observed) => serde_json::to_vec(&ObserveReply::from(observed)),
                Err(error) => serde_json::to_vec(&RejectedLine { line, error: error.problem() }),
            };
            let mut answer = answer.expect("an answer is plain data");
            answer.push(b'\n');
            answer
        }
    })
}
