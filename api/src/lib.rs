//! The HTTP API of a node, as a library: [`node::open`] connects storage, predictor and manager over a data directory,
//! and [`server::serve`] answers requests on a socket that the caller owns.
//!
//! `routes/` has one file for each resource, `schema/` the request and reply types, `middleware/` the layers that every
//! request passes. `connections.rs` is below HTTP. The command line is in `celeris-cli`.

mod answer;
pub mod config;
mod connections;
mod error;
mod extract;
mod ingest_pool;
mod middleware;
mod ndjson;
pub mod node;
mod patient_stream;
pub mod routes;
pub mod schema;
mod series;
pub mod server;
pub mod state;
mod unread_body;
