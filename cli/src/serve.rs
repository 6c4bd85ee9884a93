//! `celeris serve`: runs a node.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;
use crate::logging::{self, Form};
use celeris_api::config::{self, Config};
use celeris_api::node::{self, NodeOptions};
use celeris_api::series::Series;
use celeris_api::server;
use celeris_api::state::Node;
use celeris_api::tls::Tls;
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
    /// Serves without keys or TLS also on an address that other machines reach.
    #[arg(long)]
    insecure: bool,
}

pub(crate) fn run(args: Args, form: Form) -> Result<(), Failure> {
    let mut config = config::load(args.config.as_deref(), args.listen.as_deref()).map_err(Failure::BadInput)?;
    config.server.insecure |= args.insecure;
    // Dropped last, when the node has ended its spans.
    let _traces = logging::start_node(form, &config)?;
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
    Tls::check(&config.server.tls).map_err(Failure::BadInput)?;
    let options = NodeOptions {
        data_dir: data_dir.to_owned(),
        binary: std::env::current_exe().map_err(Failure::other)?,
        series: Series::install().map_err(Failure::other)?,
        address: listener.local_addr().map_err(Failure::other)?,
        cluster: None,
    };
    let address = options.address;
    let node = tokio::task::block_in_place(|| node::open(options, config))?;
    let exposed = check_is_closed(&node, config, address);
    if exposed.is_err() {
        close(&node)?;
    }
    exposed.map(|()| node)
}

/// Fails for a node that other machines reach and that lets everyone in, or does not encrypt, unless the configuration says that
/// it may.
fn check_is_closed(node: &Node, config: &Config, address: SocketAddr) -> Result<(), Failure> {
    let of_operators = config.server.operators.as_ref().and_then(|operators| operators.parse::<SocketAddr>().ok());
    let exposed = [Some(address), of_operators].into_iter().flatten().find(|address| !address.ip().is_loopback());
    let Some(address) = exposed.filter(|_| !config.server.insecure) else { return Ok(()) };
    let keys = "it has no keys: make the first by `celeris keys create --role admin --name NAME --data-dir DIR`, or name a \
                file by auth.admin_key_file";
    let tls = "its connections are not encrypted: set server.tls.cert and server.tls.key";
    let secret = "its cluster has no secret: set cluster.secret_file on all nodes";
    let lacks = [
        (!node.access.is_required(node.manager.api_keys()), keys),
        (config.server.tls.cert.is_none(), tls),
        (config.cluster.name.is_some() && !node.access.node_secret().exists(), secret),
    ];
    let lacks: Vec<&str> = lacks.into_iter().filter_map(|(lacks, what)| lacks.then_some(what)).collect();
    if lacks.is_empty() {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "other machines reach {address}, and {}. In a network that only your services reach, or behind a proxy that does both, \
         serve it as it is by --insecure (server.insecure)",
        lacks.join("; ")
    )))
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
pub fn announce(url: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready {url}").and_then(|()| out.flush()).map_err(Failure::other)
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
        let scheme = if config.server.tls.cert.is_some() { "https" } else { "http" };
        announce(&format!("{scheme}://{address}"))?;
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
