//! Developer commands: `cargo xtask NAME`. They run checks that the compiler cannot, in CI, and
//! install the peers of the benches. `release` makes what people install.

#![expect(clippy::print_stdout, reason = "a command line answers on stdout")]

mod deps;
mod links;
mod manifest;
mod modules;
mod paths;
mod peers;
mod release;
mod unused;
mod words;

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
    /// Checks which crates of the workspace depend on each other, and which may use RocksDB, HTTP,
    /// columnar formats and I/O; that the server links no crates of tests and benches; and that the
    /// components of a crate form no cycles and do not use the object that owns them.
    Deps,
    /// Lists declared dependencies that no source file of their crate uses, and those of the
    /// workspace that no crate uses.
    Unused,
    /// Lists words in comments that have a plainer or newer word.
    Words,
    /// Lists links of the documents to files or headings that do not exist, and documents that
    /// sources name and that do not exist.
    Links,
    /// Installs the Python peers that benches compare with, including Spark, at `$CELERIS_PEERS` or
    /// by default `~/.cache/celeris/peers`.
    Peers,
    /// Makes what people install: tarball, Debian package, Python wheel, SBOM and checksums, of a binary without the fault
    /// points of the tests.
    Release(release::Options),
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let workspace = manifest::read_workspace()?;
    let (findings, clean) = match arguments.command {
        Command::Deps => {
            let server = manifest::read_linked(deps::SERVER)?;
            let findings =
                [deps::check(&workspace.crates), deps::check_server(&server), modules::check(&workspace.crates)?];
            (findings.concat(), "every dependency points the right way")
        }
        Command::Unused => (unused::check(&workspace)?, "every declared dependency is named in the sources"),
        Command::Words => (words::check(&workspace)?, "comments use plain words"),
        Command::Links => (links::check(&workspace.root)?, "every link leads to a file and heading"),
        Command::Peers => return peers::install().map(|()| ExitCode::SUCCESS),
        Command::Release(options) => {
            println!("{}", release::make(&options)?.display());
            return Ok(ExitCode::SUCCESS);
        }
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
