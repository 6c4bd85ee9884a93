//! Nodes that divide users among them by views of a cluster that the test writes. Each has a store
//! of its own, so that it shows which node has answered.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use celeris_api::cluster::{Confirming, Freshness, Membership};
use celeris_model::{ClusterView, LogId, NodeName, Partition, Placement, PlacementRevision, Shard, Shards, UserId};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::client::Client;
use crate::fixtures::create_model;
use crate::node::Node;

/// Shards of the cluster.
const SHARDS: u8 = 6;

/// Nodes in the process of the test.
pub struct Divided {
    dirs: Vec<tempfile::TempDir>,
    nodes: Vec<Option<Node>>,
    clients: Vec<Client>,
    views: Vec<watch::Sender<ClusterView>>,
    /// The age of the copies of each node.
    pub ages: Vec<Arc<Ages>>,
    placement: Placement,
}

/// The age of a node's copies, as the test sets it.
#[derive(Default)]
pub struct Ages {
    /// Of all shards.
    pub age: Mutex<Option<Duration>>,
    /// How often the log was asked to confirm.
    pub confirmed: Mutex<usize>,
}

impl Freshness for Ages {
    fn staleness(&self, _shard: Shard) -> Option<Duration> {
        *self.age.lock()
    }

    fn confirm(&self, _shard: Shard) -> Confirming<'_> {
        *self.confirmed.lock() += 1;
        Box::pin(std::future::ready(Ok(())))
    }
}

fn name(node: usize) -> NodeName {
    NodeName::new(format!("node-{node}")).expect("a valid name")
}

fn shards() -> impl Iterator<Item = Shard> {
    Shards::new(SHARDS).into_iter().flat_map(Shards::all)
}

impl Divided {
    /// `count` nodes with a model `films`, each of which owns an equal part of the users. The first
    /// is the coordinator.
    ///
    /// # Panics
    /// If a node cannot be started.
    #[must_use]
    pub fn among(count: usize, config: Option<&Path>) -> Self {
        let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port is free")).collect();
        let urls = listeners.iter().map(|listener| format!("http://{}", listener.local_addr().expect("bound")));
        let placement = Placement { nodes: (0..count).map(name).zip(urls).collect(), ..Placement::default() };
        let mut cluster = Self {
            dirs: Vec::new(),
            nodes: Vec::new(),
            clients: Vec::new(),
            views: Vec::new(),
            ages: Vec::new(),
            placement,
        };
        for (node, listener) in listeners.into_iter().enumerate() {
            let dir = tempfile::tempdir().expect("a folder for the node");
            // At first each node is alone, to create its model.
            let alone = vec![Some(name(node)); usize::from(SHARDS)];
            let placement = Placement { coordinator: Some(name(node)), shards: alone, ..cluster.placement.clone() };
            let owned = std::iter::once(LogId::Catalog).chain(shards().map(LogId::Shard)).collect();
            let (sender, views) = watch::channel(ClusterView { node: name(node), placement, owned });
            let ages = Arc::<Ages>::default();
            let membership = Membership { views, freshness: ages.clone() };
            let started = Node::member(dir.path(), config, (listener, membership));
            create_model(&started.client(), "films", 7);
            cluster.clients.push(started.client());
            cluster.nodes.push(Some(started));
            cluster.dirs.push(dir);
            cluster.views.push(sender);
            cluster.ages.push(ages);
        }
        let even: Vec<usize> = (0..usize::from(SHARDS)).map(|shard| shard % count).collect();
        cluster.place(&even, 0);
        cluster
    }

    /// Gives each shard to a node, and makes one of them the coordinator. All nodes know at once.
    pub fn place(&mut self, owners: &[usize], coordinator: usize) {
        self.decide(owners, coordinator);
        (0..self.views.len()).for_each(|node| self.tell(node));
    }

    /// A new placement that no node knows of yet.
    pub fn decide(&mut self, owners: &[usize], coordinator: usize) {
        self.placement.revision.number += 1;
        self.placement.coordinator = Some(name(coordinator));
        self.placement.shards = owners.iter().map(|node| Some(name(*node))).collect();
    }

    /// Tells a node of the placement; it owns what the placement gives to it.
    pub fn tell(&self, node: usize) {
        let owned = std::iter::once(LogId::Catalog).chain(shards().map(LogId::Shard));
        let owned = owned.filter(|log| self.placement.owner(*log) == Some(&name(node))).collect();
        self.views[node].send_replace(ClusterView { node: name(node), placement: self.placement.clone(), owned });
    }

    /// Lets a node know the placement, but own nothing yet.
    pub fn tell_without_owning(&self, node: usize) {
        let placement = self.placement.clone();
        self.views[node].send_replace(ClusterView { node: name(node), placement, owned: [].into() });
    }

    /// The revision of the placement.
    #[must_use]
    pub fn revision(&self) -> PlacementRevision {
        self.placement.revision
    }

    /// A client of a node.
    #[must_use]
    pub fn client(&self, node: usize) -> &Client {
        &self.clients[node]
    }

    /// Some user of a shard.
    ///
    /// # Panics
    /// If there is no such shard.
    #[must_use]
    pub fn user_of(&self, shard: usize) -> String {
        self.users_of(shard).next().expect("every shard has users")
    }

    /// Users of a shard, without end.
    pub fn users_of(&self, shard: usize) -> impl Iterator<Item = String> {
        (0..).map(|number| format!("user-{number}")).filter(move |user| shard_of(user) == shard)
    }

    /// The node that owns a user by the placement.
    ///
    /// # Panics
    /// If no node owns it.
    #[must_use]
    pub fn owner_of(&self, user: &str) -> usize {
        let owner = self.placement.shards[shard_of(user)].as_ref().expect("every shard has an owner");
        (0..self.nodes.len()).find(|node| name(*node) == *owner).expect("owners are nodes")
    }

    /// The number of events that a node's own store has of a user.
    ///
    /// # Panics
    /// If the node does not answer.
    #[must_use]
    pub fn events_at(&self, node: usize, user: &str) -> u64 {
        // The listing is of the node itself.
        let mut after = String::new();
        loop {
            let page = self.clients[node].get(&format!("/v1/models/films/users?limit=1000{after}")).expect(200);
            let listed = page["users"].as_array().expect("a list");
            if let Some(found) = listed.iter().find(|listed| listed["user"] == user) {
                return found["user_epoch"].as_u64().expect("a count");
            }
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return 0,
            }
        }
    }

    /// Gives a node another URL, from the next placement on.
    pub fn move_to(&mut self, node: usize, url: String) {
        self.placement.nodes.insert(name(node), url);
    }

    /// Ends a node without a word to the others, as a crash does.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node] = None;
    }
}

/// The shard of a user.
fn shard_of(user: &str) -> usize {
    let partition = Partition::of(&UserId::new(user).expect("a valid id"));
    usize::from(Shards::new(SHARDS).expect("in range").of(partition).index())
}
