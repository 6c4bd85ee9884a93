//! `celeris man-pages`: the manual, for packages; `celeris --help` does not list it.

use std::path::PathBuf;

use clap::CommandFactory as _;

use crate::{Cli, Failure};

/// Writes a page of the manual for each command into a folder.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder, which must exist.
    folder: PathBuf,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let written = clap_mangen::generate_to(Cli::command(), &args.folder);
    written.map_err(|error| Failure::bad_input(format!("{}: {error}", args.folder.display())))
}
