//! A request until it is answered: here, or by the node that owns its user.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use celeris_model::ClusterView;

use super::Target;
use super::for_user::{Elsewhere, Noted};
use super::table::{Repeat, Route, Rule};
use crate::cluster::{
    Answered, Cluster, Failure, Hop, Kept, OWNER, Peer, Place, Watching, asks_for_redirect, busy, owner, set_placement,
};
use crate::error::{ApiError, NotOwner};

/// A request on its way.
pub enum Carried {
    /// It can be sent again.
    Kept(Kept),
    /// Its body is not kept; `None` once it was read.
    Once(Box<Option<Request>>),
}

impl Carried {
    fn take(&mut self) -> Option<Request> {
        match self {
            Self::Kept(kept) => Some(kept.request()),
            Self::Once(request) => request.take(),
        }
    }

    fn headers(&self) -> Option<&HeaderMap> {
        match self {
            Self::Kept(kept) => Some(&kept.parts.headers),
            Self::Once(request) => request.as_ref().as_ref().map(Request::headers),
        }
    }

    fn path_and_query(&self) -> &str {
        let uri = match self {
            Self::Kept(kept) => Some(&kept.parts.uri),
            Self::Once(request) => request.as_ref().as_ref().map(Request::uri),
        };
        uri.and_then(|uri| uri.path_and_query()).map_or("/", |path| path.as_str())
    }
}

/// A request until it is answered.
pub struct Exchange<'a> {
    pub cluster: &'a Cluster,
    pub rule: Rule,
    pub hop: Option<Hop>,
    /// What the extractor finds in the body.
    pub noted: Noted,
    pub watching: Watching,
    /// `None` until the body was parsed.
    pub target: Option<Target>,
    pub carried: Carried,
}

/// The result of one attempt.
enum Attempt {
    Answered(Response),
    /// The body names a user of another node.
    Elsewhere,
    /// Nothing was carried out, or it may be again. This is the answer if no later attempt succeeds.
    Failed(Response),
}

impl Attempt {
    fn failed(error: ApiError) -> Self {
        Self::Failed(error.into_response())
    }
}

