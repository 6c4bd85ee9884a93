//! Observations by their id: the owner of their user is looked up.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use celeris_model::{ModelName, ObservationId, Partition};
use celeris_storage::Lookup;

use super::exchange::unanswered;
use super::{path_text, user_in_query};
use crate::cluster::{Answered, Cluster, Kept};
use crate::error::ApiError;
use crate::state::Node;

/// Where an observation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Located {
    /// Its user is in this partition.
    In(Partition),
    /// This node has the answer: it was forgotten, or the request is not valid.
    Here,
    /// This node's copy does not have it, and the id does not tell.
    Unknown,
}

/// Locates the observation of a request, by its parameter `user`, by its id or in the log.
///
/// # Errors
/// If the log cannot be read.
pub async fn locate(node: &Node, request: Request) -> Result<(Request, Located), ApiError> {
    if let Some(user) = user_in_query(&request) {
        return Ok((request, Located::In(Partition::of(&user))));
    }
    let (request, model) = path_text(request, "model").await;
    let (request, id) = path_text(request, "observation_id").await;
    let named = model.and_then(|model| Some((ModelName::new(model).ok()?, ObservationId::new(id?).ok()?)));
    let Some((model, id)) = named else { return Ok((request, Located::Here)) };
    if let Some(partition) = id.partition() {
        return Ok((request, Located::In(partition)));
    }
    let reading = node.clone();
    let located = node.compute.run(async move { look_up(&reading, &model, &id) }).await?;
    Ok((request, located))
}

fn look_up(node: &Node, model: &ModelName, id: &ObservationId) -> Located {
    let Ok(stream) = node.predictor.models().stream_of(model) else { return Located::Here };
    match node.storage.log().observation_of_any_user(&stream, id) {
        Ok(Lookup::Found { partition, .. }) => Located::In(partition),
        Ok(Lookup::Unknown) => Located::Unknown,
        // The handler reports that it was forgotten or is ambiguous, or what failed.
        Ok(Lookup::Forgotten) | Err(_) => Located::Here,
    }
}

/// Sends a request for an observation that this node does not have to all other nodes: the copy of
/// this node may be behind. The answer is that of the node that has it; 404 if none has.
///
/// # Errors
/// 503 if no node has it, and not all have answered.
pub async fn ask_all<F>(cluster: &Cluster, request: Kept, run: impl Fn(Request) -> F) -> Result<Response, ApiError>
where
    F: Future<Output = Result<Response, ApiError>>,
{
    let (peers, node, revision) = cluster.peers();
    let mut all_answered = true;
    for peer in peers {
        match cluster.forwarder().send(&peer, (&node, revision), &request).await {
            Ok(Answered::Reply(response)) if response.status() != StatusCode::NOT_FOUND => return Ok(response),
            Ok(Answered::Reply(_)) => {}
            Ok(Answered::Misplaced) | Err(_) => all_answered = false,
        }
    }
    if all_answered { run(request.request()).await } else { Ok(unanswered().into_response()) }
}
