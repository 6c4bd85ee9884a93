//! Which node answers for a user.

use std::time::Duration;

use celeris_model::{ClusterView, LogId, NodeName, Partition, PlacementRevision, Shards};
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a request waits in all until the cluster says who answers it.
pub const PLACEMENT_WAIT: Duration = Duration::from_secs(2);

/// After how long a request is tried again although the node knows nothing new: another node may
/// know by then.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Another node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub node: NodeName,
    /// By which it is reached, as in the placement.
    pub url: String,
}

/// Where requests for a log are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On this node, which owns the log.
    Local,
    /// On another node.
    Remote(Peer),
    /// Nowhere yet: no node is named, or this node is and does not own the log yet.
    Unplaced,
}

impl Place {
    /// The place of a log in a view; `None` stands for a log that the view does not know yet.
    #[must_use]
    pub fn of(view: &ClusterView, log: Option<LogId>) -> Self {
        let Some(log) = log else { return Self::Unplaced };
        if view.owned.contains(&log) {
            return Self::Local;
        }
        let peer = view.placement.owner(log).filter(|owner| **owner != view.node).and_then(|node| {
            let url = view.placement.url(node)?.to_owned();
            Some(Peer { node: node.clone(), url })
        });
        peer.map_or(Self::Unplaced, Self::Remote)
    }
}

/// The log of the users of a partition; `None` before the first placement.
#[must_use]
pub fn log_of(view: &ClusterView, partition: Partition) -> Option<LogId> {
    let shards = Shards::new(u8::try_from(view.placement.shards.len()).ok()?)?;
    Some(LogId::Shard(shards.of(partition)))
}

/// Nothing newer became known in time.
#[derive(Debug, Clone, Copy)]
pub struct Late;

/// The views of a cluster during one request, which waits for newer ones for at most
/// `PLACEMENT_WAIT` in all.
#[derive(Clone)]
pub struct Watching {
    views: watch::Receiver<ClusterView>,
    /// Set by the first wait.
    deadline: Option<Instant>,
}

impl Watching {
    pub(super) fn new(views: watch::Receiver<ClusterView>) -> Self {
        Self { views, deadline: None }
    }

    /// The newest view, which counts as seen.
    pub fn view(&mut self) -> watch::Ref<'_, ClusterView> {
        self.views.borrow_and_update()
    }

    /// Whether there is a view that was not seen.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.views.has_changed().unwrap_or(false)
    }

    /// The same views with the whole time to wait.
    #[must_use]
    pub fn afresh(&self) -> Self {
        Self { deadline: None, ..self.clone() }
    }

    /// Completes once requests for a log are no longer to be sent to `peer`.
    pub async fn left(mut self, peer: &Peer, log: impl Fn(&ClusterView) -> Option<LogId>) {
        loop {
            let is_there = {
                let view = self.view();
                matches!(Place::of(&view, log(&view)), Place::Remote(now) if now == *peer)
            };
            if !is_there {
                return;
            }
            if self.views.changed().await.is_err() {
                // The cluster was left: nothing changes any more.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits for a view that was not seen, or for `RETRY_PAUSE`.
    ///
    /// # Errors
    /// If the time is up.
    pub async fn pause(&mut self) -> Result<(), Late> {
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert(now + PLACEMENT_WAIT);
        if now >= deadline {
            return Err(Late);
        }
        // An error means that the cluster was left: nothing newer will come.
        let changed = async {
            if self.views.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        // Nothing newer in this time: the caller tries again.
        let _ = tokio::time::timeout_at(deadline.min(now + RETRY_PAUSE), changed).await;
        Ok(())
    }

    /// Waits until some node answers for a log that `log` finds in the view. A request of another
    /// node, which knows the placement `known`, is only sent elsewhere by a placement as new.
    ///
    /// # Errors
    /// If no node does in time.
    pub async fn settled(
        &mut self,
        log: impl Fn(&ClusterView) -> Option<LogId>,
        known: Option<PlacementRevision>,
    ) -> Result<Place, Late> {
        loop {
            let place = {
                let view = self.view();
                match Place::of(&view, log(&view)) {
                    Place::Remote(_) if known.is_some_and(|known| known > view.placement.revision) => Place::Unplaced,
                    place => place,
                }
            };
            if place != Place::Unplaced {
                return Ok(place);
            }
            self.pause().await?;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::Placement;

    use super::*;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    /// Node `a` of two nodes, which own a shard each.
    fn view() -> ClusterView {
        let nodes = ["a", "b"].map(|node| (name(node), format!("http://{node}:1")));
        let placement = Placement {
            revision: PlacementRevision { epoch: 1, number: 1 },
            nodes: nodes.into(),
            coordinator: Some(name("b")),
            shards: vec![Some(name("a")), Some(name("b"))],
        };
        let shard = Shards::new(2).unwrap().get(0).unwrap();
        ClusterView { node: name("a"), placement, owned: [LogId::Shard(shard)].into() }
    }

    fn partition(index: u8) -> Partition {
        Partition::from_index(index).unwrap()
    }

    fn place(view: &ClusterView, index: u8) -> Place {
        Place::of(view, log_of(view, partition(index)))
    }

    #[test]
    fn a_user_is_answered_by_the_owner_of_the_shard() {
        let mut view = view();
        let other = Place::Remote(Peer { node: name("b"), url: "http://b:1".to_owned() });
        assert_eq!([place(&view, 0), place(&view, 31)], [Place::Local, Place::Local]);
        assert_eq!([place(&view, 32), place(&view, 63)], [other.clone(), other.clone()]);
        assert_eq!(Place::of(&view, Some(LogId::Catalog)), other);
        // A node that is to give a shard up answers as long as it owns it.
        view.placement.shards[0] = Some(name("b"));
        assert_eq!(place(&view, 0), Place::Local);
        view.owned.clear();
        assert_eq!(place(&view, 0), other);
        // Being named is not yet to own; nor does a node without a URL answer.
        view.placement.shards[0] = Some(name("a"));
        view.placement.shards[1] = Some(name("c"));
        assert_eq!([place(&view, 0), place(&view, 63)], [Place::Unplaced, Place::Unplaced]);
        view.placement = Placement::default();
        assert_eq!(place(&view, 0), Place::Unplaced);
    }

    #[tokio::test]
    async fn a_request_waits_for_an_owner_and_for_a_placement_as_new_as_that_of_its_sender() {
        let (views, receiver) = watch::channel(view());
        let last = |view: &ClusterView| log_of(view, partition(63));
        let newer = PlacementRevision { epoch: 1, number: 2 };
        let mut watching = Watching::new(receiver.clone());
        assert!(matches!(watching.settled(last, None).await, Ok(Place::Remote(_))));
        // The sender knows that this node is to own the shard.
        let waiting = tokio::spawn(async move { watching.settled(last, Some(newer)).await });
        tokio::task::yield_now().await;
        views.send_modify(|view| {
            view.placement.revision = newer;
            view.placement.shards[1] = Some(name("a"));
        });
        tokio::task::yield_now().await;
        views.send_modify(|view| view.owned.extend(last(view)));
        assert!(matches!(waiting.await.unwrap(), Ok(Place::Local)));
        let mut late = Watching { deadline: Some(Instant::now()), ..Watching::new(receiver) };
        assert!(late.settled(|_| None, None).await.is_err(), "nobody ever answers for an unknown log");
    }
}
