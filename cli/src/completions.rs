//! `celeris completions`: a script by which a shell completes commands and options.

use std::io::Write;

use clap::{Command, CommandFactory};
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
    generate(args.shell, &mut visible(), "celeris", &mut script);
    std::io::stdout().write_all(&script).map_err(Failure::other)
}

/// The commands that people call.
fn visible() -> Command {
    let all = Cli::command();
    let commands = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("celeris").args(all.get_arguments().cloned()).subcommands(commands)
}
