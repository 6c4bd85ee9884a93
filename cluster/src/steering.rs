//! Decides what this node is to do with each log, and, on the coordinator, where the shards are to be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use celeris_model::{LogId, NodeName, Placement, PlacementRevision};
use tokio::sync::watch;
use tokio::time::{Instant, interval};

use crate::batch::FORMAT;
use crate::heartbeat::{Heartbeat, LogReport};
use crate::log_state::{Phase, Problem, Wish};
use crate::members::{Candidacy, Election};
use crate::node::{LogHandle, Node, report};
use crate::placement::{Candidate, place};
use crate::streams::short_name;

/// How often everything is looked at again.
const LOOK: Duration = Duration::from_millis(100);

/// A copy that lacks more batches takes no shard over, if another one can.
const LAG_MAX: u64 = 1000;

/// Runs until it is dropped. `changed` is notified when a log's phase changes.
pub(crate) async fn steer(node: Arc<Node>, mut changed: watch::Receiver<()>) {
    let timing = &node.options.timing;
    let mut election = Election::new(timing.dead_after, timing.election_step);
    let mut look = interval(LOOK);
    loop {
        tokio::select! {
            _ = look.tick() => {}
            _ = changed.changed() => {}
        }
        node.publish_owned();
        if node.failure.borrow().is_some() {
            continue;
        }
        if let Some(failure) = lacks_a_copy(&node) {
            node.fail(&failure);
            continue;
        }
        let live = node.live();
        // What came before this node had read that its sender is the coordinator.
        live.iter().for_each(|heartbeat| node.adopt_of(heartbeat));
        wish(node.catalog(), wish_for_catalog(&node, &live, &mut election));
        if node.catalog().state.phase() == Phase::Owning {
            coordinate(&node, &live);
        }
        let placement = node.view.borrow().placement.clone();
        for (log, handle) in node.logs.iter().filter(|(log, _)| **log != LogId::Catalog) {
            wish(handle, wish_for_shard(&node, &live, placement.owner(*log)));
        }
        metrics::gauge!("celeris_cluster_live_nodes").set((live.len() + 1) as f64);
    }
}

/// What a copy of this node has not applied and a log no longer has: only a start of the node gets the copy of another one.
fn lacks_a_copy(node: &Node) -> Option<String> {
    node.logs.iter().find_map(|(log, handle)| match handle.state.problem()? {
        problem @ Problem::Behind { .. } => Some(format!("{}: {problem}", short_name(*log))),
        _ => None,
    })
}

/// Sets a wish, unless it is to stop or stays the same.
fn wish(handle: &LogHandle, wish: Option<Wish>) {
    let Some(wish) = wish else { return };
    handle.state.wish.send_if_modified(|wished| {
        let is_changed = *wished != Wish::Stop && *wished != wish;
        if is_changed {
            *wished = wish;
        }
        is_changed
    });
}

/// `None` leaves it as it is: the log is given up only if another node can take it.
fn wish_for_shard(node: &Node, live: &[Heartbeat], owner: Option<&NodeName>) -> Option<Wish> {
    let owner = owner?;
    if node.is_self(owner) {
        return Some(Wish::Own);
    }
    live.iter().any(|heartbeat| heartbeat.node == *owner).then_some(Wish::Follow)
}

fn wish_for_catalog(node: &Node, live: &[Heartbeat], election: &mut Election) -> Option<Wish> {
    let catalog = short_name(LogId::Catalog);
    let state = &node.catalog().state;
    let can_own = |heartbeat: &&Heartbeat| !heartbeat.is_draining && !report_of(&heartbeat.logs, &catalog).is_stuck;
    let now = node.members.lock().clock(Instant::now());
    let phase = state.phase();
    if phase == Phase::Owning || phase == Phase::Releasing {
        election.is_due(now, Candidacy { is_owned: true, is_released: false, is_dead: false, place: None });
        // The shards first: their new owners learn of the placement from the coordinator.
        let has_shards = node.logs.iter().any(|(log, handle)| {
            *log != LogId::Catalog && matches!(handle.state.phase(), Phase::Owning | Phase::Releasing | Phase::Claiming)
        });
        let gives_up = node.is_draining() && !has_shards && live.iter().any(|heartbeat| can_own(&heartbeat));
        return Some(if gives_up { Wish::Follow } else { Wish::Own });
    }
    let is_owned = live.iter().any(|heartbeat| report_of(&heartbeat.logs, &catalog).epoch.is_some());
    let before = live.iter().filter(|heartbeat| can_own(heartbeat) && heartbeat.node < node.writer.node).count();
    let is_candidate =
        (!node.is_draining() || !live.iter().any(|heartbeat| can_own(&heartbeat))) && phase != Phase::Stuck;
    let place = is_candidate.then(|| u32::try_from(before).unwrap_or(u32::MAX));
    let cursor = state.cursor();
    let is_released = cursor.is_released || cursor.epoch == 0;
    let is_dead = cursor.owner().is_some_and(|owner| {
        let members = node.members.lock();
        !node.is_self(owner) && members.has_heard(owner) && !members.may_live(Instant::now(), owner)
    });
    let is_due = election.is_due(now, Candidacy { is_owned, is_released, is_dead, place });
    Some(if is_due { Wish::Own } else { Wish::Follow })
}

