//! Replies to the lines of a stream, in order. Lines whose owner has changed meanwhile are dealt
//! again first.

use std::collections::BTreeMap;
use std::time::Duration;

use celeris_model::{NodeName, Partition};
use celeris_predictor::{Observed, PendingObservation};
use celeris_storage::AckMode;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::watch;

use super::super::exchange::{UNCOUNTED, unanswered};
use super::{At, Batch, Chunk, Dealt, target};
use crate::access::Principal;
use crate::cluster::{End, Hop, LineReply, Outcome, Peer, Place, Watching, log_of, send_lines};
use crate::error::{ApiError, Problem};
use crate::extract::parse;
use crate::ingest_pool::{ANSWER_BYTES, OfStream};
use crate::line_replies::Replies;
use crate::ndjson::Line;
use crate::schema::observations::{ObserveBody, ObserveReply};
use crate::state::Node;

/// How long the replies of a node are waited for once another node owns its users.
const HANDED_OVER_AFTER: Duration = Duration::from_secs(2);

/// What became of a line.
enum Answer {
    Observed(Box<Observed>),
    /// Another node's reply.
    Reply(LineReply),
    Refused(ApiError),
    RefusedBy(Box<Problem>),
    /// It is not in the log: it is dealt again.
    Again(Dealt),
}

/// Answers the lines of one stream.
pub struct Answering {
    node: Node,
    model: OfStream,
    /// Whose lines they are.
    principal: Option<Principal>,
    hop: Option<Hop>,
    /// How long another node may take to answer a line.
    patience: Duration,
    /// The view by which lines found no owner in time. They are not waited for again until there is
    /// a newer one.
    gave_up: Option<Watching>,
    /// The number of batches answered.
    answered: watch::Sender<u64>,
}

impl Answering {
    pub fn new(
        (node, model, principal): (Node, OfStream, Option<Principal>),
        hop: Option<Hop>,
        answered: watch::Sender<u64>,
    ) -> Self {
        let patience = node.limits.request_timeout;
        Self { node, model, principal, hop, patience, gave_up: None, answered }
    }

    /// The replies to a batch, once all of it is durable or rejected.
    ///
    /// # Errors
    /// If a thread that learns panicked.
    pub async fn answer(&mut self, Batch { lines, here, views }: Batch) -> Result<Replies, RecvError> {
        let mut here = here.begun().await?.into_iter();
        let mut answers = Vec::with_capacity(lines.len());
        for Line { line, outcome } in lines {
            let answer = match outcome {
                Err(error) => Answer::Refused(error),
                Ok(dealt) => self.answer_to(dealt, &mut here).await,
            };
            answers.push((line, answer));
        }
        if self.hop.is_none() && answers.iter().any(|(_, answer)| matches!(answer, Answer::Again(_))) {
            self.deal_again(&mut answers, views.afresh()).await?;
        }
        let mut replies = Replies::with_capacity(answers.len() * ANSWER_BYTES);
        answers.into_iter().for_each(|(line, answer)| write(&mut replies, line, answer));
        self.answered.send_modify(|answered| *answered += 1);
        Ok(replies)
    }

    async fn answer_to(&self, dealt: Dealt, here: &mut impl Iterator<Item = Line<PendingObservation>>) -> Answer {
        match &dealt.at {
            At::Nowhere => Answer::Again(dealt),
            At::Here => match here.next() {
                Some(Line { outcome, .. }) => self.finish(outcome, dealt).await,
                None => Answer::Again(dealt),
            },
            At::Node(peer, upstream) => {
                let reply = upstream.reply(self.patience, self.handed_over(peer, dealt.partition)).await;
                of_reply(reply, dealt)
            }
        }
    }

    /// Completes some time after another node has taken over from `peer`: that node has answered by
    /// then what it had taken, or is stuck.
    async fn handed_over(&self, peer: &Peer, partition: Partition) {
        let Some(cluster) = &self.node.cluster else { return };
        cluster.watch().left(peer, |view| log_of(view, partition)).await;
        tokio::time::sleep(HANDED_OVER_AFTER).await;
    }

    async fn finish(&self, begun: Result<PendingObservation, ApiError>, dealt: Dealt) -> Answer {
        let observed = match begun {
            Ok(pending) => self.node.predictor.ingest().finish_observe(pending).await.map_err(ApiError::from),
            Err(error) => Err(error),
        };
        let wrote_nothing = match &observed {
            Ok(observed) => observed.duplicate,
            Err(error) => ApiError::says_what_there_is(error.status()),
        };
        if wrote_nothing && let Some(cluster) = &self.node.cluster {
            match cluster.confirm(dealt.partition).await.map_err(ApiError::from) {
                Ok(()) => {}
                Err(error) if error.is_not_owner() => return Answer::Again(dealt),
                Err(error) => return Answer::Refused(error),
            }
        }
        match observed {
            Ok(observed) => Answer::Observed(Box::new(observed)),
            Err(error) if error.is_not_owner() => Answer::Again(dealt),
            Err(error) => Answer::Refused(error),
        }
    }

