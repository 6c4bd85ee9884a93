//! The `celeris` binary: the command line, and the one place where the rooms are wired into a node.

mod answer;
mod arriving;
mod bench;
mod cli;
mod config;
mod connections;
mod error;
mod evaluate;
mod extract;
mod hot_routes;
mod huge_pages;
mod learning_threads;
mod logging;
mod media_types;
mod ndjson;
mod node;
mod origins;
mod patient_stream;
mod routes;
mod schema;
mod series;
mod server;
mod state;
mod times;
mod unread_body;

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// States of many users are replaced by many threads, which leaves glibc's arenas full of holes.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
