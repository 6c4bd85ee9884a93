//! The user that a request is about.

use std::sync::Arc;

use super::{UserEntry, UserKey};
use crate::models::ServedModel;
use crate::version::ServingVersion;

/// The user that a request is about, under a model: everything needed to compute a score.
pub(crate) struct Subject {
    pub(crate) model: Arc<ServedModel>,
    pub(crate) version: Arc<ServingVersion>,
    pub(crate) entry: Arc<UserEntry>,
    pub(crate) key: UserKey,
    pub(crate) persistence: Persistence,
    /// Counts how often this node has lost the user's shard. Events that were queued then are not in
    /// the log, and their epochs stand for other events from then on.
    pub(crate) losses: u32,
}

/// Whether an answer may be cached and recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// Predictions may be cached, and the decision recorded.
    Kept,
    /// Neither: the history came with the request, or another node owns the user.
    Nothing,
}
