//! Streams of observations in a cluster: each line goes to the node that owns its user, and the
//! replies come in the order of the lines.
//!
//! Lines of a user are learnt in their order. While the owners stay the same, lines of one owner go
//! through one queue. Before lines are dealt by another view of the cluster, or through another
//! stream to a node, all lines before them are answered.

mod answering;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use celeris_model::{ClusterView, ModelName, NodeName, Observation, Partition};
use celeris_storage::AckMode;
use tokio::sync::{mpsc, watch};

use self::answering::Answering;
use super::exchange::unanswered;
use crate::access::{Access, Principal};
use crate::cluster::{Hop, Peer, Place, Target, Upstream, Watching, log_of};
use crate::error::ApiError;
use crate::extract::parse;
use crate::ingest_pool::{BATCH_LINES, Dispatched, OfStream, PARSED_BATCHES};
use crate::line_replies;
use crate::ndjson::{self, Line, Reading, split_block};
use crate::schema::observations::ObserveBody;
use crate::scope::{Task, carried};
use crate::state::Node;

/// The longest time without lines after which a stream to another node gets an empty one, so that
/// the node leaves it open.
const KEEPALIVE_MAX: Duration = Duration::from_secs(5);

/// A parsed line with its text, by which it is sent to another node.
struct Parsed {
    observation: Observation,
    text: Bytes,
}

/// A line that was dealt.
struct Dealt {
    text: Bytes,
    partition: Partition,
    has_id: bool,
    at: At,
}

/// Where a line was sent.
enum At {
    Here,
    Node(Peer, Upstream),
    /// Nowhere, as no node takes it at the moment.
    Nowhere,
}

/// Lines that were dealt together.
struct Batch {
    lines: Vec<Line<Dealt>>,
    here: Dispatched,
    /// The view by which they were dealt.
    views: Watching,
}

fn parsed(line: &[u8]) -> Result<Parsed, ApiError> {
    Ok(Parsed { observation: parse::<ObserveBody>(line)?.observation()?, text: Bytes::copy_from_slice(line) })
}

/// Answers a stream of observations of a node in a cluster.
///
/// # Errors
/// If the stream is refused as a whole.
pub async fn answer_lines(
    node: Node,
    (model, principal): (ModelName, Option<Principal>),
    request: Request,
) -> Result<Response, ApiError> {
    let Some(cluster) = &node.cluster else { return Err(ApiError::internal("this node is in no cluster")) };
    let hop = Hop::of(request.headers());
    let model = OfStream::new(&node.predictor, model)?;
    if hop.and_then(|hop| hop.model).is_some_and(|expected| expected != model.id()) {
        let gone = format!("model {} was deleted and created again since the stream began", model.name());
        return Err(ApiError::not_found(gone));
    }
    // The streams of a key are counted where its client has opened them.
    let (permits, of_key) = match hop {
        Some(_) => (cluster.streams(), None),
        None => (&node.stream_permits, node.access.streams().open(principal.as_ref())?),
    };
    let (permit, form) = ndjson::admit(permits, of_key, request.headers())?;
    let reading = Reading::new(&node.limits, BATCH_LINES, parsed);
    let lines = ndjson::read((request.into_body(), form), reading, PARSED_BATCHES).await?;
    let (begun, batches) = mpsc::channel((node.limits.observations_in_flight / BATCH_LINES).max(1));
    let (answered, answers) = watch::channel(0);
    let (views, of_answers) = (cluster.watch(), (node.clone(), model.clone(), principal.clone()));
    let answering = Answering::new(of_answers, hop, answered);
    let dealer = Dealer::new((node.clone(), model, principal), hop, (views, answers));
    tokio::spawn(carried(Task::Lines, dealer.deal_all(lines, begun)));
    let replies =
        futures_util::stream::unfold((answering, batches, permit), |(mut answering, mut batches, permit)| async {
            let replies = answering.answer(batches.recv().await?).await;
            Some((replies, (answering, batches, permit)))
        });
    if hop.is_some() {
        return Ok(line_replies::streamed(StatusCode::OK, Box::pin(replies), form));
    }
    Ok(line_replies::respond(replies, form).await)
}

/// The client is gone.
struct Abandoned;

/// Deals the lines of one stream.
struct Dealer {
    node: Node,
    model: OfStream,
    /// Whose rate of observations the lines are dealt at.
    principal: Option<Principal>,
    hop: Option<Hop>,
    views: Watching,
    /// The view by which lines are dealt.
    view: ClusterView,
    upstreams: HashMap<NodeName, Upstream>,
    /// The number of batches dealt.
    dealt: u64,
    /// The number of batches answered.
    answered: watch::Receiver<u64>,
}

impl Dealer {
    fn new(
        (node, model, principal): (Node, OfStream, Option<Principal>),
        hop: Option<Hop>,
        (mut views, answered): (Watching, watch::Receiver<u64>),
    ) -> Self {
        let view = views.view().clone();
        Self { node, model, principal, hop, views, view, upstreams: HashMap::new(), dealt: 0, answered }
    }

