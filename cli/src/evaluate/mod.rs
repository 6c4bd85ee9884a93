//! `celeris evaluate`: offline evaluation on a data set.
//!
//! [`data`] reads the data set as `import` does, [`folds`] the pairs of files of a folder, [`stages`] shows the
//! progress.

mod data;
mod folds;
mod protocol_args;
mod stages;

use std::fmt::Display;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use celeris_api::schema::models::DIM_DEFAULT;
use celeris_datasets::dsjson::files;
use celeris_datasets::synthetic::clicks::ClickSettings;
use celeris_datasets::{Dataset, OpenBandit};
use celeris_evaluate::cold_items::evaluate_cold_items;
use celeris_evaluate::context::evaluate_context;
use celeris_evaluate::density::evaluate_density;
use celeris_evaluate::folds::evaluate_folds;
use celeris_evaluate::ope::dsjson::evaluate_logged;
use celeris_evaluate::ope::dsjson::policy::LoggedPolicy;
use celeris_evaluate::ope::policy::EvaluatedPolicy;
use celeris_evaluate::ope::{Settings as OpeProtocol, evaluate_ope};
use celeris_evaluate::page::{self, Tabled};
use celeris_evaluate::prequential::evaluate_prequential;
use celeris_evaluate::ranking::evaluate_ranking;
use celeris_evaluate::split::{Holdout, evaluate_split};
use celeris_evaluate::table::evaluate_table;
use celeris_evaluate::velox::evaluate_velox;
use celeris_evaluate::{EvaluateSettings, Progress};
use celeris_model::Loss;
use clap::ValueEnum;
use serde::Serialize;

use self::data::{Reader, name_of, titles};
use self::protocol_args::ProtocolArgs;
use self::stages::Stages;
use crate::Failure;
use crate::import::row_args::RowArgs;
use crate::numbers::{count, whole};

/// Length of a list by default.
const K_DEFAULT: usize = 10;

/// Evaluates predictions or policies offline on a data set.
///
/// Trains on one part of the rows and predicts the rest: ratings (--loss squared), clicks of 0 and 1
/// (--loss logistic), or what users take next (--loss implicit).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A file or folder as `celeris import` reads it (CSV, TSV, JSON lines, Parquet, MovieLens), or `-`; for protocol
    /// `ope`, a log of decisions in dsjson (a file or a folder), or one of the Open Bandit Dataset such as `random/men`.
    /// Protocol `context` generates its own; `folds` takes a folder.
    #[arg(long, value_name = "FILE")]
    dataset: Option<PathBuf>,
    /// The evaluation protocol.
    #[arg(long, value_enum, default_value_t = Protocol::Split)]
    protocol: Protocol,
    /// The loss of the model: squared for ratings and amounts, logistic for clicks of 0 and 1, implicit for
    /// what users took. Protocol `split` only; squared by default.
    #[arg(long)]
    loss: Option<LossName>,
    /// Which rows to predict: a random tenth, or by time the latest tenth; protocol `split` only.
    #[arg(long, conflicts_with = "test")]
    split: Option<Split>,
    /// A file of rows to predict instead of a tenth; protocol `split` only.
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    /// The length of lists, for --loss implicit; 10 by default.
    #[arg(long, value_name = "N", value_parser = count)]
    k: Option<usize>,
    /// The length of feature and weight vectors, including the constant; 32 by default. Not for
    /// protocol `ope`.
    #[arg(long, value_parser = count)]
    dim: Option<usize>,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1, value_parser = whole)]
    seed: u64,
    /// The policy to evaluate, protocol `ope` only: `uniform`; the name of a policy or its JSON
    /// object, which then scores by a model trained on the first half of the log. Of dsjson also
    /// `first`, the action that comes first; `logged`, the policy that logged; or a file of
    /// predictions as `vw --cb_explore_adf -p` writes them. Of the Open Bandit Dataset also the
    /// folder of another log, whose policy is estimated from its choices; or a CSV file of
    /// `item_id`, `position` and `probability`.
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
    /// A Markdown file, in which the tables of the report replace those of an earlier one, or are added at the end;
    /// protocols `density`, `folds`, `prequential`, `ranking` and `table`.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    #[command(flatten)]
    of_protocol: ProtocolArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// The protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// Trains on most of the rows and predicts the rest.
    Split,
    /// Trains on 5, 10, 20, 40 and 80 ratings of each user, then users learn seven more online, then trains on all of
    /// these; beside myFM where it is installed.
    Density,
    /// The mean error over pairs of files such as u1.base and u1.test; beside myFM where it is installed.
    Folds,
    /// Rows in the order of time, each predicted before it is learnt: with fixed features, and with retrainings; beside
    /// river, Vowpal Wabbit and myFM where they are installed.
    Prequential,
    /// The two experiments of Velox §2.4: features trained on few ratings, users learning more
    /// online.
    Velox,
    /// Leaves out a tenth of the items and predicts their ratings from titles and genres.
    ColdItems,
    /// Leaves out the last item of every user and looks for it among the ten and the twenty best; ratings count as
    /// implicit feedback. Beside EASE, popularity and, where it is installed, the library implicit.
    Ranking,
    /// Generates clicks that depend on items and contexts together, and predicts them with computed parts of the features
    /// and without.
    Context,
    /// Off-policy evaluation: estimates the value of a policy on the log of another policy.
    Ope,
    /// The protocols split, density, prequential and ranking in one run, for --write.
    Table,
}

