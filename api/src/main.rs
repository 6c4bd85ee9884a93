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
mod learning_threads;
mod logging;
mod media_types;
mod ndjson;
mod node;
mod origins;
mod patient_stream;
mod routes;
mod series;
mod server;
mod state;
mod times;
mod unread_body;

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// One allocator for Rust and RocksDB: the feature `override` defines `malloc` and `free` of the whole binary. glibc's arenas
/// fragment when many threads replace the states of many users. mimalloc asks Linux for huge pages, which insertions into
/// RocksDB's memtables need: they follow pointers all over them.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
