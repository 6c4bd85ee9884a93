//! Ids of jobs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Id of a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(String);

impl JobId {
    pub(crate) fn new() -> Self {
        // UUIDv7 starts with the time, so jobs sort in the order of creation.
        Self(uuid::Uuid::now_v7().to_string())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
