//! `celeris serve`: runs a node.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;
use celeris_api::config::{self, Config};
use celeris_api::node::{self, NodeOptions};
use celeris_api::series::Series;
use celeris_api::server;
use celeris_api::state::Node;
use celeris_storage::faults;

/// Runs a node.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The data directory; created if missing.
    #[arg(long)]
    data_dir: PathBuf,
    /// The configuration file, in TOML.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Address and port; port 0 picks a free one.
    #[arg(long)]
    listen: Option<String>,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let config = config::load(args.config.as_deref(), args.listen.as_deref()).map_err(Failure::BadInput)?;
    runtime()?.block_on(async move {
        let listener = listen(&config).await?;
        let node = open(&args.data_dir, &config, &listener)?;
        serve(listener, node, &config).await
    })
}

/// The runtime of a node: one worker thread per core, and additional threads for blocking work.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::other)
}

/// Opens the node of this process, which is to be served at this socket.
pub fn open(data_dir: &Path, config: &Config, listener: &TcpListener) -> Result<Node, Failure> {
    faults::configure();
    let options = NodeOptions {
        data_dir: data_dir.to_owned(),
        binary: std::env::current_exe().map_err(Failure::other)?,
        series: Series::install().map_err(Failure::other)?,
        address: listener.local_addr().map_err(Failure::other)?,
        cluster: None,
    };
    Ok(tokio::task::block_in_place(|| node::open(options, config))?)
}

/// Binds the address before any long work starts, so that an address in use is reported at once.
pub async fn listen(config: &Config) -> Result<TcpListener, Failure> {
    let address = &config.server.listen;
    TcpListener::bind(address).await.map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => "; choose another port by --listen, such as --listen 127.0.0.1:0 for any free one",
            _ => "",
        };
        Failure::bad_input(format!("cannot listen on {address}: {error}{remedy}"))
    })
}

/// Prints the readiness line, once the node can answer: the only line on standard output, which programs can wait for.
pub fn announce(address: SocketAddr) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready http://{address}").and_then(|()| out.flush()).map_err(Failure::other)
}

/// Completes at the first SIGTERM or SIGINT from now on.
pub fn asked_to_stop() -> Result<impl Future<Output = ()>, Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::other)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::other)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Serves until SIGTERM or SIGINT, says so once the node has joined its cluster, drains the requests in flight, and closes the store.
pub async fn serve(listener: TcpListener, node: Node, config: &Config) -> Result<(), Failure> {
    let served = async {
        let asked_to_stop = asked_to_stop()?;
        let (leaving, failure) = (node.clone(), Arc::<OnceLock<String>>::default());
        let failed = Arc::clone(&failure);
        let shutdown = async move {
            tokio::select! {
                () = asked_to_stop => {
                    tracing::info!("stopping: requests under way are let through");
                    leaving.leave().await;
                }
                reason = leaving.failed() => {
                    tracing::error!("stopping: {reason}");
                    // Nothing else sets it.
                    let _ = failed.set(reason);
                }
            }
        };
        let address = listener.local_addr().map_err(Failure::other)?;
        let mut serving = pin!(server::serve(listener, node.clone(), &config.server, shutdown));
        tokio::select! {
            served = &mut serving => return served.map_err(Failure::other),
            () = node.joined() => {}
        }
        announce(address)?;
        serving.await.map_err(Failure::other)?;
        // A supervisor starts a node again that has failed.
        failure.get().map_or(Ok(()), |reason| Err(Failure::other(reason)))
    };
    let served = served.await;
    close(&node)?;
    served
}

/// Closes a node, also after an error: the process must not end while threads of the node use the
/// store.
pub fn close(node: &Node) -> Result<(), Failure> {
    Ok(tokio::task::block_in_place(|| node.close())?)
}
