//! Replies about ingests.

use serde::Serialize;
use utoipa::ToSchema;

use crate::ingest_status::IngestStatus;

/// The ingests of a node.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = IngestList)]
pub struct Ingests {
    /// In the order of the configuration.
    pub ingests: Vec<IngestStatus>,
}
