//! `celeris train`: runs the built-in trainer in a separate process, at the priority of confined
//! ones.

use std::path::PathBuf;

use celeris_retrain::{JsonLines, run_job};

use crate::Failure;

/// Trains a version.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job file.
    #[arg(long)]
    job: PathBuf,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    celeris_sandbox::lower_priority();
    run_job(&args.job, &JsonLines::new(std::io::stdout()))?;
    Ok(())
}