impl Protocol {
    /// Whether its report has tables for a page.
    fn is_tabled(self) -> bool {
        matches!(self, Self::Density | Self::Folds | Self::Prequential | Self::Ranking | Self::Table)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LossName {
    Squared,
    Logistic,
    Implicit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Split {
    Random,
    Time,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    check(args)?;
    let stages = Stages::new();
    let report = match args.protocol {
        Protocol::Split => split(args, &stages),
        Protocol::Context => {
            let settings = settings(args, Loss::Logistic, &stages);
            written(evaluate_context(&ClickSettings::default(), &settings), args.json)
        }
        Protocol::ColdItems => {
            let (mut dataset, settings) = ratings(args, Loss::Squared, &stages)?;
            dataset.items = titles(path(args)?)?;
            written(evaluate_cold_items(&dataset, &settings), args.json)
        }
        Protocol::Ranking => {
            let (dataset, settings) = ratings(args, Loss::Implicit, &stages)?;
            tabled(evaluate_ranking(&dataset, &settings), args)
        }
        Protocol::Density => {
            let (dataset, settings) = ratings(args, Loss::Squared, &stages)?;
            let density = args.of_protocol.density();
            tabled(evaluate_density(&dataset.name, &dataset.ratings, &density, &settings), args)
        }
        Protocol::Folds => {
            let folder = path(args)?;
            let folds = folds::read(folder, &args.of_protocol.folds, &args.rows, &stages)?;
            tabled(evaluate_folds(&name_of(folder), &folds, &settings(args, Loss::Squared, &stages)), args)
        }
        Protocol::Prequential => {
            let (dataset, settings) = ratings(args, Loss::Squared, &stages)?;
            let stream = args.of_protocol.prequential();
            tabled(evaluate_prequential(&dataset.name, &dataset.ratings, stream, &settings), args)
        }
        Protocol::Table => {
            let (dataset, settings) = ratings(args, Loss::Squared, &stages)?;
            let protocols = (&args.of_protocol.density(), args.of_protocol.prequential());
            tabled(evaluate_table(&dataset, protocols, &settings), args)
        }
        Protocol::Velox => {
            let (dataset, settings) = ratings(args, Loss::Squared, &stages)?;
            written(evaluate_velox(&dataset.name, &dataset.ratings, &settings), args.json)
        }
        Protocol::Ope => ope(args, &stages),
    }?;
    drop(stages);
    writeln!(std::io::stdout(), "{}", report.trim_end()).map_err(Failure::other)
}

/// Refuses options that do not go with the protocol.
fn check(args: &Args) -> Result<(), Failure> {
    let of_ope = args.policy.is_some() || args.resamples.is_some() || args.switch_threshold.is_some();
    if args.protocol == Protocol::Context && (args.dataset.is_some() || args.rows != RowArgs::default()) {
        return Err(Failure::bad_input(
            "--dataset and the options for columns do not go with --protocol context, which generates its clicks",
        ));
    }
    if args.protocol != Protocol::Context {
        path(args)?;
    }
    if args.protocol != Protocol::Ope && of_ope {
        return Err(Failure::bad_input("--policy, --resamples and --switch-threshold go with --protocol ope"));
    }
    if args.protocol != Protocol::Split && args.test.is_some() {
        return Err(Failure::bad_input("--test goes with --protocol split; the others hold out ratings of their own"));
    }
    if args.protocol != Protocol::Split && (args.loss.is_some() || args.split.is_some()) {
        return Err(Failure::bad_input(
            "--loss and --split go with --protocol split; ranking has implicit loss, context logistic, and the others on \
             ratings squared loss",
        ));
    }
    args.of_protocol.check(args.protocol)?;
    if args.write.is_some() && !args.protocol.is_tabled() {
        return Err(Failure::bad_input(
            "--write goes with --protocol density, folds, prequential, ranking and table, which have tables for a page",
        ));
    }
    if args.k.is_some() && args.loss != Some(LossName::Implicit) {
        return Err(Failure::bad_input("--k is the length of lists, which --loss implicit makes"));
    }
    if args.k == Some(0) {
        return Err(Failure::bad_input("--k: must be at least 1"));
    }
    if args.protocol == Protocol::Ope && (args.dim.is_some() || args.rows != RowArgs::default()) {
        return Err(Failure::bad_input("--dim and the options for columns do not go with --protocol ope"));
    }
    Ok(())
}

/// The data set, which all protocols but `context` need.
fn path(args: &Args) -> Result<&Path, Failure> {
    let missing = || Failure::bad_input("--dataset FILE names the data; only --protocol context goes without");
    args.dataset.as_deref().ok_or_else(missing)
}

/// Protocol `split`.
fn split(args: &Args, stages: &Stages) -> Result<String, Failure> {
    let loss = match args.loss {
        None | Some(LossName::Squared) => Loss::Squared,
        Some(LossName::Logistic) => Loss::Logistic,
        Some(LossName::Implicit) => Loss::Implicit,
    };
    let path = path(args)?;
    let paths: Vec<&Path> = std::iter::once(path).chain(args.test.as_deref()).collect();
    let mut reader = Reader::new(&args.rows, &paths, loss, stages)?;
    let dataset = reader.read(path)?;
    let test = args.test.as_ref().map(|test| reader.read(test)).transpose()?;
    let holdout = match (&test, args.split) {
        (Some(test), _) => Holdout::File(&test.ratings),
        (None, Some(Split::Time)) => Holdout::Latest,
        (None, None | Some(Split::Random)) => Holdout::Random,
    };
    let k = args.k.unwrap_or(K_DEFAULT);
    let report = evaluate_split(&dataset.name, &dataset.ratings, holdout, k, &settings(args, loss, stages));
    written(report, args.json)
}

/// The data set and settings of the other protocols on ratings.
fn ratings<'a>(args: &Args, loss: Loss, stages: &'a Stages) -> Result<(Dataset, EvaluateSettings<'a>), Failure> {
    let path = path(args)?;
    let dataset = Reader::new(&args.rows, &[path], loss, stages)?.read(path)?;
    Ok((dataset, settings(args, loss, stages)))
}

fn settings<'a>(args: &Args, loss: Loss, stages: &'a Stages) -> EvaluateSettings<'a> {
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    EvaluateSettings { dim: args.dim.unwrap_or(DIM_DEFAULT), seed: args.seed, threads, loss, progress: stages }
}

