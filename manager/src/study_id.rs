//! Ids of studies.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Id of a study.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StudyId(String);

impl StudyId {
    pub(crate) fn new() -> Self {
        // UUIDv7 starts with the time, so studies sort in the order of creation.
        Self(uuid::Uuid::now_v7().to_string())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StudyId {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
