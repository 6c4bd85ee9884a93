//! Feedback: one observation, or a stream of them as NDJSON.

use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use celeris_model::Observation;
use celeris_predictor::PendingObservation;
use celeris_storage::AckMode;
use tokio::sync::mpsc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::Answer;
use crate::error::{ApiError, Problem};
use crate::extract::{Body, InModel, parse};
use crate::ingest_pool::{Dispatched, OfStream};
use crate::ndjson::{self, Line, Reading, RejectedLine};
use crate::schema::observations::{ObserveBody, ObserveReply};
use crate::state::Node;

/// Lines of a stream that go through it together: some hundred microseconds of work.
const BATCH_LINES: usize = 64;

/// Batches of parsed lines that may wait to be begun.
const PARSED_BATCHES: usize = 4;

/// About the bytes of one answer in a stream.
const ANSWER_BYTES: usize = 144;

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
    begun: mpsc::Sender<Dispatched>,
) {
    while let Some(lines) = parsed.recv().await {
        let goes_on = !parsed.is_empty() && begun.capacity() > 1;
        let ack = if goes_on { AckMode::Gather } else { AckMode::Wait };
        let dealt = node.ingest_pool.dispatch(node, model, lines, ack).await;
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
