//! Events of clients by their ids: the owner of their user is looked up.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use celeris_model::{DecisionId, EventId, ModelId, ModelName, Partition, RankingEvent};
use tokio::time::timeout;

use super::exchange::unanswered;
use super::path_text;
use crate::cluster::events::{NamedEvent, PATH};
use crate::cluster::{Answered, Cluster, Kept};
use crate::error::ApiError;
use crate::personalizer::decision_in;
use crate::state::Node;

/// How long another node may take to look an event up.
const TIMEOUT: Duration = Duration::from_millis(500);

/// The partition of the user of a request's event; `None` if there is no such event.
///
/// # Errors
/// If the decisions cannot be read, or not all nodes answer.
pub async fn locate(node: &Node, request: Request) -> Result<(Request, Option<Partition>), ApiError> {
    let (request, model) = path_text(request, "model").await;
    let (request, id) = path_text(request, "event_id").await;
    let named = model.and_then(|model| Some((ModelName::new(model).ok()?, EventId::new(id?).ok()?)));
    let Some((model, id)) = named else { return Ok((request, None)) };
    // The id that the node has made itself.
    if let Some(partition) = decision_in(&id).as_ref().and_then(DecisionId::partition) {
        return Ok((request, Some(partition)));
    }
    let Ok(model) = node.predictor.models().decides_as(&model) else { return Ok((request, None)) };
    let looking = node.clone();
    let found = node.compute.run(async move { find(&looking, model, &id).await }).await??;
    Ok((request, found.map(|event| Partition::of(&event.user))))
}

/// The event of this id, which this node or another one has.
///
/// # Errors
/// If the decisions cannot be read; 503 if no node has it, and not all have answered.
pub async fn find(node: &Node, model: ModelId, id: &EventId) -> Result<Option<RankingEvent>, ApiError> {
    let here = node.storage.decisions().event(model, id)?;
    match &node.cluster {
        Some(cluster) if here.is_none() => ask_all(cluster, model, id).await,
        _ => Ok(here),
    }
}

async fn ask_all(cluster: &Cluster, model: ModelId, id: &EventId) -> Result<Option<RankingEvent>, ApiError> {
    let (peers, node, revision) = cluster.peers();
    let body = serde_json::to_vec(&NamedEvent { model: model.0, event: id.clone() }).map_err(ApiError::internal)?;
    let mut request = Request::post(PATH).body(()).map_err(ApiError::internal)?;
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let request = Kept { parts: request.into_parts().0, body: Bytes::from(body) };
    let mut have_all_answered = true;
    for peer in peers {
        let sent = timeout(TIMEOUT, cluster.forwarder().send(&peer, (&node, revision), &request)).await;
        let Ok(Ok(Answered::Reply(reply))) = sent else {
            have_all_answered = false;
            continue;
        };
        let (status, body) = (reply.status(), axum::body::to_bytes(reply.into_body(), usize::MAX).await);
        match body.map(|body| serde_json::from_slice::<RankingEvent>(&body)) {
            Ok(Ok(event)) if status.is_success() => return Ok(Some(event)),
            _ => have_all_answered &= status == StatusCode::NOT_FOUND,
        }
    }
    if have_all_answered { Ok(None) } else { Err(unanswered()) }
}
