//! Nodes of a cluster in one process: their stores, replicated by logs in memory, and a manager over
//! each.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use celeris_manager::{Manager, ManagerOptions, Peers, Readiness, RemoteFile, TrainingOptions, VersionSource};
use celeris_model::{ItemId, LogId, ModelName, NodeName, Observation, Shards, UserId, VersionId};
use celeris_pipelines::ObjectId;
use celeris_predictor::{Observed, PredictRequest, Predictor, PredictorOptions};
use celeris_storage::memory_log::{MemoryLog, cursor_at, position_of};
use celeris_storage::{Applied, ClusterIdentity, Storage, StorageError, StorageOptions};
use parking_lot::Mutex;

pub const DEADLINE: Duration = Duration::from_secs(60);

pub fn name(text: &str) -> ModelName {
    ModelName::new(text).unwrap()
}

pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < DEADLINE, "timed out: {what}");
        std::thread::yield_now();
    }
}

/// What the nodes reach each other by.
#[derive(Default)]
pub struct Network {
    managers: Mutex<Vec<Weak<Manager>>>,
    /// Files that were fetched.
    pub fetched: AtomicUsize,
    /// Files that are damaged on their way, the next ones.
    pub damaged: AtomicUsize,
    /// Whether nodes that are ready are taken for late.
    pub is_nobody_ready: AtomicBool,
}

impl Network {
    fn others(&self, than: usize) -> Vec<(usize, Arc<Manager>)> {
        let managers = self.managers.lock();
        let others = managers.iter().enumerate().filter(|(node, _)| *node != than);
        others.filter_map(|(node, manager)| Some((node, manager.upgrade()?))).collect()
    }
}

/// The network as one node sees it.
struct Seen {
    network: Arc<Network>,
    by: usize,
}

impl VersionSource for Seen {
    fn fetch(&self, file: RemoteFile<'_>, into: &Path) -> io::Result<()> {
        for (_, other) in self.network.others(self.by) {
            let Ok((mut from, bytes)) = other.versions().open_file((file.model, file.version), file.name) else {
                continue;
            };
            assert!(bytes <= file.bytes_max);
            let mut contents = Vec::new();
            io::Read::read_to_end(&mut from, &mut contents)?;
            let damages = |left: usize| left.checked_sub(1);
            if self.network.damaged.fetch_update(Ordering::AcqRel, Ordering::Acquire, damages).is_ok() {
                *contents.last_mut().unwrap() ^= 1;
            }
            self.network.fetched.fetch_add(1, Ordering::AcqRel);
            return std::fs::write(into, contents);
        }
        Err(io::Error::other("no node has it"))
    }

