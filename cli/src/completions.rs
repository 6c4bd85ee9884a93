//! `celeris completions`: a script by which a shell completes commands and options.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::{Cli, Failure};

/// Prints a script by which a shell completes commands and options.
///
/// For bash: `celeris completions bash > ~/.local/share/bash-completion/completions/celeris`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell.
    shell: Shell,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "celeris", &mut script);
    std::io::stdout().write_all(&script).map_err(Failure::other)
}
