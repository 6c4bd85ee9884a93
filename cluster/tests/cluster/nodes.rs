//! Nodes of a cluster, and a client that writes through their owners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use celeris_cluster::{Cluster, ClusterError, ClusterOptions, Hooks, Joined, LogStatus, Phase, short_name};
use celeris_model::{
    ItemId, LogId, NodeName, ObservationId, Record, RecordKind, Shards, StreamName, Timestamp, UserEpoch, UserId,
};
use celeris_storage::{AckMode, Append, Appended, Applied, Storage, StorageError, StorageOptions};
use tokio::sync::Mutex;

use crate::servers::Servers;

/// The longest that a test waits for anything.
pub const LIMIT: Duration = Duration::from_secs(90);

pub const USERS: usize = 12;

/// The calls of the hooks of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    Records(usize),
    Catalog,
    TermBegan,
    Releasing,
    TermEnded,
}

#[derive(Default)]
pub struct Recorder(std::sync::Mutex<Vec<(LogId, Told)>>);

impl Recorder {
    fn note(&self, log: LogId, told: Told) {
        self.0.lock().unwrap().push((log, told));
    }

    pub fn of(&self, log: LogId) -> Vec<Told> {
        self.0.lock().unwrap().iter().filter(|(of, _)| *of == log).map(|(_, told)| told.clone()).collect()
    }
}

impl Hooks for Recorder {
    fn applied(&self, log: LogId, applied: Applied) {
        self.note(
            log,
            match applied {
                Applied::Group(group) => Told::Records(group.records.len()),
                Applied::Catalog { .. } => Told::Catalog,
            },
        );
    }

    fn term_began(&self, log: LogId) {
        self.note(log, Told::TermBegan);
    }

    fn releasing(&self, log: LogId) {
        self.note(log, Told::Releasing);
    }

    fn term_ended(&self, log: LogId) {
        self.note(log, Told::TermEnded);
    }
}

/// A node, with a store that outlives its membership.
pub struct TestNode {
    pub dir: tempfile::TempDir,
    pub options: ClusterOptions,
    pub running: Option<Running>,
}

pub struct Running {
    pub cluster: Arc<Cluster>,
    pub storage: Arc<Storage>,
    pub hooks: Arc<Recorder>,
}

pub fn name(number: usize) -> NodeName {
    NodeName::new(format!("node-{number}")).unwrap()
}

/// Options with shorter times than those of a cluster across machines.
pub fn options(servers: &Servers, number: usize) -> ClusterOptions {
    let mut options = ClusterOptions::new("test", name(number), format!("http://node-{number}"), servers.urls());
    options.monitor_urls = servers.monitor_urls();
    options.shards = Shards::new(3).unwrap();
    options.streams.replicas = servers.count();
    options.streams.bytes_max = 256 << 20;
    options.timing.heartbeat = Duration::from_millis(100);
    options.timing.dead_after = Duration::from_secs(2);
    options.timing.election_step = Duration::from_millis(300);
    options.timing.upkeep = Duration::from_millis(100);
    options
}

impl TestNode {
    pub fn new(options: ClusterOptions) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), options, running: None }
    }

    pub async fn start(&mut self) -> Result<(), ClusterError> {
        let joined = self.join().await?;
        self.start_joined(joined).await
    }

    /// Joins as far as a node does before it opens its store.
    pub async fn join(&self) -> Result<Joined, ClusterError> {
        let joined = Joined::join(self.options.clone()).await?;
        joined.announce(None).await?;
        Ok(joined)
    }

    pub async fn start_joined(&mut self, joined: Joined) -> Result<(), ClusterError> {
        let storage = Storage::open_replica(self.dir.path(), &StorageOptions::default(), joined.identity())?;
        joined.announce(Some(&storage)).await?;
        let (storage, hooks) = (Arc::new(storage), Arc::<Recorder>::default());
        let cluster = joined.start(Arc::clone(&storage), Arc::clone(&hooks) as Arc<dyn Hooks>).await?;
        self.running = Some(Running { cluster, storage, hooks });
        Ok(())
    }

    pub fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub async fn stop(&mut self) {
        let Running { cluster, storage, .. } = self.running.take().unwrap();
        cluster.stop().await;
        drop(cluster);
        // It is closed when the last task has let go of it.
        eventually("the store is let go", || Arc::strong_count(&storage) == 1).await;
    }
}

impl Running {
    pub fn status(&self, log: LogId) -> LogStatus {
        self.cluster.status().logs[&short_name(log)].clone()
    }

    pub fn owns(&self, log: LogId) -> bool {
        self.status(log).phase == Phase::Owning
    }

    pub fn logs(&self) -> Vec<LogId> {
        self.storage.replica().unwrap().logs().collect()
    }
}

