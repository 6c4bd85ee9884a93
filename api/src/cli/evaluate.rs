//! `celeris evaluate`: offline evaluation of a data set.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use celeris_datasets::Dataset;
use clap::ValueEnum;
use serde::Serialize;

use crate::cli::Failure;
use crate::evaluate::EvaluateSettings;
use crate::evaluate::split::evaluate_split;
use crate::evaluate::velox::evaluate_velox;

/// Evaluates how well a data set is predicted.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A MovieLens folder or ratings file.
    #[arg(long)]
    dataset: PathBuf,
    /// How to evaluate.
    #[arg(long)]
    protocol: Protocol,
    /// The length of features and weights, the constant included.
    #[arg(long, default_value_t = crate::routes::models::DIM_DEFAULT)]
    dim: usize,
    /// Seeds everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Ratings to predict, in place of a random tenth; protocol `split` only.
    #[arg(long)]
    test: Option<PathBuf>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// The protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// Trains on a random 90 % and predicts the rest.
    Split,
    /// The two experiments of Velox §2.4: features trained on few ratings, users learning more online.
    Velox,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let dataset = Dataset::load(&args.dataset)?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let settings = EvaluateSettings { dim: args.dim, seed: args.seed, threads };
    match args.protocol {
        Protocol::Split => {
            let test = args.test.as_ref().map(Dataset::load).transpose()?;
            let test = test.as_ref().map(|test| test.ratings.as_slice());
            let report =
                evaluate_split(&dataset.name, &dataset.ratings, test, &settings).map_err(Failure::bad_input)?;
            print(&report, args.json)
        }
        Protocol::Velox if args.test.is_some() => {
            Err(Failure::bad_input("--test goes with --protocol split; velox holds out ratings of its own"))
        }
        Protocol::Velox => {
            let report = evaluate_velox(&dataset.name, &dataset.ratings, &settings).map_err(Failure::bad_input)?;
            print(&report, args.json)
        }
    }
}

fn print<T: Serialize + std::fmt::Display>(report: &T, json: bool) -> Result<(), Failure> {
    let text = if json { serde_json::to_string(report).map_err(Failure::other)? } else { report.to_string() };
    writeln!(std::io::stdout(), "{}", text.trim_end()).map_err(Failure::other)
}
