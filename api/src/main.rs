//! The `celeris` binary: the command line, and the one place where the rooms are wired into a node.

mod answer;
mod bench;
mod cli;
mod config;
mod error;
mod evaluate;
mod extract;
mod hot_routes;
mod huge_pages;
mod learning_threads;
mod ndjson;
mod node;
mod routes;
mod server;
mod state;
mod times;

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// States of many users are replaced by many threads, which leaves glibc's arenas full of holes.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
