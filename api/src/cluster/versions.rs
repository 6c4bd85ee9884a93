//! Versions and objects of other nodes, for the manager.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use celeris_manager::{RemoteFile, VersionSource};
use celeris_model::ClusterView;
use celeris_pipelines::ObjectId;
use tokio::sync::watch;

use super::Downloader;

/// How long a node that has just started may take until it knows the others.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);

/// The live nodes as a source of versions: the coordinator first, which trains them.
pub struct PeerVersions {
    pub views: watch::Receiver<ClusterView>,
    pub downloader: Downloader,
}

impl VersionSource for PeerVersions {
    fn fetch(&self, file: RemoteFile<'_>, into: &Path) -> io::Result<()> {
        let urls = self.downloader.wait(KNOWN_WITHIN, self.known());
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "no other node is known");
        for url in urls {
            match self.fetch_from(&url, file, into) {
                Ok(()) => return Ok(()),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn object(&self, id: ObjectId, bytes_max: usize) -> io::Result<Vec<u8>> {
        // Requests run on threads that the runtime has entered, where nothing may wait for the runtime.
        let get = || {
            let urls = self.downloader.wait(KNOWN_WITHIN, self.known());
            self.downloader.object(&urls, id, bytes_max)
        };
        std::thread::scope(|scope| {
            scope.spawn(get).join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    }
}

impl PeerVersions {
    /// The URLs of the other nodes, once there are any.
    async fn known(&self) -> Vec<String> {
        let mut views = self.views.clone();
        views.wait_for(|view| !urls(view).is_empty()).await.map(|view| urls(&view)).unwrap_or_default()
    }

    fn fetch_from(&self, url: &str, file: RemoteFile<'_>, into: &Path) -> io::Result<()> {
        let RemoteFile { model, version, name, bytes_max } = file;
        let reply = self.downloader.get(url, &format!("/v1/cluster/versions/{model}/{version}/{name}"))?;
        // One byte more shows that it is too long.
        let copied = io::copy(&mut reply.take(bytes_max.saturating_add(1)), &mut File::create(into)?)?;
        if copied > bytes_max {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("{url}: {name} has more than {bytes_max} bytes"),
            ));
        }
        Ok(())
    }
}

/// The URLs of the other nodes.
fn urls(ClusterView { node, placement, .. }: &ClusterView) -> Vec<String> {
    let coordinator = placement.coordinator.as_ref();
    let mut nodes: Vec<_> = placement.nodes.iter().filter(|(name, _)| *name != node).collect();
    nodes.sort_by_key(|(name, _)| Some(*name) != coordinator);
    nodes.into_iter().map(|(_, url)| url.clone()).collect()
}
