//! What stands between a node and a trainer: commands that the node calls on its own binary.

use std::path::PathBuf;

use celeris_manager::training::confined::{Confined, become_trainer, supervise};

use crate::cli::Failure;

/// Runs a trainer, and sees to it that nothing is left of it.
#[derive(Debug, clap::Args)]
pub struct SuperviseArgs {
    /// Memory that all of its processes together may hold.
    #[arg(long)]
    memory_bytes: u64,
    /// Where to write how it ended.
    #[arg(long)]
    report: PathBuf,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Limits this process and becomes the trainer.
#[derive(Debug, clap::Args)]
pub struct BecomeArgs {
    /// Memory that it may map.
    #[arg(long)]
    memory_bytes: u64,
    /// The process that supervises.
    #[arg(long)]
    parent: i32,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

pub fn run_supervisor(args: SuperviseArgs) -> Result<(), Failure> {
    let SuperviseArgs { memory_bytes, report, command } = args;
    // How the trainer ended is in the report; the supervisor itself has done its work.
    supervise(&Confined { command, memory_bytes, report }).map(|_| ()).map_err(Failure::other)
}

pub fn run_trainer(args: &BecomeArgs) -> Result<(), Failure> {
    Err(Failure::other(become_trainer(&args.command, args.memory_bytes, args.parent)))
}
