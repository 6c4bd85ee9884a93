//! Configuration from a TOML file, environment variables and flags. Later sources override earlier
//! ones; unknown keys are rejected.

mod addresses;
mod auth;
mod cluster;
mod cluster_tls;
mod ingest;
mod limits;
mod memory;
mod otel_variables;
mod personalizer;
mod server;
mod sizes;
mod sources;
mod store;
mod times;
mod tls;
mod traces;
mod training;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use auth::{Auth, Oidc};
pub use cluster::Cluster;
pub use cluster_tls::ClusterTls;
pub use ingest::{Ingest, Kafka, Nats};
pub use limits::Limits;
pub use memory::Memory;
pub use personalizer::Personalizer;
pub use server::Server;
pub use sources::{load, load_from};
pub use store::{Decisions, Sealing, Verification};
pub use tls::Tls;
pub use traces::Tracing;
pub use training::{Training, TrainingLimits};

/// The configuration of a node.
///
/// In the environment a key is written `CELERIS_SECTION__KEY`, as in `CELERIS_MEMORY__USERS=2GiB`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    #[schema(inline)]
    pub server: Server,
    /// Who may use the node.
    #[schema(inline)]
    pub auth: Auth,
    /// Limits of requests.
    #[schema(inline)]
    pub limits: Limits,
    /// Memory budgets.
    #[schema(inline)]
    pub memory: Memory,
    /// Copying of the log to Parquet segments.
    #[schema(inline)]
    pub sealing: Sealing,
    /// Background verification of the store.
    #[schema(inline)]
    pub verification: Verification,
    /// Recording of decisions.
    #[schema(inline)]
    pub decisions: Decisions,
    /// Requests in the form of Azure Personalizer.
    #[schema(inline)]
    pub personalizer: Personalizer,
    /// Trainers and their limits.
    #[schema(inline)]
    pub training: Training,
    /// Traces of requests and jobs, sent to a collector of OpenTelemetry.
    #[schema(inline)]
    pub tracing: Tracing,
    /// The cluster of which the node is a member.
    #[schema(inline)]
    pub cluster: Cluster,
    /// Message brokers whose messages are observations.
    #[schema(inline)]
    pub ingest: Vec<Ingest>,
}