/// Waits for a condition.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let deadline = Instant::now() + LIMIT;
    async move {
        while !is_so() {
            assert!(Instant::now() < deadline, "not in time: {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Starts this number of nodes at once.
pub async fn start(servers: &Servers, count: usize) -> Vec<TestNode> {
    let mut nodes: Vec<TestNode> = (0..count).map(|number| TestNode::new(options(servers, number))).collect();
    let started = futures_util::future::join_all(nodes.iter_mut().map(TestNode::start)).await;
    started.into_iter().for_each(Result::unwrap);
    nodes
}

/// Waits until each log has one owner, and these nodes own as many shards as they should.
pub async fn settled(nodes: &[&TestNode]) {
    let all = || nodes.iter().map(|node| node.running());
    let logs = nodes[0].running().logs();
    let share = (logs.len() - 1) / nodes.len();
    eventually("each log has an owner", || {
        logs.iter().all(|log| all().filter(|node| node.owns(*log)).count() == 1)
            && all().all(|node| logs[1..].iter().filter(|log| node.owns(**log)).count() >= share)
    })
    .await;
}

pub fn films() -> StreamName {
    StreamName::new("films").unwrap()
}

pub fn user(number: usize) -> UserId {
    UserId::new(format!("user-{number}")).unwrap()
}

/// The observation with this number, of one of the users.
pub fn observation(number: usize) -> Append {
    let record = Record {
        kind: RecordKind::Observe,
        user: user(number % USERS),
        user_epoch: UserEpoch((number / USERS) as u64 + 1),
        item: Some(ItemId::new(format!("item-{}", number % 7)).unwrap()),
        label: number as f32,
        first_label: None,
        weight: 1.0,
        feedback: None,
        timestamp: Timestamp(0),
        observation_id: Some(ObservationId::new(format!("o-{number}")).unwrap()),
        decision: None,
        context: None,
        predictions: Vec::new(),
        targets: Vec::new(),
    };
    Append { stream: films(), record, frozen: Vec::new(), notes_item: false, source: None, ack: AckMode::Wait }
}

/// Appends at the owner of the user's shard, again if that fails. Returns whether it had to.
pub async fn write(nodes: &Mutex<Vec<TestNode>>, number: usize) -> bool {
    let deadline = Instant::now() + LIMIT;
    let mut attempts = 0;
    loop {
        assert!(Instant::now() < deadline, "observation {number} is not accepted");
        attempts += 1;
        let stores: Vec<Arc<Storage>> = {
            let nodes = nodes.lock().await;
            nodes.iter().filter_map(|node| node.running.as_ref()).map(|node| Arc::clone(&node.storage)).collect()
        };
        for storage in stores {
            match write_at(&storage, number).await {
                Ok(()) => return attempts > 1,
                Err(
                    StorageError::NotOwner
                    | StorageError::Fenced
                    | StorageError::Closed
                    | StorageError::Poisoned { .. },
                ) => {}
                Err(error) => panic!("{error}"),
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Appends at a node, or finds that it is in the log.
pub async fn write_at(storage: &Arc<Storage>, number: usize) -> Result<(), StorageError> {
    match storage.log().append(observation(number))? {
        Appended::New(placed) => placed.durable().await.map(|_| ()),
        Appended::Existing(existing) => existing.placed.durable().await.map(|_| ()),
    }
}

/// Waits until all copies are equal and have exactly the observations below `count`, once each.
pub async fn assert_equal_and_complete(nodes: &[TestNode], count: usize) {
    let stores: Vec<&Arc<Storage>> = nodes.iter().map(|node| &node.running().storage).collect();
    let histories = |storage: &Arc<Storage>| -> Vec<Vec<Record>> {
        let of = |number| storage.histories().of(&films(), &user(number)).unwrap();
        (0..USERS).map(|number| of(number).into_iter().map(|(_, record)| record).collect()).collect()
    };
    let total = |storage: &Arc<Storage>| histories(storage).iter().map(Vec::len).sum::<usize>();
    eventually("all copies have all records", || stores.iter().all(|storage| total(storage) >= count)).await;
    let first = histories(stores[0]);
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    for record in first.iter().flatten() {
        *times.entry(record.label as u64).or_default() += 1;
    }
    assert_eq!(times.len(), count);
    assert!(times.values().all(|times| *times == 1), "a record is doubled: {times:?}");
    for storage in &stores[1..] {
        assert!(histories(storage) == first, "the copies differ");
        assert_eq!(storage.log().watermark(&films()), stores[0].log().watermark(&films()));
    }
    for node in nodes {
        let status = node.running().cluster.status();
        assert!(status.logs.values().all(|log| log.problem.is_none()), "{status:?}");
    }
}

/// Stops all nodes.
pub async fn stop(nodes: &mut [TestNode]) {
    futures_util::future::join_all(nodes.iter_mut().map(TestNode::stop)).await;
}
