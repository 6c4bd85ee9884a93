//! Developer commands: `cargo xtask NAME`. They check what the compiler cannot, which runs in CI, and install what benches
//! compare with.

#![expect(clippy::print_stdout, reason = "a command line answers on stdout")]

mod deps;
mod manifest;
mod peers;
mod unused;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::manifest::Crate;

/// Developer commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Checks which crates of the workspace depend on which, and who may know RocksDB, HTTP and I/O.
    Deps,
    /// Lists declared dependencies that no source file of their crate names, and those of the workspace that no crate takes.
    Unused,
    /// Installs the peers in Python that benches compare with, Spark among them, at `$CELERIS_PEERS` or else
    /// `~/.cache/celeris/peers`.
    Peers,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let workspace = manifest::read_workspace()?;
    let (findings, clean) = match arguments.command {
        Command::Deps => (deps::check(&workspace.crates), "every dependency points the right way"),
        Command::Unused => (unused::check(&workspace)?, "every declared dependency is named in the sources"),
        Command::Peers => return peers::install().map(|()| ExitCode::SUCCESS),
    };
    Ok(report(&findings, &workspace.crates, clean))
}

fn report(findings: &[String], crates: &[Crate], clean: &str) -> ExitCode {
    for finding in findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        let dependencies: usize = crates.iter().map(|member| member.dependencies.len()).sum();
        println!("{clean}: {dependencies} dependencies of {} crates", crates.len());
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}
