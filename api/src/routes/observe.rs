//! Feedback: one observation, or a stream of them as NDJSON.

use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use celeris_model::{DecisionId, ItemId, Joined, Observation, ObservationId, Timestamp, UserId};
use celeris_predictor::{Observed, PendingObservation};
use celeris_storage::Then;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::Answer;
use crate::error::{ApiError, Problem};
use crate::extract::{Body, InModel, parse, timestamp};
use crate::learning_threads::{Dealt, OfStream};
use crate::ndjson::{self, Line, Reading, RejectedLine};
use crate::routes::asker::check_feedback;
use crate::state::Node;

/// Lines of a stream that go through it together: some hundred microseconds of work.
const BATCH_LINES: usize = 64;

/// Batches of parsed lines that may wait to be begun.
const PARSED_BATCHES: usize = 4;

/// About the bytes of one answer in a stream.
const ANSWER_BYTES: usize = 144;

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
        check_feedback(self.feedback.as_deref())?;
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
    /// Where it names a decision, what became of that: `slot` (it is the reward of the slot that shows its item),
    /// `repeated` (that slot has one already), `not_shown`, `other_user`, `expired` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    joined: Option<Joined>,
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
            predicted: Some(3.870_592_7),
            joined: None,
        }
    }
}

impl From<Observed> for ObserveReply {
    fn from(observed: Observed) -> Self {
        let Observed { user_epoch, sequence, observation_id, duplicate, predicted, joined } = observed;
        Self { user_epoch: user_epoch.0, sequence: sequence.0, observation_id, duplicate, predicted, joined }
    }
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(observe)).routes(routes!(observe_stream))
}

/// Learns from one observation; answers once it is durable.
#[utoipa::path(post, path = "/v1/models/{model}/observe", tag = "serving", request_body = ObserveBody,
    params(("model" = String, Path)),
    responses((status = 200, body = ObserveReply), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem), (status = 503, body = Problem)))]
pub async fn observe(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(body): Body<ObserveBody>,
) -> Result<Answer<ObserveReply>, ApiError> {
    let observed = node.predictor.observe(&model, body.observation()?).await?;
    Ok(Answer(observed.into()))
}

/// Learns from a stream of observations, one JSON object a line; answers a line for each, in order, once it is durable.
///
/// A line that is not taken is answered with its number and the problem, and the stream goes on. A stream that is silent for
/// longer than `limits.stream_idle_timeout` ends with such an answer; empty lines keep it open. The observations of one
/// user are learnt from in the order of their lines, those of different users at the same time: of two users' lines with one
/// `observation_id`, either may be the one that is refused.
#[utoipa::path(post, path = "/v1/models/{model}/observations", tag = "serving",
    request_body(content = ObserveBody, content_type = "application/x-ndjson"), params(("model" = String, Path)),
    responses((status = 200, body = ObserveReply, content_type = "application/x-ndjson"),
        (status = 404, body = Problem), (status = 415, body = Problem), (status = 503, body = Problem)))]
async fn observe_stream(
    State(node): State<Node>,
    InModel(model): InModel,
    request: Request,
) -> Result<Response, ApiError> {
    let model = OfStream::new(&node, model)?;
    let permit = ndjson::admit(&node, request.headers())?;
    let reading = Reading::new(&node, BATCH_LINES, |line| parse::<ObserveBody>(line)?.observation());
    let parsed = ndjson::read(request.into_body(), reading, PARSED_BATCHES);
    let (begun, receiver) = mpsc::channel((node.limits.observations_in_flight / BATCH_LINES).max(1));
    let answering = node.clone();
    tokio::spawn(async move { begin_all(&node, &model, parsed, begun).await });
    let answers = futures_util::stream::unfold((answering, receiver, permit), |(node, mut receiver, permit)| async {
        let batch = receiver.recv().await?.begun().await;
        let answers = match batch {
            Ok(batch) => Ok(answer(&node, batch).await),
            Err(broken_off) => Err(broken_off),
        };
        Some((answers, (node, receiver, permit)))
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], HttpBody::from_stream(answers)).into_response())
}

/// Hands the batches of a stream to the threads that learn, and on to whoever answers.
async fn begin_all(
    node: &Node,
    model: &OfStream,
    mut parsed: mpsc::Receiver<Vec<Line<Observation>>>,
    begun: mpsc::Sender<Dealt>,
) {
    while let Some(lines) = parsed.recv().await {
        let goes_on = !parsed.is_empty() && begun.capacity() > 1;
        let then = if goes_on { Then::AppendsMore } else { Then::Waits };
        let dealt = node.learning_threads.deal(node, model, lines, then).await;
        if begun.send(dealt).await.is_err() {
            return;
        }
    }
}

/// The answers to a batch, a line each, once all of it is durable or refused.
async fn answer(node: &Node, batch: Vec<Line<PendingObservation>>) -> Vec<u8> {
    let mut answers = Vec::with_capacity(batch.len() * ANSWER_BYTES);
    for Line { line, outcome } in batch {
        let observed = match outcome {
            Ok(pending) => node.predictor.finish_observe(pending).await.map_err(ApiError::from),
            Err(error) => Err(error),
        };
        let written = match observed {
            Ok(observed) => serde_json::to_writer(&mut answers, &ObserveReply::from(observed)),
            Err(error) => serde_json::to_writer(&mut answers, &RejectedLine { line, error: error.problem() }),
        };
        written.expect("an answer is plain data");
        answers.push(b'\n');
    }
    answers
}
