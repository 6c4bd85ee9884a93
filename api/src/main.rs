//! The `celeris` binary: the command line, and the one place where the rooms are wired into a node.

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

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