impl Exchange<'_> {
    /// Answers the request, by `run` if it is for this node.
    pub async fn run<F>(mut self, run: impl Fn(Request) -> F) -> Result<Response, ApiError>
    where
        F: Future<Output = Result<Response, ApiError>>,
    {
        let fallback = self.rule.route == Route::CoordinatorIfReached;
        loop {
            let attempt = match self.place().await {
                Place::Local => match self.carried.take() {
                    Some(request) => self.answered_here(run(request).await?),
                    None => return Err(cut_off()),
                },
                Place::Remote(_) if self.hop.is_some() => return Ok(self.misplaced()),
                Place::Remote(peer) => self.forward(&peer).await,
                Place::Unplaced => Attempt::failed(unanswered()),
            };
            let last = match attempt {
                Attempt::Answered(response) => return Ok(response),
                Attempt::Elsewhere => continue,
                Attempt::Failed(last) => last,
            };
            // A reading that any node can answer does not wait for the coordinator.
            if !fallback && self.watching.pause().await.is_ok() {
                continue;
            }
            return match self.carried.take() {
                Some(request) if fallback => run(request).await,
                _ if self.hop.is_some() && last.extensions().get::<NotOwner>().is_some() => Ok(self.misplaced()),
                _ => Ok(last),
            };
        }
    }

    /// Where the request is answered.
    async fn place(&mut self) -> Place {
        // The extractor finds the user.
        let Some(target) = self.target else { return Place::Local };
        let log = |view: &ClusterView| target.log(view);
        if self.rule.route == Route::CoordinatorIfReached {
            let view = self.watching.view();
            return Place::of(&view, log(&view));
        }
        self.watching.settled(log, self.hop.map(|hop| hop.revision)).await.unwrap_or(Place::Unplaced)
    }

    /// Looks at what this node answered.
    fn answered_here(&mut self, mut response: Response) -> Attempt {
        if let Some(Elsewhere { partition, request }) = response.extensions_mut().remove() {
            self.carried = Carried::Kept(*request);
            // Found to be here before: the owner is changing.
            let is_changing = self.target.replace(Target::Users(partition)).is_some();
            return if is_changing { Attempt::Failed(response) } else { Attempt::Elsewhere };
        }
        if response.extensions().get::<NotOwner>().is_some() {
            return Attempt::Failed(response);
        }
        let partition = self.noted.partition().or(self.target.and_then(Target::partition));
        if partition.is_some() || self.target.is_some() {
            let view = self.watching.view();
            let url = view.placement.url(&view.node).unwrap_or_default();
            response.headers_mut().insert(OWNER, owner(url, partition, view.placement.revision));
        }
        Attempt::Answered(response)
    }

    /// 421 with the revision of this node's placement, for the node that has sent the request.
    fn misplaced(&mut self) -> Response {
        let mut response = ApiError::misdirected("this node does not own the user of the request").into_response();
        set_placement(response.headers_mut(), self.watching.view().placement.revision);
        response
    }

    async fn forward(&mut self, peer: &Peer) -> Attempt {
        if self.carried.headers().is_some_and(asks_for_redirect) {
            return Attempt::Answered(self.redirect(peer));
        }
        let (node, revision) = {
            let view = self.watching.view();
            (view.node.clone(), view.placement.revision)
        };
        let forwarder = self.cluster.forwarder();
        let answered = match &mut self.carried {
            Carried::Kept(kept) => forwarder.send(peer, (&node, revision), kept).await,
            Carried::Once(request) => match request.take() {
                Some(request) => forwarder.stream(peer, (&node, revision), request).await,
                None => return Attempt::Answered(cut_off().into_response()),
            },
        };
        match answered {
            Ok(Answered::Reply(response)) => Attempt::Answered(response),
            Ok(Answered::Misplaced) => Attempt::failed(unanswered()),
            Err(Failure::Busy) => Attempt::Answered(busy().into_response()),
            Err(Failure::NotSent(problem)) => {
                tracing::debug!(%problem, node = %peer.node, "a request was not forwarded");
                Attempt::failed(unanswered())
            }
            Err(Failure::Unknown(problem)) => {
                tracing::debug!(%problem, node = %peer.node, "what became of a forwarded request is not known");
                match self.rule.repeat {
                    Repeat::Safe => Attempt::failed(unanswered()),
                    Repeat::WithId if self.noted.is_repeatable() => Attempt::failed(unanswered()),
                    Repeat::WithId => Attempt::Answered(uncounted().into_response()),
                    Repeat::Never => Attempt::Answered(undecided().into_response()),
                }
            }
        }
    }

    /// 307 to the owner.
    fn redirect(&mut self, peer: &Peer) -> Response {
        let url = format!("{}{}", peer.url.trim_end_matches('/'), self.carried.path_and_query());
        let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
        if let Ok(url) = HeaderValue::from_str(&url) {
            response.headers_mut().insert(header::LOCATION, url);
        }
        let revision = self.watching.view().placement.revision;
        let partition = self.target.and_then(Target::partition);
        response.headers_mut().insert(OWNER, owner(&peer.url, partition, revision));
        response
    }
}

/// No node answers in time, and nothing was carried out.
pub fn unanswered() -> ApiError {
    ApiError::not_owner("no node of the cluster answers for the user at the moment, and nothing was written; try again")
}

/// The stream was sent to a node that did not take it.
fn cut_off() -> ApiError {
    ApiError::unavailable("the coordinator of the cluster has changed, and the stream ends here; send it again")
}

/// An observation that may or may not have been learnt.
fn uncounted() -> ApiError {
    ApiError::unknown_fate(UNCOUNTED)
}

/// What is said of an observation without an id whose reply was lost.
pub const UNCOUNTED: &str = "the connection to the node that owns the user broke: the observation may or may not have \
                             been counted; give observations an observation_id, and they can be sent again safely";

/// A change that may or may not have been made.
fn undecided() -> ApiError {
    ApiError::unknown_fate(
        "the connection to the coordinator of the cluster broke: the change may or may not have been made; look \
         before you send it again",
    )
}
