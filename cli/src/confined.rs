//! What stands between a node and a trainer: commands that the node calls on its own binary.

use std::path::PathBuf;

use celeris_manager::training::confined::{become_trainer, supervise};

use crate::Failure;

/// Runs a trainer, and sees to it that nothing is left of it.
#[derive(Debug, clap::Args)]
pub struct SuperviseArgs {
    /// The file that says what to run and what it may take.
    #[arg(long)]
    plan: PathBuf,
}

/// Limits this process and becomes the trainer.
#[derive(Debug, clap::Args)]
pub struct BecomeArgs {
    /// The file that says what to run and what it may take.
    #[arg(long)]
    plan: PathBuf,
    /// The process that supervises.
    #[arg(long)]
    parent: i32,
}

pub fn run_supervisor(args: &SuperviseArgs) -> Result<(), Failure> {
    // How the trainer ended is in the report; the supervisor itself has done its work.
    supervise(&args.plan).map(|_| ()).map_err(Failure::other)
}

pub fn run_trainer(args: &BecomeArgs) -> Result<(), Failure> {
    Err(Failure::other(become_trainer(&args.plan, args.parent)))
}
