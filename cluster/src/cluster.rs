//! A node's membership in a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use celeris_model::{ClusterView, LogId};
use celeris_storage::Storage;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::append::Appender;
use crate::error::ClusterError;
use crate::heartbeat::Heartbeat;
use crate::hooks::Hooks;
use crate::joining::Joined;
use crate::log_state::LogState;
use crate::log_task::LogTask;
use crate::node::{LogHandle, Node, NodeParts};
use crate::status::{self, ClusterStatus};
use crate::term::TermEnd;
use crate::{beating, incarnations, questions, steering, upkeep};

/// Between two looks for a later incarnation.
const LOOK_FOR_INCARNATIONS: Duration = Duration::from_secs(5);

/// How long after the limit of [`Cluster::stop`] the tasks may take to notice it.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Owners look at their streams each few seconds, and hear of what other nodes have synced within a few more. The
/// servers compact the logs of their own, which have the same batches, each two to three minutes. What they compact stays
/// in a file that has got another batch meanwhile, until the next time: three times are allowed for.
const TRIM_LATE_MAX: Duration = Duration::from_secs(15 + 3 * 180);

/// A node that takes part in a cluster.
pub struct Cluster {
    node: Arc<Node>,
    abort: watch::Sender<bool>,
    logs: Mutex<Option<JoinSet<()>>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Joined {
    /// Begins to take part. `storage` is of
    /// [`Storage::open_replica`] with [`Joined::identity`]. Must be called in a runtime.
    ///
    /// # Errors
    /// `NotAReplica` or `Stream`.
    pub async fn start(self, storage: Arc<Storage>, hooks: Arc<dyn Hooks>) -> Result<Arc<Cluster>, ClusterError> {
        let names = self.names();
        let Self { options, access, writer, view, abort, counter, starting, .. } = self;
        let ids: Vec<LogId> = storage.replica().ok_or(ClusterError::NotAReplica)?.logs().collect();
        let changed = watch::Sender::new(());
        let mut logs = BTreeMap::new();
        for log in ids {
            let link = names.link(&access, log);
            let state = Arc::new(LogState::new(log, changed.clone()));
            logs.insert(log, LogHandle { state, term: Arc::default(), link });
        }
        let node = Arc::new(Node::new(NodeParts { options, names, writer, access, logs, view, counter }));
        let mut tasks = JoinSet::new();
        for (log, handle) in &node.logs {
            let appender = Appender {
                link: handle.link.clone(),
                retry_wait: node.options.timing.retry_wait,
                abort: abort.subscribe(),
                log: *log,
                bytes_max: usize::try_from(node.options.streams.message_bytes_max).unwrap_or(usize::MAX),
            };
            let task = LogTask {
                place: (*log, node.names.incarnation),
                writer: node.writer.clone(),
                storage: Arc::clone(&storage),
                hooks: Arc::clone(&hooks),
                state: Arc::clone(&handle.state),
                catalog: Arc::clone(&node.catalog().state),
                term: Arc::clone(&handle.term),
                appender,
                members: Arc::clone(&node.members),
                timing: node.options.timing.clone(),
            };
            tasks.spawn(task.run());
        }
        drop(starting);
        let others = vec![
            tokio::spawn(beating::send(Arc::clone(&node))),
            tokio::spawn(beating::hear(Arc::clone(&node))),
            tokio::spawn(questions::answer(Arc::clone(&node), Arc::clone(&storage), hooks)),
            tokio::spawn(steering::steer(Arc::clone(&node), changed.subscribe())),
            tokio::spawn(upkeep::keep(Arc::clone(&node), storage)),
            tokio::spawn(notice_incarnations(Arc::clone(&node))),
        ];
        Ok(Arc::new(Cluster { node, abort, logs: Mutex::new(Some(tasks)), tasks: Mutex::new(others) }))
    }
}

impl Cluster {
    /// What this node knows: the placement, and what it owns itself.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<ClusterView> {
        self.node.view.subscribe()
    }

    /// Whether this node knows where the logs are placed, and has once read the catalog to its end.
    #[must_use]
    pub fn has_joined(&self) -> bool {
        let is_placed = self.node.view.borrow().placement.revision.epoch > 0;
        is_placed && self.staleness(LogId::Catalog).is_some()
    }

