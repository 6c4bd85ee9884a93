//! `celeris serve`: runs a node.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;
use celeris_api::config::{self, Config};
use celeris_api::state::Node;
use celeris_api::{node, server};

/// Runs a node.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the node keeps everything; made if it is not there.
    #[arg(long)]
    data_dir: PathBuf,
    /// A TOML file.
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
        let node = tokio::task::block_in_place(|| node::open(&args.data_dir, &config))?;
        serve(listener, node, &config).await
    })
}

/// The runtime of a node: one thread for each core, and others for what blocks.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::other)
}

/// Takes the address before anything long begins, so that a taken port is told at once.
pub async fn listen(config: &Config) -> Result<TcpListener, Failure> {
    let address = &config.server.listen;
    TcpListener::bind(address).await.map_err(|error| Failure::bad_input(format!("cannot listen on {address}: {error}")))
}

/// Says that the node can serve: the one line on standard output that programs wait for.
pub fn announce(address: SocketAddr) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready http://{address}").and_then(|()| out.flush()).map_err(Failure::other)
}

/// Done at the first SIGTERM or SIGINT from now on.
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

/// Serves until SIGTERM or SIGINT, lets requests under way end, and closes the store.
pub async fn serve(listener: TcpListener, node: Node, config: &Config) -> Result<(), Failure> {
    let asked_to_stop = asked_to_stop()?;
    let shutdown = async move {
        asked_to_stop.await;
        tracing::info!("stopping: requests under way are let through");
    };
    announce(listener.local_addr().map_err(Failure::other)?)?;
    let (storage, predictor, sealer) = (node.storage.clone(), node.predictor.clone(), node.sealer.clone());
    server::serve(listener, node, &config.server, shutdown).await.map_err(Failure::other)?;
    tokio::task::block_in_place(|| {
        predictor.stop();
        // Before the store, since it reads what is then closed.
        if let Some(sealer) = sealer {
            sealer.stop();
        }
        storage.close()
    })?;
    Ok(())
}