/// A live node, for the placement.
struct Seen<'n> {
    node: &'n NodeName,
    url: &'n str,
    /// Whether it is to own nothing, if another node can.
    gives_up: bool,
    /// Whether it serves what the coordinator serves. Without that it takes no shards over.
    is_ready: bool,
    logs: &'n BTreeMap<String, LogReport>,
}

impl<'n> Seen<'n> {
    fn of(heartbeat: &'n Heartbeat, coordinator_ready: &[String]) -> Self {
        // A node whose catalog stands still knows no new models.
        let is_stuck = report_of(&heartbeat.logs, &short_name(LogId::Catalog)).is_stuck;
        Self {
            node: &heartbeat.node,
            url: &heartbeat.url,
            gives_up: heartbeat.is_draining || is_stuck,
            is_ready: coordinator_ready.iter().all(|version| heartbeat.ready.contains(version)),
            logs: &heartbeat.logs,
        }
    }
}

/// Publishes another placement if the present one does not fit.
fn coordinate(node: &Node, live: &[Heartbeat]) {
    let (own_logs, ready) = (own_report(node), node.ready.lock().clone());
    let own = Seen {
        node: &node.writer.node,
        url: &node.options.url,
        gives_up: node.is_draining(),
        is_ready: true,
        logs: &own_logs,
    };
    let others = live.iter().filter(|heartbeat| heartbeat.formats.contains(&FORMAT));
    let all: Vec<Seen> = others.map(|heartbeat| Seen::of(heartbeat, &ready)).chain([own]).collect();
    let shards: Vec<LogId> = node.logs.keys().copied().filter(|log| *log != LogId::Catalog).collect();
    let names: Vec<String> = shards.iter().map(|log| short_name(*log)).collect();
    let tail = |name: &str| all.iter().map(|seen| report_of(seen.logs, name).applied).max().unwrap_or(0);
    let tails: Vec<u64> = names.iter().map(|name| tail(name)).collect();
    let is_recent = |seen: &Seen| -> Vec<bool> {
        let of = |(name, tail): (&String, &u64)| {
            let report = report_of(seen.logs, name);
            seen.is_ready && !report.is_stuck && report.applied + LAG_MAX >= *tail
        };
        names.iter().zip(&tails).map(of).collect()
    };
    let stays = all.iter().any(|seen| !seen.gives_up);
    let candidates: Vec<Candidate> = all
        .iter()
        .filter(|seen| !seen.gives_up || !stays)
        .map(|seen| Candidate { node: seen.node.clone(), is_recent: is_recent(seen) })
        .collect();
    let known = node.view.borrow().placement.clone();
    let epoch = node.catalog().state.cursor().epoch;
    let is_own = known.revision.epoch == epoch;
    let present: Vec<Option<NodeName>> = shards
        .iter()
        .zip(&names)
        .map(|(log, name)| {
            // A new coordinator leaves the shards where they are, as far as it knows.
            let owner = node.logs[log].state.cursor().owner().cloned();
            let owner = if is_own { known.owner(*log).cloned() } else { owner.or(known.owner(*log).cloned()) };
            let is_stuck =
                |owner: &NodeName| all.iter().any(|seen| seen.node == owner && report_of(seen.logs, name).is_stuck);
            owner.filter(|owner| !is_stuck(owner))
        })
        .collect();
    let number = if is_own { known.revision.number + 1 } else { 1 };
    let placement = Placement {
        revision: PlacementRevision { epoch, number },
        nodes: all.iter().map(|seen| (seen.node.clone(), seen.url.to_owned())).collect(),
        coordinator: Some(node.writer.node.clone()),
        shards: place(&present, &candidates),
    };
    if !is_own || (&placement.nodes, &placement.shards) != (&known.nodes, &known.shards) {
        tracing::info!(epoch, number, nodes = placement.nodes.len(), "the shards are placed");
        node.adopt(&placement);
        node.beat.notify_one();
    }
}

/// What a node says of its copy of a log.
fn report_of(logs: &BTreeMap<String, LogReport>, name: &str) -> LogReport {
    logs.get(name).copied().unwrap_or_default()
}

fn own_report(node: &Node) -> BTreeMap<String, LogReport> {
    node.logs.iter().map(|(log, handle)| (short_name(*log), report(&handle.state))).collect()
}
