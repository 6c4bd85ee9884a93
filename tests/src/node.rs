//! A node that runs in the process of the test.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use celeris_api::cluster::Membership;
use celeris_api::node::{self, NodeOptions};
use celeris_api::series::Series;
use celeris_api::{config, server};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing_subscriber::EnvFilter;

use crate::binary;
use crate::client::{Client, ModelClient};
use crate::wait::{DEADLINE, eventually};

/// Worker threads of a node. A test starts few nodes, and other tests run at the same time.
const THREADS: usize = 2;

static LOG: Once = Once::new();

/// A node on a free port, with a runtime of its own. It differs from a [`crate::NodeProcess`] as
/// follows:
///
/// - Its `/metrics` lists nothing: the metrics recorder belongs to the process, in which other
///   nodes run too.
/// - It ignores environment variables, and writes its log to standard error only if `RUST_LOG` is
///   set.
/// - It starts trainers from the built binary.
///
/// As a `NodeProcess` does, it gives new models no triggers, unless it is started by
/// [`Node::as_shipped`].
///
/// Dropping it interrupts requests and trainings, and closes the store.
pub struct Node {
    data_dir: PathBuf,
    client: Client,
    running: Option<Running>,
}

struct Running {
    /// Never sent to: the node stops when it is dropped.
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
    runtime: Runtime,
    /// Dropped last, outside the runtime: then it waits for its threads.
    node: celeris_api::state::Node,
}

impl Node {
    /// A node with default settings on this data directory.
    ///
    /// # Panics
    /// If it cannot be opened.
    #[track_caller]
    #[must_use]
    pub fn serve(data_dir: &Path) -> Self {
        Self::start(data_dir, None)
    }

    /// A node with this configuration file on this data directory.
    ///
    /// # Panics
    /// If it cannot be opened.
    #[track_caller]
    #[must_use]
    pub fn configured(data_dir: &Path, config: &Path) -> Self {
        Self::start(data_dir, Some(config))
    }

    /// A node whose new models are retrained automatically, as by default.
    ///
    /// # Panics
    /// If it cannot be opened.
    #[track_caller]
    #[must_use]
    pub fn as_shipped(data_dir: &Path) -> Self {
        Self::with_variables(data_dir, None, None)
    }

    /// A node in a cluster, with this socket and configuration file.
    ///
    /// # Panics
    /// If it cannot be opened.
    #[track_caller]
    #[must_use]
    pub fn member(data_dir: &Path, config: Option<&Path>, (listener, cluster): (TcpListener, Membership)) -> Self {
        Self::open(data_dir, config, Some(binary::ON_REQUEST), (listener, Some(cluster)))
    }

    #[track_caller]
    fn start(data_dir: &Path, config: Option<&Path>) -> Self {
        Self::with_variables(data_dir, config, Some(binary::ON_REQUEST))
    }

    #[track_caller]
    fn with_variables(data_dir: &Path, config: Option<&Path>, variable: Option<(&str, &str)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        Self::open(data_dir, config, variable, (listener, None))
    }

    #[track_caller]
    fn open(
        data_dir: &Path,
        config: Option<&Path>,
        variable: Option<(&str, &str)>,
        (listener, cluster): (TcpListener, Option<Membership>),
    ) -> Self {
        start_log();
        let variables = variable.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = config::load_from(config, variables, None).unwrap_or_else(|problem| panic!("{problem}"));
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
        let runtime = runtime.expect("threads can be spawned");
        let address = listener.local_addr().expect("the socket is bound");
        let options = NodeOptions {
            data_dir: data_dir.to_owned(),
            binary: binary::path(),
            series: Arc::new(Series::default()),
            address,
            cluster,
        };
        listener.set_nonblocking(true).expect("a socket can be made non-blocking");
        let entered = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).expect("the runtime has I/O");
        let node = node::open(options, &config).unwrap_or_else(|error| panic!("{}: {error}", data_dir.display()));
        drop(entered);
        let (stop, stopped) = oneshot::channel();
        let serving = node.clone();
        let served = runtime.spawn(async move {
            let stopped = async move {
                // An error: the sender was dropped.
                let _ = stopped.await;
            };
            server::serve(listener, serving.clone(), &config.server, stopped).await.expect("the socket has an address");
            tokio::task::block_in_place(|| serving.close()).expect("the store can be closed");
        });
        Self {
            data_dir: data_dir.to_owned(),
            client: Client::new(format!("http://{address}")),
            running: Some(Running { stop, served, runtime, node }),
        }
    }

    /// A client of this node; the client may outlive the node.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client of one model of this node; the model need not exist.
    #[must_use]
    pub fn model(&self, name: &str) -> ModelClient {
        self.client.model(name)
    }

    /// Lets the requests under way finish, closes the store, and waits until the data directory can
    /// be opened again.
    ///
    /// # Panics
    /// If the store cannot be closed, or the directory is not released by the deadline.
    #[track_caller]
    pub fn stop(mut self) {
        let Running { stop, served, runtime, node } = self.running.take().expect("a node is stopped once");
        drop(stop);
        runtime.block_on(served).expect("the node stops cleanly");
        runtime.shutdown_timeout(DEADLINE);
        drop(node);
        // A guard's thread may hold the node a little longer.
        eventually("the release of the data directory", || is_released(&self.data_dir).then_some(()));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(Running { runtime, node, .. }) = self.running.take() {
            runtime.shutdown_timeout(DEADLINE);
            drop(node);
        }
    }
}

fn is_released(data_dir: &Path) -> bool {
    let lock = File::open(data_dir.join("LOCK")).expect("a data directory has a lock");
    lock.try_lock().is_ok_and(|()| lock.unlock().is_ok())
}

fn start_log() {
    LOG.call_once(|| {
        if let Ok(filter) = EnvFilter::try_from_default_env() {
            tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
        }
    });
}
