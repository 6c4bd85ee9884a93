#![allow(dead_code, reason = "the parts are not yet joined")]
mod append;
pub mod batch;
pub mod chain;
mod error;
mod heartbeat;
mod hooks;
mod incarnations;
mod log_state;
mod members;
mod options;
mod placement;
mod server_checks;
mod streams;
mod term;
