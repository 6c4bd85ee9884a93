//! Lists of which every node has a part: of the decisions, which are kept where they were made.

use std::cmp::Reverse;

use axum::Json;
use axum::extract::{Query, Request};
use axum::response::{IntoResponse, Response};
use celeris_model::PlacementRevision;
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::{Answered, Cluster, Kept};
use crate::error::ApiError;
use crate::paging;

/// The parameter `limit`.
#[derive(Deserialize)]
struct Limit {
    limit: Option<usize>,
}

/// Answers a page of decisions, the latest first, from the pages of all nodes.
///
/// # Errors
/// 503 if a node does not answer.
pub async fn decisions<F>(cluster: &Cluster, request: Kept, run: impl Fn(Request) -> F) -> Result<Response, ApiError>
where
    F: Future<Output = Result<Response, ApiError>>,
{
    let own = run(request.request()).await?;
    let limit = Query::<Limit>::try_from_uri(&request.parts.uri).ok().and_then(|Query(query)| query.limit);
    let (Ok(limit), true) = (paging::entries(limit), own.status().is_success()) else { return Ok(own) };
    let (peers, node, revision): (_, _, PlacementRevision) = cluster.peers();
    let asked = peers.iter().map(|peer| cluster.forwarder().send(peer, (&node, revision), &request));
    let mut entries = entries_of(own).await;
    for (peer, answered) in peers.iter().zip(join_all(asked).await) {
        match answered {
            Ok(Answered::Reply(page)) if page.status().is_success() => entries.extend(entries_of(page).await),
            _ => {
                let missing = format!("node {} does not answer, and its decisions are missing; try again", peer.node);
                return Err(ApiError::unavailable(missing));
            }
        }
    }
    let id = |entry: &Value| entry["decision_id"].as_str().unwrap_or_default().to_owned();
    // Ids begin with the time.
    entries.sort_by_cached_key(|entry| Reverse(id(entry)));
    entries.dedup_by_key(|entry| id(entry));
    entries.truncate(limit);
    let next = paging::next(&entries, limit, id);
    Ok(Json(json!({"decisions": entries, "next": next})).into_response())
}

async fn entries_of(page: Response) -> Vec<Value> {
    let text = axum::body::to_bytes(page.into_body(), usize::MAX).await.unwrap_or_default();
    let mut page: Value = serde_json::from_slice(&text).unwrap_or_default();
    match page["decisions"].take() {
        Value::Array(entries) => entries,
        _ => Vec::new(),
    }
}
