//! `celeris export`: exports the store of a stopped node as Parquet, or its decisions in dsjson.

use std::path::PathBuf;

use celeris_export::dsjson::{Counts, LeftOut, Selection};
use celeris_export::{ExportedDsjson, export_dsjson, export_store};
use celeris_manager::exportable;
use celeris_model::ModelName;
use celeris_model::observation::check_label;
use celeris_storage::{Storage, StorageOptions};
use clap::ValueEnum;

use crate::Failure;
use crate::progress::Report;

/// Writes observations, decisions and versions of a data directory as Parquet, or its decisions in dsjson.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The data directory of a stopped node.
    #[arg(long)]
    data_dir: PathBuf,
    /// The output folder; created if missing, otherwise it must be empty.
    #[arg(long)]
    out: PathBuf,
    /// Everything as Parquet, or the decisions with their rewards in dsjson, for Vowpal Wabbit.
    #[arg(long, value_enum, default_value_t = Format::Parquet)]
    format: Format,
    /// Only the decisions of this model or selection; format dsjson only.
    #[arg(long, value_name = "NAME")]
    model: Option<ModelName>,
    /// The reward of shown items that have none; by default that of the model's default reward, and without one
    /// decisions with such an item are left out. Format dsjson only.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    missing_reward: Option<f32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Parquet,
    Dsjson,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if args.format == Format::Parquet && (args.model.is_some() || args.missing_reward.is_some()) {
        return Err(Failure::bad_input("--model and --missing-reward go with --format dsjson"));
    }
    if let Some(reward) = args.missing_reward {
        check_label(reward).map_err(|error| Failure::bad_input(format!("--missing-reward: {error}")))?;
    }
    let storage = Storage::open_existing(&args.data_dir, &StorageOptions::default())?;
    let done = match args.format {
        Format::Parquet => parquet(&storage, args),
        Format::Dsjson => dsjson(&storage, args),
    }?;
    storage.close()?;
    eprintln!("{}: {done}", args.out.display());
    Ok(())
}

/// Exports everything; returns what it was.
fn parquet(storage: &Storage, args: &Args) -> Result<String, Failure> {
    let report = Report::new();
    let exported = export_store(storage, &exportable(storage)?, &args.out, &|phase, share| report.at(phase, share))?;
    report.done();
    let observations: u64 = exported.observations.values().sum();
    let decisions: u64 = exported.decisions.values().sum();
    let versions: u64 = exported.versions.values().sum();
    Ok(format!("{observations} observations, {decisions} decisions, {versions} versions"))
}

/// Exports the decisions; returns how many, and why others were left out.
fn dsjson(storage: &Storage, args: &Args) -> Result<String, Failure> {
    let report = Report::new();
    let selection = Selection { model: args.model.clone(), missing_reward: args.missing_reward };
    let tell = |phase: &str, share: f32| report.at(phase, share);
    let exported = export_dsjson(storage, &exportable(storage)?, &selection, (&args.out, &tell))?;
    report.done();
    let sum = |count: fn(&Counts) -> u64| exported.decisions.values().map(count).sum::<u64>();
    let mut done =
        format!("{} decisions of one slot, {} of several", sum(|counts| counts.cb), sum(|counts| counts.ccb));
    let left_out = |count: fn(&LeftOut) -> u64| sum_of(&exported, count);
    let reasons = [
        (left_out(|counts| counts.candidates_not_kept), "with a digest of the candidates only"),
        (left_out(|counts| counts.propensity_unknown), "with an unknown propensity"),
        (left_out(|counts| counts.seed_given), "whose request chose the seed"),
        (left_out(|counts| counts.reward_missing), "without a reward, which --missing-reward would give them"),
    ];
    for (count, what) in reasons.into_iter().filter(|(count, _)| *count > 0) {
        done.push_str(&format!("; left out: {count} {what}"));
    }
    Ok(done)
}

fn sum_of(exported: &ExportedDsjson, count: fn(&LeftOut) -> u64) -> u64 {
    exported.decisions.values().map(|counts| count(&counts.left_out)).sum()
}
