//! `celeris export`: exports the store of a stopped node as Parquet.

use std::path::PathBuf;

use celeris_export::export_store;
use celeris_manager::exportable;
use celeris_storage::{Storage, StorageOptions};

use crate::Failure;
use crate::progress::Report;

/// Writes observations, decisions and versions of a data directory as Parquet.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The data directory of a stopped node.
    #[arg(long)]
    data_dir: PathBuf,
    /// The output folder; created if missing, otherwise it must be empty.
    #[arg(long)]
    out: PathBuf,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let storage = Storage::open_existing(&args.data_dir, &StorageOptions::default())?;
    let report = Report::new();
    let exported = export_store(&storage, &exportable(&storage)?, &args.out, &|phase, share| report.at(phase, share))?;
    storage.close()?;
    report.done();
    let observations: u64 = exported.observations.values().sum();
    let decisions: u64 = exported.decisions.values().sum();
    let versions: u64 = exported.versions.values().sum();
    let out = args.out.display();
    eprintln!("{out}: {observations} observations, {decisions} decisions, {versions} versions");
    Ok(())
}
