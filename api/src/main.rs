//! The `celeris` binary: the command line, and the one place where the rooms are wired into a node.

mod answer;
mod bench;
mod cli;
mod config;
mod connections;
mod error;
mod evaluate;
mod extract;
mod huge_pages;
mod learning_threads;
mod logging;
mod middleware;
mod ndjson;
mod node;
mod patient_stream;
mod routes;
mod schema;
mod series;
mod server;
mod state;
mod unread_body;

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// States of many users are replaced by many threads, which leaves glibc's arenas full of holes.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