    /// Deals lines that are in no log again, until each is answered or no node answers in time.
    async fn deal_again(&mut self, answers: &mut [(u64, Answer)], mut views: Watching) -> Result<(), RecvError> {
        if self.gave_up.as_ref().is_some_and(|views| !views.is_behind()) {
            return Ok(());
        }
        self.gave_up = None;
        loop {
            self.try_again(answers, &mut views).await?;
            if !answers.iter().any(|(_, answer)| matches!(answer, Answer::Again(_))) {
                return Ok(());
            }
            if views.pause().await.is_err() {
                self.gave_up = Some(views);
                return Ok(());
            }
        }
    }

    async fn try_again(&self, answers: &mut [(u64, Answer)], views: &mut Watching) -> Result<(), RecvError> {
        let Some(cluster) = &self.node.cluster else { return Ok(()) };
        let view = views.view().clone();
        let mut here = Vec::new();
        let mut there: BTreeMap<NodeName, Chunk> = BTreeMap::new();
        for (index, (line, answer)) in answers.iter().enumerate() {
            let Answer::Again(dealt) = answer else { continue };
            match Place::of(&view, log_of(&view, dealt.partition)) {
                Place::Local => {
                    let observation = parse::<ObserveBody>(&dealt.text).and_then(ObserveBody::observation);
                    here.push((index, Line { line: *line, outcome: observation }));
                }
                Place::Remote(peer) => {
                    there.entry(peer.node.clone()).or_insert_with(|| Chunk::of(peer)).push(&dealt.text, index);
                }
                Place::Unplaced => {}
            }
        }
        let (indices, lines): (Vec<usize>, Vec<_>) = here.into_iter().unzip();
        let begun = self.node.ingest_pool.dispatch(&self.model, lines, AckMode::Wait).await.begun().await?;
        for (index, Line { outcome, .. }) in indices.into_iter().zip(begun) {
            if let Some(dealt) = take(&mut answers[index].1) {
                answers[index].1 = self.finish(outcome, dealt).await;
            }
        }
        for chunk in there.into_values() {
            let target = target(&view, (&self.model, self.principal.as_ref()), &chunk.peer);
            let sent = send_lines(cluster.forwarder(), &target, chunk.text.into());
            let replies = tokio::time::timeout(self.patience, sent).await;
            let replies = replies.unwrap_or_else(|_| Err(End::Broken("it did not answer in time".to_owned())));
            answer_chunk(answers, &chunk.indices, replies);
        }
        Ok(())
    }
}

/// Takes a line that is to be dealt again.
fn take(answer: &mut Answer) -> Option<Dealt> {
    match std::mem::replace(answer, Answer::Refused(unanswered())) {
        Answer::Again(dealt) => Some(dealt),
        other => {
            *answer = other;
            None
        }
    }
}

fn answer_chunk(answers: &mut [(u64, Answer)], indices: &[usize], replies: Result<Vec<LineReply>, End>) {
    let (mut replies, end) = match replies {
        Ok(replies) => (replies.into_iter(), End::Broken("it has not answered all lines".to_owned())),
        Err(end) => (Vec::new().into_iter(), end),
    };
    for index in indices {
        let reply = replies.next().ok_or_else(|| end.clone());
        if let Some(dealt) = take(&mut answers[*index].1) {
            answers[*index].1 = of_reply(reply, dealt);
        }
    }
}

fn of_reply(reply: Result<LineReply, End>, dealt: Dealt) -> Answer {
    match reply {
        Ok(LineReply { outcome: Outcome::Rejected(problem), .. }) if problem.is_not_owner() => Answer::Again(dealt),
        Ok(reply) => Answer::Reply(reply),
        Err(End::Nothing(_)) => Answer::Again(dealt),
        Err(End::Refused(problem)) if problem.is_not_owner() => Answer::Again(dealt),
        Err(End::Refused(problem)) => Answer::RefusedBy(problem),
        Err(End::Broken(problem)) => {
            tracing::debug!(%problem, "what became of a line is not known");
            Answer::Refused(ApiError::unknown_fate(if dealt.has_id { REPEATABLE } else { UNCOUNTED }))
        }
    }
}

/// What is said of an observation with an id whose reply was lost.
const REPEATABLE: &str = "the connection to the node that owns the user broke: the observation may or may not have been \
                          counted; send it again, which is safe because it has an observation_id";

fn write(replies: &mut Replies, line: u64, answer: Answer) {
    match answer {
        Answer::Observed(observed) if observed.duplicate => replies.duplicate(&ObserveReply::from(*observed)),
        Answer::Observed(observed) => replies.taken(&ObserveReply::from(*observed)),
        Answer::Refused(error) => replies.rejected(line, &error),
        Answer::RefusedBy(problem) => replies.rejected_by(line, *problem),
        Answer::Again(_) => replies.rejected(line, &unanswered()),
        Answer::Reply(LineReply { text, outcome }) => match outcome {
            Outcome::Taken => replies.taken_as(&text),
            Outcome::Duplicate => replies.duplicate_as(&text),
            Outcome::Rejected(problem) => replies.rejected_by(line, *problem),
        },
    }
}
