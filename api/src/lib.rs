//! The HTTP API of a node, as a library: [`node::open`] connects storage, predictor and manager
//! over a data directory, [`server::serve`] answers requests on a socket that the caller owns, and
//! [`state::Node::close`] closes the store. The library changes nothing of its process except the
//! limit of open files: the caller owns the runtime, the metrics recorder, the log and the signals.
//!
//! `scope/` is what a request is known by in log lines and traces.
//!
//! In a cluster, `cluster/` knows the other nodes, and `routing/` finds the node that answers.
//!
//! `routes/` has one file for each resource, `schema/` the request and reply types, `middleware/`
//! the layers that every request passes. `connections.rs` is below HTTP. The command line is in
//! `celeris-cli`.

pub mod access;
mod answer;
mod asking;
pub mod backups;
mod certificate;
pub mod cluster;
mod compute_pool;
pub mod config;
pub mod config_listing;
mod connections;
mod description;
mod error;
mod extract;
mod hosts;
mod ingest_pool;
mod ingest_status;
pub mod ingests;
mod line_replies;
mod media_types;
mod metric_help;
mod middleware;
mod ndjson;
pub mod node;
mod paging;
mod patient_stream;
mod personalizer;
pub mod routes;
mod routing;
pub mod schema;
pub mod scope;
pub mod series;
pub mod server;
pub mod state;
pub mod tls;
mod unread_body;
