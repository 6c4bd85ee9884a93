//! The extractor of bodies that name a user.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{FromRequest, Query, Request};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use celeris_model::{LogId, Partition, Shard, UserEpoch, UserId};
use celeris_storage::StorageError;
use serde::de::DeserializeOwned;

use super::exchange::unanswered;
use crate::cluster::{Cluster, Kept, Place, STALE_AFTER, log_of};
use crate::error::ApiError;
use crate::extract::{Text, parse};
use crate::schema::consistency::{Consistency, Reading};
use crate::scope::note_user;
use crate::state::Node;

/// An owner that was not confirmed for longer than this answers no more.
const STALENESS_MAX: Duration = Duration::from_secs(60);

/// A body that names its user.
pub trait Named {
    /// Completes the body by settings of the node, before anything else is asked of it.
    fn complete(&mut self, _node: &Node) {}

    /// The user whose owner answers; `None` if any node can.
    fn user(&self) -> Option<&UserId>;

    /// Whether the request has the same effect if it is sent twice.
    fn is_repeatable(&self) -> bool {
        true
    }

    /// How current the answer must be; `None` if the request writes.
    fn reads(&self) -> Option<(Consistency, Option<UserEpoch>)>;
}

/// A JSON body whose user this node answers for.
///
/// The request of another node's user is rejected with [`Elsewhere`], by which [`super::answer`]
/// forwards it.
pub struct ForUser<T> {
    pub body: T,
    /// How old the answer may be, in milliseconds; `None` if it is current.
    pub stale_ms: Option<u64>,
}

/// What is found in a body, for the code around the handler.
#[derive(Debug, Clone, Default)]
pub struct Noted(Arc<OnceLock<(Partition, bool)>>);

impl Noted {
    /// Notes what a body says; that of a request that is tried again says the same.
    pub fn note(&self, partition: Partition, repeatable: bool) {
        let _ = self.0.set((partition, repeatable));
    }

    /// The partition of the user.
    pub fn partition(&self) -> Option<Partition> {
        self.0.get().map(|(partition, _)| *partition)
    }

    /// Whether the request has the same effect if it is sent twice.
    pub fn is_repeatable(&self) -> bool {
        self.0.get().is_some_and(|(_, repeatable)| *repeatable)
    }
}

/// Marks a response: the request is for the user of another node.
#[derive(Debug, Clone)]
pub struct Elsewhere {
    pub partition: Partition,
    pub request: Box<Kept>,
}

/// Who answers a request.
enum Answers {
    Here { stale_ms: Option<u64> },
    Owner,
}

impl<T: DeserializeOwned + Named + Send + Sync> FromRequest<Node> for ForUser<T> {
    type Rejection = Response;

    async fn from_request(request: Request, node: &Node) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let read = async {
            let Text(text) = Text::read(&parts.headers, body).await?;
            let mut body: T = parse(&text)?;
            body.complete(node);
            let staleness = staleness(&parts.uri, &body)?;
            Ok::<_, ApiError>((text, body, staleness))
        };
        let (text, body, staleness) = read.await.map_err(IntoResponse::into_response)?;
        if let Some(user) = body.user() {
            note_user(user);
        }
        let (Some(cluster), Some(user)) = (&node.cluster, body.user()) else {
            return Ok(Self { body, stale_ms: None });
        };
        let partition = Partition::of(user);
        if let Some(noted) = parts.extensions.get::<Noted>() {
            noted.note(partition, body.is_repeatable());
        }
        let answers = Box::pin(answers(cluster, partition, (body.reads(), staleness))).await;
        match answers.map_err(IntoResponse::into_response)? {
            Answers::Here { stale_ms } => Ok(Self { body, stale_ms }),
            Answers::Owner => {
                let request = Box::new(Kept { parts, body: text });
                let mut response = unanswered().into_response();
                response.extensions_mut().insert(Elsewhere { partition, request });
                Err(response)
            }
        }
    }
}

/// The parameter `staleness` of a reading.
fn staleness(uri: &Uri, body: &impl Named) -> Result<Option<Duration>, ApiError> {
    let (Some(_), Some((consistency, _))) = (uri.query(), body.reads()) else { return Ok(None) };
    let Query(reading) =
        Query::<Reading>::try_from_uri(uri).map_err(|rejection| ApiError::field("staleness", rejection.body_text()))?;
    let staleness = reading.allowed().map_err(|reason| ApiError::field("staleness", reason))?;
    if staleness.is_some() && consistency == Consistency::Latest {
        return Err(ApiError::field("staleness", "not together with consistency latest; leave one out"));
    }
    Ok(staleness)
}

fn shard_of(cluster: &Cluster, partition: Partition) -> (Place, Option<Shard>) {
    let view = cluster.view();
    let log = log_of(&view, partition);
    let shard = log.and_then(|log| match log {
        LogId::Shard(shard) => Some(shard),
        LogId::Catalog => None,
    });
    (Place::of(&view, log), shard)
}

async fn answers(
    cluster: &Cluster,
    partition: Partition,
    (reads, allowed): (Option<(Consistency, Option<UserEpoch>)>, Option<Duration>),
) -> Result<Answers, ApiError> {
    let (place, shard) = shard_of(cluster, partition);
    let is_owner = place == Place::Local;
    let (Some((consistency, min_epoch)), Some(shard)) = (reads, shard) else {
        return Ok(if is_owner { Answers::Here { stale_ms: None } } else { Answers::Owner });
    };
    let age = cluster.freshness().staleness(shard);
    if !is_owner {
        // An owner has the epoch or refuses; a copy may not have it yet.
        let copy = age.filter(|age| min_epoch.is_none() && allowed.is_some_and(|allowed| *age <= allowed));
        return Ok(copy.map_or(Answers::Owner, |age| Answers::Here { stale_ms: Some(millis(age)) }));
    }
    let is_too_old = age.is_some_and(|age| allowed.is_some_and(|allowed| age > allowed));
    if consistency == Consistency::Latest || is_too_old {
        return match cluster.freshness().confirm(shard).await {
            Ok(()) => Ok(Answers::Here { stale_ms: None }),
            Err(StorageError::NotOwner | StorageError::Fenced) => Ok(Answers::Owner),
            Err(error) => Err(error.into()),
        };
    }
    match age {
        Some(age) if age > STALENESS_MAX => Err(ApiError::unavailable(format!(
            "the log has not confirmed for {} s that this node owns the user; try again",
            age.as_secs()
        ))),
        age => Ok(Answers::Here { stale_ms: age.filter(|age| *age > STALE_AFTER).map(millis) }),
    }
}

fn millis(age: Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}
