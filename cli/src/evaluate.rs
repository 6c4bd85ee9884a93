//! `celeris evaluate`: offline evaluation on a data set.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use celeris_datasets::{Dataset, OpenBandit};
use clap::ValueEnum;
use serde::Serialize;

use crate::Failure;
use celeris_api::schema::models::DIM_DEFAULT;
use celeris_evaluate::EvaluateSettings;
use celeris_evaluate::cold_items::evaluate_cold_items;
use celeris_evaluate::ope::policy::EvaluatedPolicy;
use celeris_evaluate::ope::{Settings as OpeProtocol, evaluate_ope};
use celeris_evaluate::ranking::evaluate_ranking;
use celeris_evaluate::split::evaluate_split;
use celeris_evaluate::velox::evaluate_velox;

/// Evaluates the predictions for a data set, or the value of a policy on a log.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A MovieLens folder or ratings file; for protocol `ope`, a log of the Open Bandit Dataset
    /// such as `random/men`.
    #[arg(long)]
    dataset: PathBuf,
    /// The evaluation protocol.
    #[arg(long)]
    protocol: Protocol,
    /// The length of feature and weight vectors, including the constant; 32 by default. Not for
    /// protocol `ope`.
    #[arg(long)]
    dim: Option<usize>,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A file of ratings to predict instead of a random tenth; protocol `split` only.
    #[arg(long)]
    test: Option<PathBuf>,
    /// The policy to evaluate, protocol `ope` only: `uniform`; the name of a policy or its JSON
    /// object, which then scores by a model trained on the first half of the log; the folder of
    /// another log, whose policy is estimated from its choices; or a CSV file of `item_id`,
    /// `position` and `probability`.
    #[arg(long)]
    policy: Option<String>,
    /// Number of bootstrap resamples per interval, protocol `ope` only; 1000 by default.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    resamples: Option<u32>,
    /// The largest importance weight with which SWITCH-DR corrects its reward model, protocol `ope`
    /// only; 10 by default.
    #[arg(long)]
    switch_threshold: Option<f64>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// The protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// Trains on a random 90 % of the ratings and predicts the rest.
    Split,
    /// The two experiments of Velox §2.4: features trained on few ratings, users learning more
    /// online.
    Velox,
    /// Leaves out a tenth of the items and predicts their ratings from titles and genres.
    ColdItems,
    /// Leaves out the last item of every user and looks for it among the ten best; ratings count as
    /// implicit feedback.
    Ranking,
    /// Off-policy evaluation: estimates the value of a policy on the log of another policy.
    Ope,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    match args.protocol {
        Protocol::Split => {
            let (dataset, settings) = ratings(args)?;
            let test = args.test.as_ref().map(Dataset::load).transpose()?;
            let test = test.as_ref().map(|test| test.ratings.as_slice());
            let report =
                evaluate_split(&dataset.name, &dataset.ratings, test, &settings).map_err(Failure::bad_input)?;
            print(&report, args.json)
        }
        Protocol::Velox | Protocol::ColdItems | Protocol::Ranking if args.test.is_some() => {
            Err(Failure::bad_input("--test goes with --protocol split; the others hold out ratings of their own"))
        }
        Protocol::ColdItems => {
            let (dataset, settings) = ratings(args)?;
            let report = evaluate_cold_items(&dataset, &settings).map_err(Failure::bad_input)?;
            print(&report, args.json)
        }
        Protocol::Ranking => {
            let (dataset, settings) = ratings(args)?;
            let report = evaluate_ranking(&dataset, &settings).map_err(Failure::bad_input)?;
            print(&report, args.json)
        }
        Protocol::Velox => {
            let (dataset, settings) = ratings(args)?;
            let report = evaluate_velox(&dataset.name, &dataset.ratings, &settings).map_err(Failure::bad_input)?;
            print(&report, args.json)
        }
        Protocol::Ope => ope(args),
    }
}

/// The data set and settings of the protocols on ratings.
fn ratings(args: &Args) -> Result<(Dataset, EvaluateSettings), Failure> {
    if args.policy.is_some() || args.resamples.is_some() || args.switch_threshold.is_some() {
        return Err(Failure::bad_input("--policy, --resamples and --switch-threshold go with --protocol ope"));
    }
    let dataset = Dataset::load(&args.dataset)?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    Ok((dataset, EvaluateSettings { dim: args.dim.unwrap_or(DIM_DEFAULT), seed: args.seed, threads }))
}

/// Protocol `ope`.
fn ope(args: &Args) -> Result<(), Failure> {
    if args.test.is_some() || args.dim.is_some() {
        return Err(Failure::bad_input("--test and --dim do not go with --protocol ope"));
    }
    let Some(policy) = &args.policy else {
        return Err(Failure::bad_input("--protocol ope evaluates a policy: name one with --policy, such as uniform"));
    };
    let mut settings = OpeProtocol::default();
    settings.ope.seed = args.seed;
    settings.model.seed = args.seed;
    if let Some(resamples) = args.resamples {
        settings.ope.resamples = resamples as usize;
    }
    if let Some(threshold) = args.switch_threshold {
        if threshold.is_nan() || threshold < 0.0 {
            return Err(Failure::bad_input(format!("--switch-threshold must be at least 0, got {threshold}")));
        }
        settings.ope.switch_threshold = threshold;
    }
    let log = OpenBandit::load(&args.dataset)?;
    let evaluated =
        EvaluatedPolicy::read(policy, &log, &settings.ope).map_err(|error| Failure::bad_input(format!("{error:#}")))?;
    let report = evaluate_ope(&log, &evaluated, &settings).map_err(Failure::bad_input)?;
    print(&report, args.json)
}

fn print<T: Serialize + std::fmt::Display>(report: &T, json: bool) -> Result<(), Failure> {
    let text = if json { serde_json::to_string(report).map_err(Failure::other)? } else { report.to_string() };
    writeln!(std::io::stdout(), "{}", text.trim_end()).map_err(Failure::other)
}
