//! A request until it is answered: here, or by the node that owns its user.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use celeris_model::{ClusterView, Partition};

use super::Target;
use super::for_user::{Elsewhere, Noted};
use super::table::{Repeat, Route, Rule};
use crate::cluster::{
    Answered, Cluster, Failure, Hop, Kept, OWNER, Peer, Place, Watching, asks_for_redirect, busy, log_of, owner,
    set_placement, url_at,
};
use crate::error::{ApiError, NotOwner};

/// A request on its way.
pub enum Carried {
    /// It can be sent again.
    Kept(Kept),
    /// Its body is not kept; `None` once it was read.
    Once(Option<Request>),
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
            Self::Once(request) => request.as_ref().map(Request::headers),
        }
    }

    fn path_and_query(&self) -> &str {
        let uri = match self {
            Self::Kept(kept) => Some(&kept.parts.uri),
            Self::Once(request) => request.as_ref().map(Request::uri),
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
    /// Whether an owner may have carried out the change without its answer having arrived.
    pub may_be_done: bool,
}

/// Marks the response to a write that was there already.
#[derive(Debug, Clone, Copy)]
pub struct WroteNothing;

impl WroteNothing {
    /// The response to a write, marked if it is a `duplicate`.
    pub fn mark(response: impl IntoResponse, duplicate: bool) -> Response {
        let mut response = response.into_response();
        if duplicate {
            response.extensions_mut().insert(Self);
        }
        response
    }
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
                    Some(request) => {
                        let response = run(request).await?;
                        if self.rule.route == Route::Coordinator && response.status().is_success() {
                            // So that the client finds the change on every node.
                            self.cluster.freshness().settle().await;
                        }
                        let refuted = match self.found_nothing(&response) {
                            Some(partition) => self.cluster.confirm(partition).await.err(),
                            None => None,
                        };
                        match refuted {
                            Some(error) => Attempt::failed(error.into()),
                            None => self.answered_here(response),
                        }
                    }
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
                _ if self.may_be_done => Ok(unsettled().into_response()),
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

    /// Whether the request changes something.
    fn is_change(&self) -> bool {
        let is_ranking = self.rule.route == Route::UserInBody && self.rule.repeat == Repeat::Safe;
        let is_reading = |kept: &Kept| kept.parts.method.is_safe();
        !is_ranking && !matches!(&self.carried, Carried::Kept(kept) if is_reading(kept))
    }

    /// The users of a write that has found nothing to write, in the copy of this node: the answer counts only if the node
    /// owns them still.
    fn found_nothing(&self, response: &Response) -> Option<Partition> {
        let is_write = match self.rule.route {
            Route::UserInPath | Route::Observation | Route::Event => true,
            Route::UserInBody => self.rule.repeat == Repeat::WithId,
            _ => false,
        };
        let found_nothing =
            ApiError::says_what_there_is(response.status()) || response.extensions().get::<WroteNothing>().is_some();
        let partition = self.noted.partition().or(self.target.and_then(Target::partition));
        partition.filter(|_| is_write && found_nothing)
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
            // A copy may have answered.
            let placed = partition.and_then(|partition| view.placement.owner(log_of(&view, partition)?));
            let url = view.placement.url(placed.unwrap_or(&view.node)).unwrap_or_default();
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
        let is_repeatable = match self.rule.repeat {
            Repeat::Safe => matches!(self.carried, Carried::Kept(_)),
            Repeat::WithId => self.noted.is_repeatable(),
            Repeat::Never => false,
        };
        let forwarder = self.cluster.forwarder();
        let answered = match &mut self.carried {
            Carried::Kept(kept) => {
                let watching = self.watching.clone();
                let target = self.target;
                // A request that may be sent again does not wait for a node that is stuck.
                let left = async {
                    match target {
                        Some(target) if is_repeatable => watching.left(peer, |view| target.log(view)).await,
                        _ => std::future::pending().await,
                    }
                };
                tokio::select! {
                    answered = forwarder.send(peer, (&node, revision), kept) => answered,
                    () = left => Err(Failure::Unknown("another node has taken over".to_owned())),
                }
            }
            Carried::Once(request) => match request.take() {
                Some(request) => forwarder.stream(peer, (&node, revision), request).await,
                None => return Attempt::Answered(cut_off().into_response()),
            },
        };
        match answered {
            Ok(Answered::Reply(response)) => Attempt::Answered(response),
            Ok(Answered::Misplaced) => Attempt::failed(unanswered()),
            Err(Failure::Busy) if self.may_be_done => Attempt::Answered(unsettled().into_response()),
            Err(Failure::Busy) => Attempt::Answered(busy().into_response()),
            Err(Failure::NotSent(problem)) => {
                tracing::debug!(%problem, node = %peer.node, "a request was not forwarded");
                Attempt::failed(unreachable(peer))
            }
            Err(Failure::Unknown(problem)) => {
                tracing::debug!(%problem, node = %peer.node, "what became of a forwarded request is not known");
                match self.rule.repeat {
                    _ if is_repeatable => {
                        self.may_be_done |= self.is_change();
                        Attempt::failed(unanswered())
                    }
                    Repeat::WithId => Attempt::Answered(uncounted().into_response()),
                    Repeat::Safe | Repeat::Never => Attempt::Answered(undecided().into_response()),
                }
            }
        }
    }

    /// 307 to the owner.
    fn redirect(&mut self, peer: &Peer) -> Response {
        let url = url_at(&peer.url, self.carried.path_and_query());
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
    ApiError::not_owner(
        "no node of the cluster owns the user, or coordinates, at the moment, and nothing was written; try again",
    )
}

/// The node that is to answer takes no connection.
fn unreachable(peer: &Peer) -> ApiError {
    ApiError::not_owner(format!(
        "node {} is to answer, but this node cannot connect to it at {}, and nothing was written; try again",
        peer.node, peer.url
    ))
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

/// A change that may or may not have been made, and may be sent again.
fn unsettled() -> ApiError {
    ApiError::unknown_fate(
        "the connection to the node that was to make the change broke, and no node has answered since: it may or may not have \
         been made; send the same request again, which makes it once",
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use axum::Router;
    use axum::body::Bytes;
    use axum::http::Method;
    use celeris_model::{LogId, NodeName, Placement, PlacementRevision, Shard, Shards};
    use celeris_storage::StorageError;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    use super::*;
    use crate::cluster::{Confirming, Freshness, Membership, Unmeasured};

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    /// Node `a` with one shard of `owner`; node `b` has this URL.
    fn view(owner: &str, url: &str) -> ClusterView {
        let placement = Placement {
            revision: PlacementRevision { epoch: 1, number: 1 },
            nodes: [(name("a"), "http://a".to_owned()), (name("b"), url.to_owned())].into(),
            coordinator: Some(name(owner)),
            shards: vec![Some(name(owner))],
        };
        let logs = [LogId::Catalog, LogId::Shard(Shards::ONE.get(0).unwrap())];
        let owned = if owner == "a" { logs.into() } else { [].into() };
        ClusterView { node: name("a"), placement, owned }
    }

    fn exchange(cluster: &Cluster, repeat: Repeat, hop: Option<Hop>) -> Exchange<'_> {
        let (parts, _) = Request::post("/v1/models/films/observe").body(()).unwrap().into_parts();
        let kept = Kept { parts, body: Bytes::from_static(b"{}") };
        Exchange {
            cluster,
            rule: Rule { route: Route::UserInPath, repeat },
            hop,
            noted: Noted::default(),
            watching: cluster.watch(),
            target: Some(Target::Users(Partition::from_index(9).unwrap())),
            carried: Carried::Kept(kept),
            may_be_done: false,
        }
    }

    fn cluster(view: ClusterView) -> (watch::Sender<ClusterView>, Cluster) {
        let (sender, views) = watch::channel(view);
        (sender, Cluster::new(Membership { views, freshness: Arc::new(Unmeasured) }, 1, Default::default()))
    }

    /// A node that answers everything with `b`; returns its URL.
    async fn other_node() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(|| async { "b" });
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }

    async fn text(response: Response) -> String {
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_write_that_lost_its_shard_goes_to_the_new_owner() {
        let url = other_node().await;
        for error in [|| StorageError::Fenced, || StorageError::NotOwner] {
            let (views, cluster) = cluster(view("a", &url));
            let run = async |_: Request| {
                views.send_replace(view("b", &url));
                Ok(ApiError::from(error()).into_response())
            };
            let answered = exchange(&cluster, Repeat::Never, None).run(run).await.unwrap();
            assert_eq!((answered.status(), &*text(answered).await), (StatusCode::OK, "b"));
        }
    }

    /// An owner that finds out, when it asks the log, that another node has taken over.
    struct Deposed(watch::Sender<ClusterView>, ClusterView);

    impl Freshness for Deposed {
        fn staleness(&self, _shard: Shard) -> Option<Duration> {
            None
        }

        fn confirm(&self, _shard: Shard) -> Confirming<'_> {
            self.0.send_replace(self.1.clone());
            Box::pin(std::future::ready(Err(StorageError::Fenced)))
        }
    }

    #[tokio::test]
    async fn what_a_deposed_owner_does_not_find_is_asked_of_the_new_one() {
        let url = other_node().await;
        let there = || WroteNothing::mark("there already", true);
        let found: [&dyn Fn() -> Response; 4] = [
            &|| StatusCode::NOT_FOUND.into_response(),
            &|| StatusCode::CONFLICT.into_response(),
            &|| StatusCode::GONE.into_response(),
            &there,
        ];
        for found in found {
            let (sender, views) = watch::channel(view("a", &url));
            let freshness = Arc::new(Deposed(sender, view("b", &url)));
            let cluster = Cluster::new(Membership { views, freshness }, 1, Default::default());
            let answered = exchange(&cluster, Repeat::Safe, None).run(async |_: Request| Ok(found())).await.unwrap();
            assert_eq!((answered.status(), &*text(answered).await), (StatusCode::OK, "b"));
        }
        // What it has written counts, and so does what an owner that is confirmed does not find.
        let (_views, cluster) = cluster(view("a", &url));
        let run = async |_: Request| Ok(StatusCode::NOT_FOUND.into_response());
        let answered = exchange(&cluster, Repeat::Safe, None).run(run).await.unwrap();
        assert_eq!(answered.status(), StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn a_write_that_lost_its_shard_to_nobody_is_refused_in_time() {
        let hop = Hop { revision: PlacementRevision { epoch: 1, number: 1 }, model: None };
        for (hop, status) in [(None, 503), (Some(hop), 421)] {
            let (_views, cluster) = cluster(view("a", ""));
            let tried = AtomicUsize::new(0);
            let run = async |_: Request| {
                tried.fetch_add(1, Ordering::Relaxed);
                Ok(ApiError::from(StorageError::NotOwner).into_response())
            };
            let refused = exchange(&cluster, Repeat::Never, hop).run(run).await.unwrap();
            assert_eq!(refused.status().as_u16(), status);
            assert_eq!(refused.headers().contains_key("celeris-placement"), hop.is_some());
            assert!(tried.into_inner() > 1, "it is tried again");
        }
    }

    /// A node that reads requests and answers none; returns its URL and the number of connections.
    async fn mute_node() -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let count = Arc::<AtomicUsize>::default();
        let counted = count.clone();
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let _ = socket.read(&mut [0; 4096]).await.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        (url, count)
    }

    #[tokio::test]
    async fn only_what_can_be_repeated_is_sent_again_after_a_broken_connection() {
        let (url, asked) = mute_node().await;
        let (_views, cluster) = cluster(view("b", &url));
        let run = async |_: Request| panic!("this node does not own the user");
        for (repeat, noted, detail) in [
            (Repeat::Never, None, "may or may not have been made"),
            (Repeat::WithId, None, "observation_id"),
            (Repeat::WithId, Some(false), "observation_id"),
        ] {
            let before = asked.load(Ordering::Relaxed);
            let exchange = exchange(&cluster, repeat, None);
            noted.into_iter().for_each(|repeatable| exchange.noted.note(Partition::from_index(9).unwrap(), repeatable));
            let refused = exchange.run(run).await.unwrap();
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
            let said = text(refused).await;
            assert!(said.contains(detail) && said.contains("unknown-fate"), "{said}");
            assert_eq!(asked.load(Ordering::Relaxed), before + 1, "sent once");
        }
        for (repeat, noted) in [(Repeat::Safe, None), (Repeat::WithId, Some(true))] {
            let before = asked.load(Ordering::Relaxed);
            let exchange = exchange(&cluster, repeat, None);
            noted.into_iter().for_each(|repeatable| exchange.noted.note(Partition::from_index(9).unwrap(), repeatable));
            let refused = exchange.run(run).await.unwrap();
            let said = text(refused).await;
            assert!(said.contains("unknown-fate") && !said.contains("nothing was written"), "{said}");
            assert!(asked.load(Ordering::Relaxed) > before + 1, "sent again");
        }
        // Rankings and readings change nothing.
        let mut ranking = exchange(&cluster, Repeat::Safe, None);
        ranking.rule.route = Route::UserInBody;
        let mut reading = exchange(&cluster, Repeat::Safe, None);
        let Carried::Kept(kept) = &mut reading.carried else { unreachable!("its body is kept") };
        kept.parts.method = Method::GET;
        for exchange in [ranking, reading] {
            assert!(text(exchange.run(run).await.unwrap()).await.contains("not-owner"));
        }
    }

    #[tokio::test]
    async fn a_change_that_broke_once_is_not_said_to_be_unwritten_when_the_owner_is_gone() {
        let (url, asked) = mute_node().await;
        let (views, cluster) = cluster(view("b", &url));
        let run = async |_: Request| panic!("this node does not own the user");
        let gone = async {
            while asked.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            views.send_replace(view("b", "http://127.0.0.1:1"));
        };
        let (refused, ()) = tokio::join!(exchange(&cluster, Repeat::Safe, None).run(run), gone);
        let said = text(refused.unwrap()).await;
        assert!(said.contains("unknown-fate"), "{said}");
    }

    #[tokio::test]
    async fn a_refused_connection_is_tried_again_elsewhere_whatever_the_request() {
        let url = other_node().await;
        let (views, cluster) = cluster(view("b", "http://127.0.0.1:1"));
        let run = async |_: Request| panic!("this node does not own the user");
        let moved = async {
            tokio::task::yield_now().await;
            views.send_replace(view("b", &url));
        };
        let (answered, ()) = tokio::join!(exchange(&cluster, Repeat::Never, None).run(run), moved);
        assert_eq!(text(answered.unwrap()).await, "b");
    }

    #[tokio::test]
    async fn an_owner_that_takes_no_connection_is_named() {
        let (_views, cluster) = cluster(view("b", "http://127.0.0.1:1"));
        let run = async |_: Request| panic!("this node does not own the user");
        let refused = exchange(&cluster, Repeat::Never, None).run(run).await.unwrap();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        let said = text(refused).await;
        assert!(said.contains("not-owner") && said.contains("node b") && said.contains("http://127.0.0.1:1"), "{said}");
    }

    #[tokio::test]
    async fn a_reading_does_not_wait_for_an_owner_that_is_stuck() {
        let stuck = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", stuck.local_addr().unwrap());
        let (views, cluster) = cluster(view("b", &url));
        let run = async |_: Request| Ok("a".into_response());
        let moved = async {
            let _stuck = stuck.accept().await.unwrap();
            views.send_replace(view("a", &url));
            std::future::pending::<()>().await;
        };
        let exchange = exchange(&cluster, Repeat::Safe, None);
        let answered = tokio::select! {
            answered = exchange.run(run) => answered.unwrap(),
            () = moved => unreachable!("it does not end"),
        };
        assert_eq!(text(answered).await, "a");
    }
}
