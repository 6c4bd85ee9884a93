//! The threads on which the clients of object stores run.

use std::future::Future;
use std::io;
use std::sync::{OnceLock, mpsc};

use tokio::runtime::{Builder, Handle, Runtime};

/// They only wait for sockets and encrypt.
const THREADS: usize = 2;

static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();

/// The runtime, and before its first use the library of ciphers for all clients of this process.
pub(crate) fn handle() -> io::Result<Handle> {
    let runtime = RUNTIME.get_or_init(|| {
        // Another crate may have installed the same already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Builder::new_multi_thread().worker_threads(THREADS).thread_name("object-store").enable_all().build().ok()
    });
    let runtime =
        runtime.as_ref().ok_or_else(|| io::Error::other("no thread could be started for the object store"))?;
    Ok(runtime.handle().clone())
}

/// Waits for a future that runs on those threads. Not `block_on`, which panics on a thread of another runtime.
///
/// # Errors
/// If no thread could be started, or the future panicked.
pub(crate) fn wait<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> io::Result<T> {
    Running::start(future)?.wait()
}

/// A future that runs on those threads while the caller goes on.
pub(crate) struct Running<T>(mpsc::Receiver<T>);

impl<T: Send + 'static> Running<T> {
    pub(crate) fn start(future: impl Future<Output = T> + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = mpsc::sync_channel(1);
        handle()?.spawn(async move {
            // Nobody waits for an upload that was given up.
            let _ = sender.send(future.await);
        });
        Ok(Self(receiver))
    }

    pub(crate) fn wait(self) -> io::Result<T> {
        self.0.recv().map_err(|_| io::Error::other("the request to the store was given up"))
    }
}