    async fn deal_all(mut self, mut parsed: mpsc::Receiver<Vec<Line<Parsed>>>, begun: mpsc::Sender<Batch>) {
        while let Some(mut rest) = parsed.recv().await {
            while !rest.is_empty() {
                let mut lines = split_block(&mut rest, Access::block(self.principal.as_ref()));
                let keys = self.node.manager.api_keys();
                let paced = tokio::select! {
                    paced = self.node.access.pace(keys, self.principal.as_ref(), lines.len()) => paced,
                    // The client is gone.
                    () = begun.closed() => return,
                };
                if let Err(refused) = paced {
                    lines.append(&mut rest);
                    let refused = lines.into_iter().map(|line| line.refused(&refused)).collect();
                    let batch = self.deal(refused, AckMode::Wait).await;
                    self.dealt += 1;
                    // The stream ends either way.
                    let _ = begun.send(batch).await;
                    return;
                }
                let goes_on = rest.is_empty() && !parsed.is_empty() && begun.capacity() > 1;
                let ack = if goes_on { AckMode::Gather } else { AckMode::Wait };
                let Ok(()) = self.renew().await else { return };
                let batch = self.deal(lines, ack).await;
                self.dealt += 1;
                if begun.send(batch).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Takes the newest view and drops streams that have ended, once all lines so far are answered.
    async fn renew(&mut self) -> Result<(), Abandoned> {
        let has_ended = self.upstreams.values().any(Upstream::has_ended);
        if !has_ended && !self.views.is_behind() {
            return Ok(());
        }
        let dealt = self.dealt;
        self.answered.wait_for(|answered| *answered == dealt).await.map_err(|_| Abandoned)?;
        self.view = self.views.view().clone();
        let view = &self.view;
        self.upstreams.retain(|node, stream| !stream.has_ended() && view.placement.nodes.contains_key(node));
        Ok(())
    }

    async fn deal(&mut self, lines: Vec<Line<Parsed>>, ack: AckMode) -> Batch {
        let mut here = Vec::new();
        let mut there: BTreeMap<NodeName, Chunk> = BTreeMap::new();
        let mut dealt = Vec::with_capacity(lines.len());
        for (index, Line { line, outcome }) in lines.into_iter().enumerate() {
            let outcome = outcome.and_then(|Parsed { observation, text }| {
                let partition = Partition::of(&observation.user);
                let has_id = observation.observation_id.is_some();
                let mut at = At::Nowhere;
                match Place::of(&self.view, log_of(&self.view, partition)) {
                    Place::Local => {
                        here.push(Line { line, outcome: Ok(observation) });
                        at = At::Here;
                    }
                    // The node that has sent the stream deals the line again.
                    _ if self.hop.is_some() => return Err(unanswered()),
                    Place::Remote(peer) => {
                        there.entry(peer.node.clone()).or_insert_with(|| Chunk::of(peer)).push(&text, index);
                    }
                    Place::Unplaced => {}
                }
                Ok(Dealt { text, partition, has_id, at })
            });
            dealt.push(Line { line, outcome });
        }
        self.fetch_decisions(&here).await;
        let here = self.node.ingest_pool.dispatch(&self.model, here, ack).await;
        for Chunk { peer, text, indices } in there.into_values() {
            let upstream = self.upstream(&peer);
            if !upstream.send(text.into()).await {
                continue;
            }
            for index in indices {
                if let Ok(line) = &mut dealt[index].outcome {
                    line.at = At::Node(peer.clone(), upstream.clone());
                }
            }
        }
        Batch { lines: dealt, here, views: self.views.clone() }
    }

    /// Copies the decisions that lines for this node name and other nodes have made.
    async fn fetch_decisions(&self, lines: &[Line<Observation>]) {
        let Some(cluster) = &self.node.cluster else { return };
        let named = lines.iter().filter_map(|line| line.outcome.as_ref().ok()?.decision.as_ref());
        let fetch = |decision| cluster.fetch_decision(&self.node.storage, (self.model.id(), decision));
        let fetched = futures_util::future::join_all(named.map(fetch)).await;
        // The line itself meets the error again.
        for error in fetched.into_iter().filter_map(Result::err) {
            tracing::debug!(%error, "a decision is not looked for");
        }
    }

    /// The stream to a node, opened when it is first needed.
    fn upstream(&mut self, peer: &Peer) -> Upstream {
        if let Some(upstream) = self.upstreams.get(&peer.node) {
            return upstream.clone();
        }
        let keepalive = (self.node.limits.stream_idle_timeout / 3).min(KEEPALIVE_MAX);
        let Some(cluster) = &self.node.cluster else { unreachable!("lines are dealt in a cluster only") };
        let upstream = Upstream::open(
            cluster.forwarder(),
            &target(&self.view, (&self.model, self.principal.as_ref()), peer),
            keepalive,
        );
        self.upstreams.insert(peer.node.clone(), upstream.clone());
        upstream
    }
}

fn target<'a>(
    view: &'a ClusterView,
    (model, principal): (&'a OfStream, Option<&'a Principal>),
    peer: &'a Peer,
) -> Target<'a> {
    Target { peer, from: (&view.node, view.placement.revision), model: (model.name(), model.id()), principal }
}

/// The lines of a batch for one node.
struct Chunk {
    peer: Peer,
    text: Vec<u8>,
    /// Of the lines in the batch.
    indices: Vec<usize>,
}

impl Chunk {
    fn of(peer: Peer) -> Self {
        Self { peer, text: Vec::new(), indices: Vec::new() }
    }

    fn push(&mut self, line: &[u8], index: usize) {
        self.text.extend_from_slice(line);
        self.text.push(b'\n');
        self.indices.push(index);
    }
}
