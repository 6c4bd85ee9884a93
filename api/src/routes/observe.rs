//! Feedback: single observations and NDJSON streams of observations.

use axum::extract::{Request, State};
use axum::response::Response;
use celeris_model::Observation;
use celeris_predictor::PendingObservation;
use celeris_storage::AckMode;
use tokio::sync::mpsc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Access, Principal};
use crate::answer::Answer;
use crate::asking::Asking;
use crate::description::Gone;
use crate::error::ApiError;
use crate::extract::{InModel, parse};
use crate::ingest_pool::{ANSWER_BYTES, BATCH_LINES, Dispatched, OfStream, PARSED_BATCHES};
use crate::line_replies::{self, Replies};
use crate::ndjson::{self, Line, Reading, split_block};
use crate::routing::{ForUser, WroteNothing, answer_lines};
use crate::schema::observations::{ObserveBody, ObserveReply, ObservedArray, ObservedLine};
use crate::scope::{Task, carried};
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(observe))
}

/// Streams of observations, which threads of their own ingest.
pub fn streams() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(observe_lines))
}

/// Learns from one observation; responds once it is durable.
#[utoipa::path(post, path = "/v1/models/{model}/observe", tag = "serving", request_body = ObserveBody,
    params(InModel),
    responses((status = 200, body = ObserveReply), (status = 410, response = Gone)))]
pub async fn observe(
    State(node): State<Node>,
    InModel(model): InModel,
    asking: Asking,
    ForUser { body, .. }: ForUser<ObserveBody>,
) -> Result<Response, ApiError> {
    asking.take_observation(&node)?;
    let observation = body.observation()?;
    if let (Some(cluster), Some(decision)) = (&node.cluster, &observation.decision) {
        let decided_by = node.predictor.models().decides_as(&model)?;
        cluster.fetch_decision(&node.storage, (decided_by, decision)).await?;
    }
    let observed = node.predictor.ingest().observe(&model, observation).await?;
    let duplicate = observed.duplicate;
    Ok(WroteNothing::mark(Answer(ObserveReply::from(observed)), duplicate))
}

/// Learns from many observations: one JSON object per line, or a JSON array of them.
///
/// Returns one line for each, in order, once it is durable, and a summary as the last one; to an
/// array, an object with `results` and `summary`. A rejected line is answered with its number and
/// the problem, and the stream continues. If all lines are rejected, the status is that of the first
/// one, unless that takes longer than a second. A stream that sends nothing for longer than
/// `limits.stream_idle_timeout` ends with such a reply; empty lines keep it open. Observations of
/// one user are learnt in the order of their lines, observations of different users concurrently:
/// if lines of two users have the same `observation_id`, either of them may be the one that is
/// rejected.
#[utoipa::path(post, path = "/v1/models/{model}/observations", tag = "serving",
    request_body(content((ObserveBody = "application/x-ndjson"), (Vec<ObserveBody> = "application/json"))),
    params(InModel), responses((status = 200, description = "What became of each observation, in order",
        content((ObservedLine = "application/x-ndjson"), (ObservedArray = "application/json")))))]
async fn observe_lines(
    State(node): State<Node>,
    InModel(model): InModel,
    Asking(principal): Asking,
    request: Request,
) -> Result<Response, ApiError> {
    if node.cluster.is_some() {
        return Box::pin(answer_lines(node, (model, principal), request)).await;
    }
    let model = OfStream::new(&node.predictor, model)?;
    let of_key = node.access.streams().open(principal.as_ref())?;
    let (permit, form) = ndjson::admit(&node.stream_permits, of_key, request.headers())?;
    let reading = Reading::new(&node.limits, BATCH_LINES, |line| parse::<ObserveBody>(line)?.observation());
    let parsed = ndjson::read((request.into_body(), form), reading, PARSED_BATCHES).await?;
    let (begun, receiver) = mpsc::channel((node.limits.observations_in_flight / BATCH_LINES).max(1));
    let answering = node.clone();
    let beginning = async move { begin_all((&node, principal.as_ref()), &model, parsed, begun).await };
    tokio::spawn(carried(Task::Lines, beginning));
    let answers = futures_util::stream::unfold((answering, receiver, permit), |(node, mut receiver, permit)| async {
        let batch = receiver.recv().await?.begun().await;
        let answers = match batch {
            Ok(batch) => Ok(answer(&node, batch).await),
            Err(broken_off) => Err(broken_off),
        };
        Some((answers, (node, receiver, permit)))
    });
    Ok(line_replies::respond(answers, form).await)
}

/// Dispatches the batches of a stream to the ingest pool, at the rate of its principal, and passes them on to the response.
async fn begin_all(
    (node, principal): (&Node, Option<&Principal>),
    model: &OfStream,
    mut parsed: mpsc::Receiver<Vec<Line<Observation>>>,
    begun: mpsc::Sender<Dispatched>,
) {
    while let Some(mut rest) = parsed.recv().await {
        while !rest.is_empty() {
            let mut lines = split_block(&mut rest, Access::block(principal));
            let keys = node.manager.api_keys();
            let paced = tokio::select! {
                paced = node.access.pace(keys, principal, lines.len()) => paced,
                // The client is gone.
                () = begun.closed() => return,
            };
            if let Err(refused) = paced {
                lines.append(&mut rest);
                let refused = lines.into_iter().map(|line| line.refused(&refused)).collect();
                let dispatched = node.ingest_pool.dispatch(model, refused, AckMode::Wait).await;
                // The stream ends either way.
                let _ = begun.send(dispatched).await;
                return;
            }
            let goes_on = rest.is_empty() && !parsed.is_empty() && begun.capacity() > 1;
            let ack = if goes_on { AckMode::Gather } else { AckMode::Wait };
            let dispatched = node.ingest_pool.dispatch(model, lines, ack).await;
            if begun.send(dispatched).await.is_err() {
                return;
            }
        }
    }
}

/// Returns the replies to a batch, once all of it is durable or rejected.
async fn answer(node: &Node, batch: Vec<Line<PendingObservation>>) -> Replies {
    let mut replies = Replies::with_capacity(batch.len() * ANSWER_BYTES);
    for Line { line, outcome } in batch {
        let observed = match outcome {
            Ok(pending) => node.predictor.ingest().finish_observe(pending).await.map_err(ApiError::from),
            Err(error) => Err(error),
        };
        match observed {
            Ok(observed) if observed.duplicate => replies.duplicate(&ObserveReply::from(observed)),
            Ok(observed) => replies.taken(&ObserveReply::from(observed)),
            Err(error) => replies.rejected(line, &error),
        }
    }
    replies
}