    fn object(&self, id: ObjectId, _bytes_max: usize) -> io::Result<Vec<u8>> {
        let found =
            self.network.others(self.by).into_iter().find_map(|(_, other)| other.pipelines().object_bytes(id).ok());
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Readiness for Seen {
    fn lagging(&self, version: &str) -> Vec<NodeName> {
        let is_nobody_ready = self.network.is_nobody_ready.load(Ordering::Acquire);
        let is_late = |manager: &Manager| is_nobody_ready || !manager.ready().iter().any(|ready| ready == version);
        let late = self.network.others(self.by).into_iter().filter(|(_, manager)| is_late(manager));
        late.map(|(node, _)| NodeName::new(format!("node-{node}")).unwrap()).collect()
    }
}

pub struct Node {
    pub storage: Storage,
    pub predictor: Arc<Predictor>,
    pub manager: Arc<Manager>,
    number: usize,
    /// Held while the node applies a log, or begins or ends a term.
    applying: Mutex<()>,
    listener: tokio::task::JoinHandle<()>,
}

/// The replicated logs.
type Logs = Arc<Vec<(LogId, MemoryLog)>>;

pub struct Cluster {
    pub nodes: Vec<Arc<Node>>,
    pub network: Arc<Network>,
    logs: Logs,
    setup: Setup,
    followers: Vec<Option<Follower>>,
    dirs: Vec<tempfile::TempDir>,
}

/// The thread by which a node applies what others append, until this is dropped.
struct Follower {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    fn start(node: &Arc<Node>, logs: &Logs) -> Self {
        let stopping = Arc::<AtomicBool>::default();
        let (node, logs, is_stopping) = (Arc::clone(node), Arc::clone(logs), Arc::clone(&stopping));
        let thread = std::thread::spawn(move || {
            while !is_stopping.load(Ordering::Acquire) {
                node.follow_all(&logs);
                std::thread::yield_now();
            }
        });
        Self { stopping, thread: Some(thread) }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Settings of a cluster.
pub struct Setup {
    pub nodes: usize,
    pub shards: u8,
    /// A shell script that trains, and supervises the training.
    pub trainer: &'static str,
    pub ready_within: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self { nodes: 2, shards: 1, trainer: "exit 1", ready_within: DEADLINE }
    }
}

fn open(dir: &Path, number: usize, setup: &Setup, network: &Arc<Network>) -> Node {
    let shards = Shards::new(setup.shards).unwrap();
    let identity = ClusterIdentity { name: "test".to_owned(), incarnation: 1, shards, hash_key: [7; 16] };
    let storage = Storage::open_replica(dir, &StorageOptions::default(), &identity).unwrap();
    let (predictor, losses) = Predictor::new(storage.clone(), &PredictorOptions::default());
    let predictor = Arc::new(predictor);
    let trainer = storage.dir().join("trainer");
    write_script(&trainer, setup.trainer);
    let options = ManagerOptions {
        models_max: 10,
        trainer,
        training: TrainingOptions::default(),
        import_dir: Some(storage.dir().to_owned()),
    };
    let seen = Arc::new(Seen { network: Arc::clone(network), by: number });
    let peers = Peers { source: seen.clone(), readiness: seen, ready_within: setup.ready_within };
    let manager = Manager::join(storage.clone(), predictor.clone(), options, peers).unwrap();
    let listener = tokio::spawn(manager.clone().listen(losses));
    Node { storage, predictor, manager, number, applying: Mutex::default(), listener }
}

/// By another process: a file cannot be run while this one has it open, and its children inherit that.
fn write_script(path: &Path, commands: &str) {
    let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$2" && chmod +x "$2""#;
    let written = std::process::Command::new("sh").args(["-c", write, "sh", commands]).arg(path).status().unwrap();
    assert!(written.success());
}

impl Cluster {
    /// Starts the nodes; the first owns all logs and leads.
    pub fn start(setup: Setup) -> Self {
        let network = Arc::<Network>::default();
        let dirs: Vec<tempfile::TempDir> = (0..setup.nodes).map(|_| tempfile::tempdir().unwrap()).collect();
        let opened = |(number, dir): (usize, &tempfile::TempDir)| Arc::new(open(dir.path(), number, &setup, &network));
        let nodes: Vec<Arc<Node>> = dirs.iter().enumerate().map(opened).collect();
        *network.managers.lock() = nodes.iter().map(|node| Arc::downgrade(&node.manager)).collect();
        let replica = nodes[0].storage.replica().unwrap();
        let logs: Logs = Arc::new(replica.logs().map(|log| (log, MemoryLog::default())).collect());
        for (log, shared) in logs.iter() {
            shared.begin((0, replica), *log).unwrap();
        }
        nodes[0].manager.lead().unwrap();
        let followers = nodes.iter().map(|node| Some(Follower::start(node, &logs))).collect();
        Self { followers, nodes, network, logs, setup, dirs }
    }

    /// Stops a node, which owns no log, and starts it again after `meanwhile`.
    pub async fn restart(&mut self, number: usize, meanwhile: impl FnOnce(&Self)) {
        self.followers[number] = None;
        // Any other node takes its place, so that nothing holds it.
        let other = Arc::clone(&self.nodes[0]);
        let stopped = std::mem::replace(&mut self.nodes[number], other);
        self.network.managers.lock()[number] = Weak::new();
        let stopped = Arc::into_inner(stopped).expect("a test holds the node that it stops");
        stopped.listener.abort();
        let _aborted = stopped.listener.await;
        drop((stopped.manager, stopped.predictor));
        stopped.storage.close().unwrap();
        drop(stopped.storage);
        meanwhile(self);
        let node = Arc::new(open(self.dirs[number].path(), number, &self.setup, &self.network));
        self.network.managers.lock()[number] = Arc::downgrade(&node.manager);
        self.followers[number] = Some(Follower::start(&node, &self.logs));
        self.nodes[number] = node;
    }

    fn shared(&self, log: LogId) -> &MemoryLog {
        &self.logs.iter().find(|(id, _)| *id == log).unwrap().1
    }

    /// Has another node own a log, after it has applied all of it.
    pub fn hand_over(&self, log: LogId, to: usize) {
        let from = &self.nodes[self.shared(log).owner()];
        if log == LogId::Catalog {
            from.manager.follow();
        }
        from.storage.replica().unwrap().end_term(log);
        if let LogId::Shard(shard) = log {
            from.predictor.forget_shard(shard);
        }
        self.take_over(log, to);
    }

    /// Has another node own a log without the former owner's knowledge.
    pub fn take_over(&self, log: LogId, to: usize) {
        let node = &self.nodes[to];
        {
            let _applying = node.applying.lock();
            node.follow(&self.logs, log, usize::MAX);
            self.shared(log).begin((to, node.storage.replica().unwrap()), log).unwrap();
        }
        if log == LogId::Catalog {
            node.manager.lead().unwrap();
        }
    }

    /// Waits until all nodes have applied everything.
    pub fn settle(&self) {
        let is_done = |node: &Arc<Node>| {
            let replica = node.storage.replica().unwrap();
            self.logs.iter().all(|(log, shared)| {
                let cursor = position_of(replica.cursor(*log).unwrap());
                shared.owner() == node.number || cursor == shared.end()
            })
        };
        eventually("all logs are applied", || self.nodes.iter().all(is_done));
        // Until what was applied last is taken in.
        self.nodes.iter().for_each(|node| drop(node.applying.lock()));
    }

    /// Waits until all nodes serve this version of a model.
    pub fn serve(&self, model: &str, version: u64) {
        for node in &self.nodes {
            eventually(&format!("node {} serves version {version} of {model}", node.number), || {
                node.active(model) == Some(VersionId(version))
            });
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.followers.clear();
        self.nodes.iter().for_each(|node| node.listener.abort());
    }
}

impl Node {
    /// Applies what other nodes have appended: records after the commits that they may depend on.
    fn follow_all(&self, logs: &Logs) {
        let ends: Vec<usize> = logs.iter().map(|(_, shared)| shared.end()).collect();
        for ((log, _), end) in logs.iter().zip(ends) {
            let _applying = self.applying.lock();
            self.follow(logs, *log, if *log == LogId::Catalog { usize::MAX } else { end });
        }
    }

    fn follow(&self, logs: &Logs, log: LogId, up_to: usize) {
        let shared = &logs.iter().find(|(id, _)| *id == log).unwrap().1;
        if shared.owner() == self.number {
            return;
        }
        let replica = self.storage.replica().unwrap();
        let from = position_of(replica.cursor(log).unwrap());
        for (at, entries) in shared.entries().iter().enumerate().take(up_to).skip(from) {
            match replica.apply(log, entries, &cursor_at(at + 1), |group| self.predictor.applying(group)) {
                Ok(Applied::Group(group)) => {
                    self.predictor.applied(&group).unwrap();
                    self.manager.observed(&group.records);
                }
                Ok(Applied::Catalog { documents, items }) => self.manager.applied(&documents, &items),
                // A former owner that has not ended its term yet follows afterwards.
                Err(error) => {
                    assert!(matches!(error, StorageError::Diverged { .. }), "{error}");
                    return;
                }
            }
        }
    }

    pub fn active(&self, model: &str) -> Option<VersionId> {
        self.predictor.models().active(&name(model)).ok().map(|version| version.id)
    }

    pub async fn observe(&self, model: &str, user: usize, item: &str, label: f32) -> Observed {
        let observation = Observation {
            user: UserId::new(format!("user-{user}")).unwrap(),
            item: ItemId::new(item).unwrap(),
            label,
            weight: 1.0,
            timestamp: None,
            observation_id: None,
            feedback: None,
            decision: None,
            context: None,
        };
        self.predictor.ingest().observe(&name(model), observation).await.unwrap()
    }

    /// The bits of the prediction for an item.
    pub async fn predict(&self, model: &str, user: usize, item: &str) -> u32 {
        let request = PredictRequest {
            model: name(model),
            user: UserId::new(format!("user-{user}")).unwrap(),
            items: vec![ItemId::new(item).unwrap()],
            min_epoch: None,
            segment: None,
            context: None,
        };
        self.predictor.predict(&request).await.unwrap().scores[0].estimate.score.to_bits()
    }
}
