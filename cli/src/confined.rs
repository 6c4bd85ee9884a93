//! Hidden commands with which a node runs a confined trainer; the node calls them on its own
//! binary.

use std::path::PathBuf;

use celeris_sandbox::{become_program, supervise};

use crate::Failure;

/// Supervises a trainer, and kills all of its processes when it ends.
#[derive(Debug, clap::Args)]
pub struct SuperviseArgs {
    /// The file with the command to run and its limits.
    #[arg(long)]
    plan: PathBuf,
}

/// Applies the limits to this process and executes the trainer in it.
#[derive(Debug, clap::Args)]
pub struct BecomeArgs {
    /// The file with the command to run and its limits.
    #[arg(long)]
    plan: PathBuf,
    /// The process id of the supervisor.
    #[arg(long)]
    parent: i32,
}

pub fn run_supervisor(args: &SuperviseArgs) -> Result<(), Failure> {
    // The report contains how the trainer ended; the supervisor itself succeeded.
    supervise(&args.plan).map_err(Failure::other)
}

pub fn run_trainer(args: &BecomeArgs) -> Result<(), Failure> {
    Err(Failure::other(become_program(&args.plan, args.parent)))
}
