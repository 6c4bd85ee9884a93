//! The `celeris` binary: the command line, and the one place where the rooms are wired into a node.

mod answer;
mod bench;
mod cli;
mod config;
mod error;
mod evaluate;
mod extract;
mod node;
mod routes;
mod server;
mod state;
mod times;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
