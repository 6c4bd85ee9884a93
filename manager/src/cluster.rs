//! What the manager of a node in a cluster needs of the other nodes.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use celeris_model::{ModelId, NodeName, VersionId};
use celeris_pipelines::ObjectId;

/// A file of a version that another node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteFile<'a> {
    pub model: ModelId,
    pub version: VersionId,
    /// Its name in the directory of the version.
    pub name: &'a str,
    /// The most bytes that it may have.
    pub bytes_max: u64,
}

/// Where a node gets the files of versions that were trained or registered on another node, and objects of pipelines.
pub trait VersionSource: Send + Sync {
    /// Copies a file to `into`, which does not exist yet. Blocks the thread, for a bounded time; what
    /// it leaves after an error is removed by the caller, who tries again later. The contents are
    /// checked by the caller.
    ///
    /// # Errors
    /// If no node can be reached that has the file, or it is longer than `bytes_max`.
    fn fetch(&self, file: RemoteFile<'_>, into: &Path) -> io::Result<()>;

    /// The bytes of an object, whose checksum is the one that its name says. Blocks the thread, for a bounded time.
    ///
    /// # Errors
    /// `NotFound` if no node has it; others if one cannot be reached, or the object is longer than `bytes_max`.
    fn object(&self, id: ObjectId, bytes_max: usize) -> io::Result<Vec<u8>>;
}

/// Which nodes can serve a version, as they report it ([`crate::Manager::ready`]).
pub trait Readiness: Send + Sync {
    /// The live nodes, apart from this one, that have not reported `version` as ready.
    fn lagging(&self, version: &str) -> Vec<NodeName>;
}

/// The other nodes, for the manager of a node in a cluster.
#[derive(Clone)]
pub struct Peers {
    pub source: Arc<dyn VersionSource>,
    pub readiness: Arc<dyn Readiness>,
    /// How long a switch waits for the other nodes to prepare a version. Those that are late serve
    /// the version before until they are ready.
    pub ready_within: Duration,
}

/// The name of a version in reports of readiness.
pub(crate) fn readiness_of((model, version): (ModelId, VersionId)) -> String {
    format!("{model}/{version}")
}