/// Protocol `ope`.
fn ope(args: &Args, stages: &Stages) -> Result<String, Failure> {
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
    stages.begin("reading the log", None);
    let path = path(args)?;
    if is_dsjson_log(path)? {
        let policy = LoggedPolicy::read(policy).map_err(|error| Failure::bad_input(format!("{error:#}")))?;
        let report = evaluate_logged(path, policy, &settings, stages);
        return written(report.map_err(|error| anyhow::anyhow!("{error:#}")), args.json);
    }
    let log = OpenBandit::load(path)?;
    stages.begin("computing the probabilities of the policy, in impressions", Some(log.impressions.len() as u64));
    let evaluated =
        EvaluatedPolicy::read(policy, &log, &settings.ope).map_err(|error| Failure::bad_input(format!("{error:#}")))?;
    stages.begin("estimating the value of the policy, by resamples", Some(settings.ope.resamples as u64));
    written(evaluate_ope(&log, &evaluated, &settings), args.json)
}

/// Whether the log is one of decisions in dsjson, a file or a folder of them.
fn is_dsjson_log(path: &Path) -> Result<bool, Failure> {
    let is_file = path.is_file() && files::is_dsjson(path)?;
    Ok(is_file || path.is_dir() && !files::of_log(path)?.is_empty())
}

/// As [`written`], and the tables of the report on the page that is to be written.
fn tabled<T: Serialize + Display + Tabled>(report: anyhow::Result<T>, args: &Args) -> Result<String, Failure> {
    let report = report.map_err(Failure::bad_input)?;
    if let Some(file) = &args.write {
        page::write(file, &report).map_err(|error| Failure::bad_input(format!("{error:#}")))?;
    }
    written(Ok(report), args.json)
}

/// The report as text or as JSON.
fn written<T: Serialize + Display>(report: anyhow::Result<T>, json: bool) -> Result<String, Failure> {
    let report = report.map_err(Failure::bad_input)?;
    if json { serde_json::to_string(&report).map_err(Failure::other) } else { Ok(report.to_string()) }
}