    /// Set once the node cannot take part any more: it has given its logs up and must be stopped.
    #[must_use]
    pub fn failure(&self) -> watch::Receiver<Option<String>> {
        self.node.failure.subscribe()
    }

    /// The state of the cluster, as this node sees it.
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        status::of(&self.node)
    }

    /// The last heartbeats of the other live nodes.
    #[must_use]
    pub fn live(&self) -> Vec<Heartbeat> {
        self.node.live()
    }

    /// Tells the other nodes what this one is ready for.
    pub fn set_ready(&self, ready: Vec<String>) {
        *self.node.ready.lock() = ready;
        self.node.beat.notify_one();
    }

    /// Waits until the other live nodes have applied what this node has of the catalog, for a bounded time.
    pub async fn settle(&self) {
        questions::settle(&self.node).await;
    }

    /// Gives the logs up to other nodes, as soon as there are any.
    pub fn drain(&self) {
        self.node.is_draining.store(true, Ordering::Relaxed);
        self.node.beat.notify_one();
    }

    /// Whether this node owns the log and no other can have acknowledged writes since.
    #[must_use]
    pub fn lease_valid(&self, log: LogId) -> bool {
        self.node.logs.get(&log).is_some_and(|handle| handle.state.is_leased())
    }

    /// Makes sure that this node owns the log: what it reads afterwards is the latest.
    ///
    /// # Errors
    /// `NotOwner` or `Stopped`.
    pub async fn confirm(&self, log: LogId) -> Result<(), ClusterError> {
        if self.lease_valid(log) {
            return Ok(());
        }
        let term = self.node.logs.get(&log).and_then(|handle| handle.term.lock().clone());
        let Some(term) = term else { return Err(ClusterError::NotOwner { log }) };
        term.confirm().await.map_err(|end| match end {
            TermEnd::Fenced | TermEnd::Released => ClusterError::NotOwner { log },
            TermEnd::Stopped(reason) => ClusterError::Stopped { log, reason },
        })
    }

    /// How old this node's copy of a log is at most; `None` if that is not known.
    #[must_use]
    pub fn staleness(&self, log: LogId) -> Option<Duration> {
        self.node.logs.get(&log)?.state.staleness(self.node.options.timing.lease)
    }

    /// How long after a change the servers' files hold what it has removed, if the live nodes sync it at once.
    #[must_use]
    pub fn trimmed_within(&self) -> Duration {
        self.node.options.streams.trim_delay + TRIM_LATE_MAX
    }

    /// Gives all logs up and disconnects, within a bounded time; idempotent. What is not appended by
    /// then fails, and whether the last batch of each log is in it is not known.
    pub async fn stop(&self) {
        let logs = self.logs.lock().take();
        let Some(mut logs) = logs else { return };
        self.node.stop_logs();
        let end = async { while logs.join_next().await.is_some() {} };
        let limit = self.node.options.timing.stop;
        if tokio::time::timeout(limit, end).await.is_err() {
            tracing::warn!("the logs are not released in time");
            self.abort.send_replace(true);
            let end = async { while logs.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(ABORT_TIMEOUT, end).await;
        }
        self.node.is_stopped.store(true, Ordering::Relaxed);
        self.tasks.lock().drain(..).for_each(|task| task.abort());
        let farewell = async {
            beating::send_one(&self.node).await;
            self.node.access.client.flush().await
        };
        if !matches!(tokio::time::timeout(Duration::from_secs(1), farewell).await, Ok(Ok(()))) {
            tracing::debug!("the other nodes are not told of the end");
        }
        // Its tasks end with the last of the client's clones.
        let _ = self.node.access.client.drain().await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.abort.send_replace(true);
        self.tasks.lock().drain(..).for_each(|task| task.abort());
    }
}

/// Ends the part of this node in the cluster once a later incarnation has begun.
async fn notice_incarnations(node: Arc<Node>) {
    let mut ticks = tokio::time::interval(LOOK_FOR_INCARNATIONS);
    loop {
        ticks.tick().await;
        let Ok(last) = incarnations::last(&node.access, &node.names.cluster).await else { continue };
        if last > node.names.incarnation {
            let failure = format!("incarnation {last} of the cluster has begun: start this node again");
            tracing::error!("{failure}");
            node.failure.send_replace(Some(failure));
            node.stop_logs();
            return;
        }
    }
}
